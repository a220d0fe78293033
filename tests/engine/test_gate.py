"""The gate: replays, disagreements word for word, unclear commits, receipts that do not add up, refreshes that drop."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.core.marks import Mark
from penstock.core.messages import StateChanged, StepDone
from penstock.core.slices import Kind, Receipt
from penstock.engine.delivery import COMMITS
from penstock.errors import CommitUnclear, StreamFailed
from penstock.ports import Budget, Owner, Planned, Remaining, StreamInfo
from tests.engine.pipeline import PIPELINE, At, Pipeline, broken_off, rows
from tests.engine.processes import Crashed
from tests.harness.doubles import LoopMover, MemorySource, Rows

SAFE = "Nothing was changed: neither the mark nor the sink."
RECOVER = (
    "`penstock state recover FILE --stream a` sets the store to what the sink holds, "
    "and the next run goes on from there"
)


@pytest.fixture
def one(tmp_path: Path) -> Pipeline:
    """One stream `a` of five rows, two a slice."""
    return Pipeline(str(tmp_path), {"a": rows(5)})


def crash(pipeline: Pipeline, point: str, time: int = 1) -> None:
    def die() -> None:
        raise Crashed

    probe = At(point, die, time)
    with pytest.raises(Crashed):
        pipeline.run(probe)
    assert probe.reached == time


# ---------------------------------------------------------------- a retry is the same slice

POINTS = [
    "gate.started",
    "gate.compared",
    "gate.prepared",
    "gate.planned",
    "gate.intended",
    "gate.asked",
    "gate.moved",
    "files.manifest_written",
    "files.manifest_linked",
    "files.file_visible",
    "files.all_visible",
    "gate.committed",
    "gate.advanced",
    "gate.swept",
]


@pytest.mark.parametrize("point", POINTS)
def test_after_a_crash_anywhere_the_same_slice_comes_in_once(one: Pipeline, point: str) -> None:
    one.run(max_rows=2)
    crash(one, point)
    intent = one.state().intent
    for _ in range(3):
        one.rows["a"].arrive(99)
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5, 6, 7, 8]
    after_intent = POINTS.index("gate.intended") <= POINTS.index(point) < POINTS.index("gate.advanced")
    assert (intent is not None) == after_intent
    if intent is not None:
        first = one.heard(StateChanged)[0]
        assert (first.number, first.slice_id, first.rows) == (2, intent.id, 2)
    staged = os.path.join(one.out, "_penstock", PIPELINE, "a", "staged")
    assert os.listdir(staged) == []


def test_a_slice_that_is_in_is_not_moved_again(one: Pipeline) -> None:
    crash(one, "gate.committed")

    def none() -> Any:
        raise AssertionError("nothing is left to move")

    one.source.most = 5
    one.rows["a"].places = {}
    one.source.streams["a"].arrived = 2
    eof = one.open(mover=none).run()
    assert eof.exit_code == 0
    (done,) = one.heard(StateChanged)
    assert (done.number, done.rows) == (1, 2)
    assert one.state().rows == 2
    assert [m.step for m in one.heard(StepDone)] == ["intend", "commit"]


def test_steps_are_told_in_order(one: Pipeline) -> None:
    one.run(max_rows=2)
    steps = [(m.step, m.number, m.rows, m.resumed) for m in one.heard(StepDone)]
    assert steps == [("intend", 1, 2, False), ("move", 1, 2, False), ("commit", 1, 2, False)]


def test_a_changed_source_is_refused_before_anything_is_planned(one: Pipeline) -> None:
    one.run(max_rows=2)
    one.source = MemorySource(one.rows, identity="elsewhere")
    eof = one.run()
    assert (eof.exit_code, one.error("a").reason) == (2, "another source")
    assert one.state().intent is None


# ---------------------------------------------------------------- sink and store disagree, word for word


def stopped(pipeline: Pipeline) -> tuple[str | None, str | None]:
    """A run that must stop: what it says; nothing may have changed but the recorded stop."""
    before, disk = pipeline.state(), pipeline.disk()
    eof = pipeline.run()
    assert (eof.status, eof.exit_code, eof.reason) == ("failed", 1, "failed: a")
    error = pipeline.error("a")
    assert error.stopped
    assert error.safe == SAFE
    assert pipeline.state() == replace(before, stopped=error.reason)
    assert pipeline.disk() == disk
    return error.reason, error.next_step


def test_the_sink_is_gone(one: Pipeline) -> None:
    one.run()
    shutil.rmtree(one.out)
    assert stopped(one) == (
        "the sink is behind the store: the store has delivered slice 3, but the sink holds nothing of this stream. "
        "Its folder, table or database was deleted, emptied, or is another one",
        f"put the sink back as it was; or, to deliver everything again, {RECOVER}",
    )


def test_the_store_is_new(one: Pipeline) -> None:
    one.run()
    one.store.lose()
    assert stopped(one) == (
        "the store knows nothing of this stream, but the sink holds its slice 3. "
        "The store was lost, or this is a second store under the same pipeline name",
        f"use the store that belongs to this pipeline, or give this one another name; or {RECOVER}",
    )


def test_the_store_is_older_than_the_sink(one: Pipeline) -> None:
    one.run(max_rows=2)
    copy = one.store.copy()
    one.run()
    one.store.restore(copy)
    assert stopped(one) == (
        "the store is behind the sink: it has delivered slice 1, the sink holds slice 3. "
        "The store was restored from an older copy, or another store was used in between",
        f"use the newest store; or {RECOVER}",
    )


def test_the_sink_is_older_than_the_store(one: Pipeline) -> None:
    one.run(max_rows=2)
    shutil.copytree(one.out, one.out + ".copy")
    one.run()
    shutil.rmtree(one.out)
    os.rename(one.out + ".copy", one.out)
    assert stopped(one) == (
        "the sink is behind the store: the store has delivered slice 3, the sink holds only slice 1. "
        "The sink was restored from an older copy, or slices were removed from it",
        f"put the sink back as it was; or, to deliver the missing slices again, {RECOVER}",
    )


def test_sink_and_store_went_different_ways(one: Pipeline) -> None:
    one.run(max_rows=2)
    copy = one.store.copy()
    one.run(max_rows=2)
    held = one.sink().held("a")
    assert held is not None
    one.store.restore(copy)
    shutil.copytree(one.out, one.out + ".copy")
    of_stream = Path(one.out, "_penstock", PIPELINE, "a")
    (of_stream / "manifests" / "000000000002.json").unlink()
    (of_stream / "newest.json").unlink()
    one.run(max_rows=1)  # slice 2, but another one
    shutil.rmtree(one.out)
    os.rename(one.out + ".copy", one.out)
    reason, step = stopped(one)
    assert reason == (
        f"sink and store disagree: the sink's slice 2 ({held.position.id[:12]}) is not the one the store knows. "
        "Store and sink were restored from copies of different times, or two stores used the same pipeline name"
    )
    assert step == f"put back a store and a sink that belong together; or {RECOVER}"


def test_a_disagreement_about_an_open_slice_stops_too(one: Pipeline) -> None:
    one.run(max_rows=2)
    crash(one, "gate.intended")
    shutil.rmtree(one.out)
    reason, _ = stopped(one)
    assert reason is not None
    assert reason.startswith(
        "the sink is behind the store: the store has delivered slice 1, but the sink holds nothing"
    )


def test_a_stop_is_lifted_once_both_agree_again(one: Pipeline) -> None:
    one.run()
    os.rename(one.out, one.out + ".away")
    stopped(one)
    assert one.state().stopped is not None
    os.rename(one.out + ".away", one.out)
    assert one.run().exit_code == 0
    assert one.state().stopped is None
    assert one.delivered() == [1, 2, 3, 4, 5]


def test_the_sink_is_asked_even_when_nothing_is_new(one: Pipeline) -> None:
    one.run()
    shutil.rmtree(one.out)
    assert one.run().exit_code == 1


def test_other_streams_go_on_when_one_stops(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), {"a": rows(3), "b": rows(3)})
    pipeline.run(max_rows=2, only=["a"])
    shutil.rmtree(os.path.join(pipeline.out, "_penstock", PIPELINE, "a"))
    eof = pipeline.run()
    assert (eof.exit_code, eof.reason) == (1, "failed: a")
    assert pipeline.delivered("b") == [1, 2, 3]


# ---------------------------------------------------------------- commits whose outcome is not clear


class Unclear:
    """The real sink, whose answers are lost: `before` times before a commit takes effect, or after it."""

    def __init__(self, sink: Any, *, before: int = 0, after: int = 0) -> None:
        self.sink, self.before, self.after, self.commits = sink, before, after, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sink, name)

    def commit(self, *what: Any) -> None:
        self.commits += 1
        if self.before:
            self.before -= 1
            raise CommitUnclear("the answer was lost", next_step="ask the sink")
        self.sink.commit(*what)
        if self.after:
            self.after -= 1
            raise CommitUnclear("the answer was lost", next_step="ask the sink")


def test_an_answer_that_was_lost_after_the_commit_is_asked_for(one: Pipeline) -> None:
    sink = Unclear(one.sink(), after=1)
    assert one.open(sink=sink).run().exit_code == 0
    assert sink.commits == 3
    assert one.delivered() == [1, 2, 3, 4, 5]


def test_a_commit_that_took_no_effect_is_tried_again_with_the_same_rows(one: Pipeline) -> None:
    sink = Unclear(one.sink(), before=COMMITS.tries - 1)
    moves: list[int] = []

    class Counting(LoopMover):
        def move(self, reader: Any, writer: Any, parts: Any) -> Sequence[Receipt]:
            moves.append(len(parts))
            return super().move(reader, writer, parts)

    assert one.open(sink=sink, mover=Counting).run().exit_code == 0
    assert moves == [2, 2, 1]
    assert sink.commits == COMMITS.tries + 2
    assert one.delivered() == [1, 2, 3, 4, 5]


def test_a_commit_that_never_takes_effect_fails_and_stays_open(one: Pipeline) -> None:
    sink = Unclear(one.sink(), before=10**6)
    eof = one.open(sink=sink).run()
    assert eof.exit_code == 1
    assert sink.commits == COMMITS.tries
    error = one.error("a")
    assert error.reason == "slice 1 could not be committed in 5 tries: the answer was lost"
    assert error.next_step == "run again; the slice is still open and is tried again"
    intent = one.state().intent
    assert one.run().exit_code == 0
    assert intent is not None
    assert one.heard(StateChanged)[0].slice_id == intent.id


# ---------------------------------------------------------------- receipts that do not add up


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda receipts: receipts[:-1], "receipts name parts [0], the slice has parts [0, 1]"),
        (lambda receipts: [*receipts, receipts[0]], "receipts name parts [0, 0, 1], the slice has parts [0, 1]"),
        (lambda receipts: [replace(receipts[0], read=2), receipts[1]], "part 0 read 2 rows and staged 1"),
        (
            lambda receipts: [replace(receipts[0], schema="x"), receipts[1]],
            "parts were written with 2 different schemas",
        ),
    ],
)
def test_receipts_that_do_not_add_up_are_not_committed(one: Pipeline, spoil: Any, fault: str) -> None:
    class Spoiling(LoopMover):
        def move(self, reader: Any, writer: Any, parts: Any) -> Sequence[Receipt]:
            spoilt: Sequence[Receipt] = spoil(super().move(reader, writer, parts))
            return spoilt

    assert one.open(mover=Spoiling).run().exit_code == 1
    error = one.error("a")
    assert error.reason == f"slice 1 was not committed: {fault}"
    assert error.next_step == "run again; if it happens again, report it as a defect"
    assert one.delivered() == []
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------- refreshes


class Refreshing(MemorySource):
    """Every run reads the whole of it once."""

    def __init__(self, streams: dict[str, Rows], accept_drop: bool = False) -> None:
        super().__init__(streams, most=10**6)
        self.accept_drop = accept_drop
        self.runs = 0

    def catalog(self) -> Sequence[StreamInfo]:
        return [StreamInfo(name, Kind.REFRESH, accept_drop=self.accept_drop) for name in self.streams]

    def ceiling(self, stream: str, content: Any, run: str, after: Any = None) -> Any:
        return {"run": run}

    def plan(self, stream: str, content: Any, after: Mark | None, ceiling: Any, budget: Budget) -> Planned | None:
        if after and after.document["run"] == ceiling["run"]:
            return None
        upto = Mark.of({"run": ceiling["run"], "place": self.streams[stream].arrived})
        return Planned(upto, Kind.REFRESH)

    def remaining(self, stream: str, content: Any, after: Mark | None, ceiling: Any) -> Remaining:
        return Remaining(self.streams[stream].arrived)

    def reading(self, slice_: Any) -> Any:
        return super().reading(replace(slice_, after=None))


def current(pipeline: Pipeline) -> list[int]:
    return pipeline.delivered("a/current")


def shrink(pipeline: Pipeline, keep: int) -> None:
    places = pipeline.rows["a"].places
    for place in sorted(places)[keep:]:
        del places[place]


@pytest.mark.parametrize(("keep", "taken"), [(5, True), (3, True), (2, False), (0, False)])
def test_a_refresh_that_drops_by_more_than_half_asks_first(one: Pipeline, keep: int, taken: bool) -> None:
    one.source = Refreshing(one.rows)
    assert one.run().exit_code == 0
    assert current(one) == [1, 2, 3, 4, 5]
    shrink(one, keep)
    eof = one.run()
    assert eof.exit_code == (0 if taken else 1)
    assert current(one) == ([1, 2, 3, 4, 5][:keep] if taken else [1, 2, 3, 4, 5])
    if not taken:
        error = one.error("a")
        assert error.reason == f"the full refresh read {keep} rows, far fewer than the previous one (5)"
        assert error.safe == "Nothing was replaced: readers still see the previous refresh."
        assert error.next_step == (
            "check that the source is complete; if the drop is intended, set `accept_drop: true` on the stream"
        )
        assert one.run().exit_code == 1, "asking again changes nothing"
        one.source = Refreshing(one.rows, accept_drop=True)
        assert one.run().exit_code == 0
        assert current(one) == [1, 2, 3, 4, 5][:keep]


def test_a_refresh_is_opened_only_once_the_mover_is_ready(one: Pipeline) -> None:
    """A snapshot and a lock are held from then on, and Spark takes its time to start."""
    steps: list[str] = []

    class Slow(LoopMover):
        def warm(self) -> None:
            steps.append("started")

        def move(self, reader: Any, writer: Any, parts: Any) -> Sequence[Receipt]:
            steps.append("moved")
            return super().move(reader, writer, parts)

    class Noted(Refreshing):
        def reading(self, slice_: Any) -> Any:
            steps.append("opened")
            return super().reading(slice_)

    one.source = Noted(one.rows)
    assert one.open(mover=Slow).run().exit_code == 0
    assert steps == ["started", "opened", "moved"]


def test_each_run_refreshes_once(one: Pipeline) -> None:
    one.source = Refreshing(one.rows)
    for number in range(1, 4):
        assert one.run().exit_code == 0
        last = one.state().last
        assert last is not None
        assert last.number == number
        assert current(one) == [1, 2, 3, 4, 5]


def test_a_failure_between_move_and_commit_shows_nothing(one: Pipeline) -> None:
    def fail() -> None:
        raise StreamFailed("a check refused the rows", next_step="look at them")

    assert one.run(At("gate.moved", fail)).exit_code == 1
    assert one.delivered() == []
    assert one.run().exit_code == 0


@pytest.mark.parametrize("point", ["gate.intended", "gate.moved", "gate.committed"])
def test_a_refresh_that_was_cut_short_is_done_once_by_the_next_run(one: Pipeline, point: str) -> None:
    one.source = Refreshing(one.rows)

    def die() -> None:
        raise Crashed

    with pytest.raises(Crashed):
        one.run(At(point, die))
    eof = one.run()
    assert (eof.exit_code, eof.has_more) == (0, False)
    assert current(one) == [1, 2, 3, 4, 5]
    # What the sink held already is of the run before: this one reads the table itself.
    reread = point == "gate.committed"
    assert [moved.rows for moved in one.heard(StateChanged)] == [5] * (1 + reread)
    assert eof.request_progress["rows"] == 5 * (1 + reread)
    assert one.run().request_progress["rows"] == 5


def test_a_refresh_after_a_reset_is_made_also_if_one_was_finished_before(one: Pipeline) -> None:
    one.source = Refreshing(one.rows)
    assert one.run().exit_code == 0
    broken_off(one)
    one.store.request_reset(
        one.store.acquire(PIPELINE, Owner("o", "there", 7), now=one.clock.now(), ttl=1, gone=lambda _: True),
        "a",
        now=one.clock.now(),
    )
    assert one.run().exit_code == 0
    assert [moved.reason for moved in one.heard(StateChanged)] == ["refresh", "reset", "refresh"]

"""A run as a whole: isolation, limits, fairness, nothing new, continuations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.core.limits import Limits
from penstock.core.messages import Catalog, ConnectionStatus, Eof
from penstock.core.progress import Progress, fold
from penstock.errors import ConnectionFailed, PenstockError, StreamFailed, StreamRefused
from penstock.ports import Lease, Owner
from tests.engine.pipeline import PIPELINE, At, Breaking, Pipeline, broken_off, rows
from tests.harness.doubles import LoopMover, MemorySource


@pytest.fixture
def one(tmp_path: Path) -> Pipeline:
    """One stream `a` of five rows, two a slice."""
    return Pipeline(str(tmp_path), {"a": rows(5)})


@pytest.fixture
def three(tmp_path: Path) -> Pipeline:
    return Pipeline(str(tmp_path), {"a": rows(5), "b": rows(3), "c": rows(1)})


# ---------------------------------------------------------------- one run


def test_everything_is_moved_once(three: Pipeline) -> None:
    eof = three.run()
    assert (eof.status, eof.exit_code, eof.has_more) == ("complete", 0, False)
    assert [three.delivered(stream) for stream in "abc"] == [[1, 2, 3, 4, 5], [1, 2, 3], [1]]
    assert three.statuses("c") == ["start", "range_complete", "complete"]


def test_catalog_first_eof_last_and_every_message_has_its_time(three: Pipeline) -> None:
    eof = three.run()
    assert isinstance(three.said[0], Catalog)
    assert [stream.stream for stream in three.said[0].streams] == ["a", "b", "c"]
    assert three.said[-1] is eof
    times = [message.ts for message in three.said]
    assert None not in times
    assert times == sorted(times)  # type: ignore[type-var]  # none is None
    assert three.heard(Eof) == [eof]


def test_the_messages_fold_to_what_the_eof_says(three: Pipeline) -> None:
    eof = three.run()
    progress = fold(three.said)
    assert (progress.rows, progress.slices, progress.status) == (9, 6, "complete")
    assert eof.request_progress["rows"] == eof.run_progress["rows"] == 9
    standing = {name: three.state(name) for name in "abc"}
    assert {s["stream"]: s["version"] for s in eof.ending_state["streams"]} == {
        n: s.version for n, s in standing.items()
    }


def test_one_slice_of_each_stream_in_turn(three: Pipeline) -> None:
    three.run()
    assert three.moved() == ["a", "b", "c", "a", "b", "a"]


def test_only_the_streams_asked_for(three: Pipeline) -> None:
    assert three.run(only=["c", "a"]).exit_code == 0
    assert set(three.moved()) == {"a", "c"}
    assert three.delivered("b") == []


def test_an_unknown_stream_and_the_nearest_name(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), {"orders": rows(1), "customers": rows(1)})
    eof = pipeline.run(only=["ordres"])
    assert (eof.status, eof.exit_code) == ("failed", 2)
    assert eof.reason == "there is no stream 'ordres'; did you mean 'orders'?"
    assert eof.next_step == "use one of: orders, customers"
    assert pipeline.run(only=["xyz"]).reason == "there is no stream 'xyz'"
    assert pipeline.disk().keys() == {str(tmp_path)}


def test_a_skipped_stream_is_said_and_left_alone(three: Pipeline) -> None:
    infos = [replace(info, skipped="no key" if info.name == "b" else None) for info in three.source.catalog()]
    three.source.catalog = lambda: infos  # type: ignore[method-assign]  # as a source that skips one would say
    eof = three.run()
    assert eof.exit_code == 0
    assert three.delivered("b") == []
    assert fold(three.said).streams["b"].error == "no key"


# ---------------------------------------------------------------- nothing new


def test_nothing_new_writes_nothing(one: Pipeline, tmp_path: Path) -> None:
    one.run()
    disk, store = one.disk(), one.kept()
    made: list[LoopMover] = []

    def mover() -> LoopMover:
        made.append(LoopMover())
        return made[-1]

    eof = one.open(mover=mover).run()
    assert (eof.status, eof.exit_code, eof.has_more) == ("complete", 0, False)
    assert one.disk() == disk
    assert one.kept() == store
    assert made == []
    assert one.statuses("a") == ["complete"]


def test_nothing_at_all_writes_nothing(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), {"a": rows(0)})
    store = pipeline.kept()
    assert pipeline.run().exit_code == 0
    assert pipeline.disk().keys() == {str(tmp_path)}
    assert pipeline.kept() == store


def test_nothing_new_takes_no_lease_even_where_another_holds_it(one: Pipeline) -> None:
    one.run()
    one.store.acquire(PIPELINE, Owner("other", "there", 7), now=one.clock.now(), ttl=60, gone=lambda _: False)
    one.gone = False
    assert one.run().exit_code == 0


# ---------------------------------------------------------------- what takes long to start


class Beginning(LoopMover):
    """Keeps what was asked of it, beside what the engine did meanwhile."""

    def __init__(self, steps: list[str]) -> None:
        super().__init__()
        self.steps = steps

    def begin(self) -> None:
        self.steps.append("begin")

    def move(self, *given: Any) -> Any:
        self.steps.append("move")
        return super().move(*given)

    def close(self) -> None:
        self.steps.append("close")


def test_the_mover_begins_to_start_before_the_lease_is_asked_for(three: Pipeline) -> None:
    steps: list[str] = []
    assert (
        three.open(At("engine.leased", lambda: steps.append("leased")), mover=lambda: Beginning(steps)).run().exit_code
        == 0
    )
    assert steps[:3] == ["begin", "leased", "move"]
    assert steps.count("begin") == 1, "the first stream with rows says it all"


def test_what_was_begun_is_closed_where_another_holds_the_pipeline(one: Pipeline) -> None:
    one.store.acquire(PIPELINE, Owner("other", "there", 7), now=one.clock.now(), ttl=60, gone=lambda _: False)
    one.gone, steps = False, list[str]()
    assert one.open(mover=lambda: Beginning(steps)).run().exit_code == 4
    assert steps == ["begin", "close"]


def test_an_open_slice_that_the_sink_lacks_begins_it_too(one: Pipeline) -> None:
    broken_off(one)
    steps: list[str] = []
    assert one.open(mover=lambda: Beginning(steps)).run().exit_code == 0
    assert steps[:2] == ["begin", "move"]


# ---------------------------------------------------------------- one stream's failure is its own


@pytest.mark.parametrize("at", ["content", "plan", "reading"])
def test_a_stream_that_fails_leaves_the_others_alone(three: Pipeline, at: str) -> None:
    three.source = Breaking(three.rows, at, StreamFailed("its table is locked", next_step="unlock it"))
    eof = three.run()
    assert (eof.status, eof.exit_code, eof.has_more, eof.reason) == ("failed", 1, True, "failed: b")
    assert (three.delivered("a"), three.delivered("b"), three.delivered("c")) == ([1, 2, 3, 4, 5], [], [1])
    error = three.error("b")
    assert (error.status.value, error.reason, error.next_step) == ("error", "its table is locked", "unlock it")
    assert (three.state("b").intent is not None) == (at == "reading")
    assert three.statuses("a")[-1] == three.statuses("c")[-1] == "complete"
    three.source = MemorySource(three.rows)
    assert three.run().exit_code == 0
    assert three.delivered("b") == [1, 2, 3]


def test_bad_input_alone_has_a_code_of_its_own(three: Pipeline) -> None:
    three.source = Breaking(three.rows, "content", StreamRefused("no such column", next_step="mend the file"))
    eof = three.run()
    assert (eof.exit_code, eof.reason) == (2, "failed: b")
    assert three.delivered("a") == [1, 2, 3, 4, 5]


def test_bad_input_beside_a_failure_is_a_failure(three: Pipeline) -> None:
    three.source = Breaking(three.rows, "content", StreamRefused("no such column", next_step="mend the file"))
    three.run(only=["a"])
    os.unlink(os.path.join(three.out, "a", max(os.listdir(os.path.join(three.out, "a")))))
    eof = three.run()
    assert (eof.exit_code, eof.reason) == (1, "failed: a, b")
    assert three.error("a").stopped
    assert three.delivered("c") == [1]


@pytest.mark.parametrize("at", ["content", "plan", "reading"])
def test_a_defect_is_one_streams_too(three: Pipeline, at: str) -> None:
    three.source = Breaking(three.rows, at, ZeroDivisionError("division by zero"))
    eof = three.run()
    assert (eof.exit_code, eof.reason) == (1, "failed: b")
    error = three.error("b")
    assert error.reason == "unexpected ZeroDivisionError: division by zero"
    assert (
        error.next_step
        == "this is a defect in penstock or in a connector: please report it with the output of `--json`"
    )
    assert any("Traceback" in text for text in three.logs())
    assert (three.delivered("a"), three.delivered("c")) == ([1, 2, 3, 4, 5], [1])


@pytest.mark.parametrize("at", ["content", "plan"])
def test_a_defect_in_the_look_beforehand_is_a_message_too(three: Pipeline, at: str) -> None:
    three.source = Breaking(three.rows, at, ZeroDivisionError("division by zero"))
    eof = three.run(only=["b"])
    assert (eof.exit_code, eof.reason) == (1, "failed: b")
    assert three.error("b").reason == "unexpected ZeroDivisionError: division by zero"


@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), StreamFailed("locked", next_step="unlock")])
def test_a_failure_in_the_look_for_more_is_a_message_too(three: Pipeline, error: Exception) -> None:
    three.source = Breaking(three.rows, "plan", error)
    eof = three.run(max_rows=2)
    assert (eof.exit_code, eof.has_more, eof.reason) == (1, True, "failed: b")
    assert three.delivered("a") == [1, 2]
    assert three.store.holder(PIPELINE) is None


def test_a_connection_that_fails_ends_the_run(three: Pipeline) -> None:
    gone = ConnectionFailed("db.example: no route to host", next_step="see that the server runs")
    three.source = Breaking(three.rows, "reading", gone)
    eof = three.run()
    assert (eof.status, eof.exit_code, eof.has_more) == ("failed", 3, True)
    assert (eof.reason, eof.next_step) == ("db.example: no route to host", "see that the server runs")
    assert three.delivered("a") == [1, 2]
    assert three.delivered("c") == []
    assert three.store.holder(PIPELINE) is None
    three.source = MemorySource(three.rows)
    assert three.run().exit_code == 0


@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_side_that_cannot_be_reached_is_named(one: Pipeline, side: str) -> None:
    def fail() -> None:
        raise ConnectionFailed("no route to host", next_step="see that the server runs", safe="all is safe")

    engine = one.open()
    getattr(engine, side).connect = fail
    eof = engine.run()
    assert eof.exit_code == 3
    (status,) = one.heard(ConnectionStatus)
    assert (status.side, status.connected, status.reason, status.safe) == (
        side,
        False,
        "no route to host",
        "all is safe",
    )
    assert not one.heard(Catalog)
    assert one.store.holder(PIPELINE) is None


def test_everything_is_closed_whatever_happens(one: Pipeline) -> None:
    closed: list[str] = []

    class Mover(LoopMover):
        def close(self) -> None:
            closed.append("mover")

    engine = one.open(mover=Mover)
    engine.source.close = lambda: closed.append("source")  # type: ignore[method-assign]  # listens
    engine.sink.close = lambda: closed.append("sink")  # type: ignore[method-assign]  # listens
    engine.run()
    assert sorted(closed) == ["mover", "sink", "source"]


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("max_rows", "moved", "has_more"),
    [(1, 1, True), (2, 2, True), (3, 3, True), (4, 4, True), (5, 5, False), (6, 5, False)],
)
def test_max_rows_is_exact_and_has_more_is_precise(one: Pipeline, max_rows: int, moved: int, has_more: bool) -> None:
    eof = one.run(max_rows=max_rows)
    assert one.delivered() == list(range(1, moved + 1))
    assert (eof.exit_code, eof.has_more) == (0, has_more)
    assert eof.status == ("limited" if has_more else "complete")
    assert eof.reason == (f"stopped at max_rows {max_rows}" if has_more else None)
    assert one.state().intent is None


def test_max_rows_holds_over_all_streams(three: Pipeline) -> None:
    eof = three.run(max_rows=5)
    assert sum(len(three.delivered(stream)) for stream in "abc") == 5
    assert eof.has_more
    assert three.statuses("c")[-1] == "complete"
    assert "complete" not in three.statuses("a")


def test_rows_that_come_after_the_ceiling_are_no_more_to_do(one: Pipeline) -> None:
    eof = one.run(At("gate.committed", lambda: one.rows["a"].arrive(99)), max_rows=5)
    assert (eof.status, eof.has_more) == ("complete", False)
    assert one.delivered() == [1, 2, 3, 4, 5]


def test_a_time_limit_begins_no_slice_after_it(one: Pipeline) -> None:
    def pass_time() -> None:
        one.clock.moment += timedelta(seconds=11)

    eof = one.run(At("gate.committed", pass_time, time=2), time_limit=10)
    assert (eof.status, eof.exit_code, eof.has_more) == ("limited", 0, True)
    assert eof.reason == "stopped at time_limit 10 s"
    assert one.delivered() == [1, 2, 3, 4]
    eof = one.run(At("gate.committed", pass_time, time=1), time_limit=10)
    assert (eof.status, eof.has_more) == ("complete", False)


def test_an_open_slice_is_finished_even_if_it_is_larger_than_the_limit(one: Pipeline) -> None:
    broken_off(one)
    assert one.run(max_rows=1).has_more
    assert one.delivered() == [1, 2]


# ---------------------------------------------------------------- a run and its continuations


def test_run_progress_goes_on_and_request_progress_does_not(one: Pipeline) -> None:
    counted = []
    for _ in range(4):
        eof = one.run(max_rows=2)
        counted.append((eof.run_progress["rows"], eof.request_progress["rows"], eof.has_more))
    assert counted == [(2, 2, True), (4, 2, True), (5, 1, False), (0, 0, False)]
    newest = one.store.runs(PIPELINE)
    assert [run.status for run in newest] == ["complete", "limited", "limited"]
    assert [run.continues for run in newest] == [newest[1].id, newest[2].id, None]


def test_a_run_that_was_whole_is_not_continued(one: Pipeline) -> None:
    one.run()
    one.rows["a"].arrive(6)
    eof = one.run()
    assert (eof.run_progress["rows"], eof.request_progress["rows"]) == (1, 1)
    assert one.store.runs(PIPELINE)[0].continues is None


def test_a_run_that_failed_is_continued(three: Pipeline) -> None:
    three.source = Breaking(three.rows, "reading", StreamFailed("locked", next_step="unlock"))
    assert three.run().run_progress["rows"] == 6
    three.source = MemorySource(three.rows)
    eof = three.run()
    assert (eof.run_progress["rows"], eof.request_progress["rows"]) == (9, 3)
    whole = Progress.continued(eof.run_progress)
    assert {name: stream.rows for name, stream in whole.streams.items()} == {"a": 5, "b": 3, "c": 1}


def test_an_error_of_the_store_ends_the_run_as_a_message(one: Pipeline) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise PenstockError("the store's disk is full", next_step="free some space")

    one.store.start_run = fail  # type: ignore[method-assign]  # a store in trouble
    eof = one.run()
    assert (eof.status, eof.exit_code, eof.reason) == ("failed", 1, "the store's disk is full")


def test_limits_of_one_call_do_not_last(one: Pipeline) -> None:
    assert one.open().run(Limits(max_rows=1)).has_more
    assert not one.open().run().has_more


def test_progress_is_written_for_the_stream_that_moved_alone(tmp_path: Path) -> None:
    many = Pipeline(str(tmp_path), {f"s{number}": rows(1) for number in range(20)})
    noted: list[set[str]] = []
    note = many.store.save_progress

    def spy(lease: Lease, run: str, *, totals: str, streams: Mapping[str, str]) -> None:
        noted.append(set(streams))
        note(lease, run, totals=totals, streams=streams)

    many.store.save_progress = spy  # type: ignore[method-assign]  # a store that is watched
    assert many.run().exit_code == 0
    assert sorted(noted, key=sorted) == sorted(({name} for name in many.rows), key=sorted)

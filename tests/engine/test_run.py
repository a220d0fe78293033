"""A run as a whole: isolation, limits, fairness, nothing new, leases, signals, continuations, reset and recover."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.core.documents import Document
from penstock.core.limits import Limits
from penstock.core.marks import Mark
from penstock.core.messages import Catalog, ConnectionStatus, Eof, StateChanged, StepDone
from penstock.core.progress import Progress, fold
from penstock.core.slices import Slice
from penstock.errors import ConnectionFailed, PenstockError, StreamFailed, StreamRefused
from penstock.ports import Budget, Owner, Planned
from penstock.testing.doubles import LoopMover, MemorySource
from penstock.testing.processes import Crashed
from tests.engine.pipeline import PIPELINE, At, Pipeline, rows

SIGNALS = {2: 130, 15: 143}


@pytest.fixture
def one(tmp_path: Path) -> Pipeline:
    """One stream `a` of five rows, two a slice."""
    return Pipeline(str(tmp_path), {"a": rows(5)})


@pytest.fixture
def three(tmp_path: Path) -> Pipeline:
    return Pipeline(str(tmp_path), {"a": rows(5), "b": rows(3), "c": rows(1)})


class Breaking(MemorySource):
    """A source whose stream `b` breaks at one of the engine's questions."""

    def __init__(self, streams: Any, at: str, error: Exception) -> None:
        super().__init__(streams)
        self.breaks_at, self.error = at, error

    def _break(self, at: str, stream: str) -> None:
        if (at, stream) == (self.breaks_at, "b"):
            raise self.error

    def content(self, stream: str) -> Document:
        self._break("content", stream)
        return super().content(stream)

    def plan(
        self, stream: str, content: Document, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        self._break("plan", stream)
        return super().plan(stream, content, after, ceiling, budget)

    def reading(self, slice_: Slice) -> Any:
        self._break("reading", slice_.stream)
        return super().reading(slice_)


# ---------------------------------------------------------------- one run


def test_everything_is_moved_once(three: Pipeline) -> None:
    eof = three.run()
    assert (eof.status, eof.exit_code, eof.has_more) == ("complete", 0, False)
    assert [three.delivered(stream) for stream in "abc"] == [[1, 2, 3, 4, 5], [1, 2, 3], [1]]
    assert three.statuses("c") == ["start", "range_complete", "complete"]


def test_catalog_first_eof_last_and_every_message_has_its_time(three: Pipeline) -> None:
    eof = three.run()
    assert isinstance(three.said[0], Catalog)
    assert [stream.name for stream in three.said[0].streams] == ["a", "b", "c"]
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
    assert {name: s["version"] for name, s in eof.ending_state.items()} == {n: s.version for n, s in standing.items()}


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
    disk, store = one.disk(), one.store.copy()
    made: list[LoopMover] = []

    def mover() -> LoopMover:
        made.append(LoopMover())
        return made[-1]

    eof = one.open(mover=mover).run()
    assert (eof.status, eof.exit_code, eof.has_more) == ("complete", 0, False)
    assert one.disk() == disk
    assert one.store.copy() == store
    assert made == []
    assert one.statuses("a") == ["complete"]


def test_nothing_at_all_writes_nothing(tmp_path: Path) -> None:
    pipeline = Pipeline(str(tmp_path), {"a": rows(0)})
    store = pipeline.store.copy()
    assert pipeline.run().exit_code == 0
    assert pipeline.disk().keys() == {str(tmp_path)}
    assert pipeline.store.copy() == store


def test_nothing_new_takes_no_lease_even_where_another_holds_it(one: Pipeline) -> None:
    one.run()
    one.store.acquire(PIPELINE, Owner("other", "there", 7), now=one.clock.now(), ttl=60, gone=lambda _: False)
    one.gone = False
    assert one.run().exit_code == 0


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


# ---------------------------------------------------------------- signals


class Stopping(LoopMover):
    """A signal comes while parts move."""

    pipeline: Pipeline
    number = 15

    def move(self, reader: Any, writer: Any, parts: Any) -> Any:
        self.pipeline.engine.stop(self.number)
        return super().move(reader, writer, parts)


@pytest.mark.parametrize("number", sorted(SIGNALS))
def test_a_signal_ends_the_run_and_the_next_finishes_the_same_slice(one: Pipeline, number: int) -> None:
    one.run(max_rows=2)
    Stopping.pipeline, Stopping.number = one, number
    eof = one.open(mover=Stopping).run()
    assert (eof.status, eof.exit_code, eof.has_more) == ("interrupted", SIGNALS[number], True)
    assert eof.reason == f"stopped by signal {number}"
    assert eof.next_step == "run the same command again; it resumes where it stood"
    assert one.statuses("a") == ["start"], "a move that was given up on request is no failure of the stream"
    assert one.delivered() == [1, 2]
    assert one.store.holder(PIPELINE) is None
    assert one.store.runs(PIPELINE)[0].status == "interrupted"
    intent = one.state().intent
    assert intent is not None
    for _ in range(10):
        one.rows["a"].arrive(99)
    assert one.run().exit_code == 0
    first = one.heard(StateChanged)[0]
    assert (first.number, first.slice_id) == (2, intent.id)
    assert next((m.step, m.resumed) for m in one.heard(StepDone)) == ("intend", True)
    assert one.delivered() == list(range(1, 16))


@pytest.mark.parametrize("point", ["engine.leased", "gate.greeted", "gate.planned", "gate.intended", "gate.asked"])
def test_a_signal_before_the_first_move_starts_none(one: Pipeline, point: str) -> None:
    made: list[LoopMover] = []

    def mover() -> LoopMover:
        made.append(LoopMover())
        return made[-1]

    probe = At(point, lambda: one.engine.stop(2))
    eof = one.open(probe, mover=mover).run()
    assert (eof.status, eof.exit_code) == ("interrupted", 130)
    assert one.delivered() == []
    assert made == [], "no JVM is started for a run that is to end"
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5]


def test_a_signal_between_two_slices_ends_the_run(one: Pipeline) -> None:
    eof = one.run(At("gate.advanced", lambda: one.engine.stop(15)))
    assert (eof.status, eof.exit_code) == ("interrupted", 143)
    assert one.delivered() == [1, 2]
    assert one.state().intent is None


# ---------------------------------------------------------------- the lease


def test_a_pipeline_that_another_process_holds(one: Pipeline) -> None:
    one.gone = False
    one.store.acquire(PIPELINE, Owner("other", "there", 77), now=one.clock.now(), ttl=60, gone=lambda _: False)
    eof = one.run()
    assert (eof.status, eof.exit_code, eof.has_more) == ("failed", 4, True)
    assert eof.reason is not None
    assert eof.reason.startswith("process 77 on there holds the pipeline; its last heartbeat was 0 s ago")
    assert eof.safe == "Nothing was changed."
    assert one.delivered() == []
    holder = one.store.holder(PIPELINE)
    assert holder is not None
    assert holder.lease.owner.token == "other"


def test_a_lease_that_ran_out_or_whose_owner_is_gone_is_taken_over(one: Pipeline) -> None:
    one.gone = False
    one.store.acquire(PIPELINE, Owner("other", "there", 77), now=one.clock.now(), ttl=60, gone=lambda _: False)
    one.clock.moment += timedelta(seconds=61)
    assert one.run().exit_code == 0


@pytest.mark.parametrize("point", ["gate.greeted", "gate.intended", "gate.moved", "gate.committed"])
def test_a_run_that_was_replaced_says_so_and_changes_nothing(one: Pipeline, point: str) -> None:
    def replaced() -> None:
        now = one.clock.now()
        one.store.acquire(PIPELINE, Owner("other", "there", 77), now=now, ttl=60, gone=lambda _: True)

    eof = one.run(At(point, replaced))
    assert (eof.status, eof.exit_code, eof.has_more) == ("lost", 4, True)
    assert eof.reason == (
        "this run was away for longer than its lease (frozen or cut off) and was replaced by process 77 on there; "
        "the other run went on from the open slice, and nothing that this one had put aside was made visible twice"
    )
    assert eof.safe == "Nothing was lost and nothing delivered twice."
    assert eof.next_step == "nothing; `penstock status FILE` shows how far the pipeline is"
    assert one.state().last is None
    assert one.state().stopped is None
    assert one.store.runs(PIPELINE)[0].status == "running", "a run that was replaced writes nothing"
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5]


def test_the_heartbeat_hears_of_a_take_over_during_a_long_move(one: Pipeline) -> None:
    cancelled = threading.Event()

    class Long(LoopMover):
        def move(self, reader: Any, writer: Any, parts: Any) -> Any:
            one.store.acquire(PIPELINE, Owner("o", "there", 7), now=one.clock.now(), ttl=60, gone=lambda _: True)
            assert cancelled.wait(60)
            raise StreamFailed("the move was given up on request", next_step="run again")

        def cancel(self) -> None:
            cancelled.set()

    engine = one.open(mover=Long, heartbeat=True)
    engine.settings = replace(engine.settings, lease_seconds=0.3)
    eof = engine.run()
    assert (eof.status, eof.exit_code) == ("lost", 4)
    assert one.statuses("a") == ["start"]


# ---------------------------------------------------------------- reset


def test_a_reset_finishes_the_open_slice_first(one: Pipeline) -> None:
    one.run(max_rows=2)
    broken_off(one)
    intent = one.state().intent
    assert intent is not None
    eof = one.open().reset(["a"])
    assert (eof.status, eof.exit_code) == ("complete", 0)
    assert [(m.number, m.reason, m.mark is None) for m in one.heard(StateChanged)] == [
        (2, "advance", False),
        (3, "reset", True),
    ]
    assert one.heard(StateChanged)[0].slice_id == intent.id
    state = one.state()
    assert (state.rows, state.reset_wanted, state.intent) == (0, False, None)
    assert one.delivered() == [1, 2, 3, 4]
    one.run()
    assert one.delivered() == [1, 1, 2, 2, 3, 3, 4, 4, 5]


def broken_off(pipeline: Pipeline) -> None:
    """A run that leaves its slice open."""

    class Failing(LoopMover):
        def move(self, reader: Any, writer: Any, parts: Any) -> Any:
            raise StreamFailed("the worker died", next_step="run again")

    assert pipeline.open(mover=Failing).run().exit_code == 1


def test_a_reset_at_the_beginning_does_nothing(one: Pipeline) -> None:
    eof = one.open().reset(["a"])
    assert eof.exit_code == 0
    assert one.logs() == ["is at its beginning already"]
    one.run()
    one.open().reset(["a"])
    version = one.state().version
    one.open().reset(["a"])
    assert one.state().version == version


def test_a_reset_touches_only_its_stream(three: Pipeline) -> None:
    three.run()
    before = three.state("b")
    three.open().reset(["a"])
    assert three.state("b") == before
    three.run()
    assert three.delivered("a") == sorted([1, 2, 3, 4, 5] * 2)
    assert three.delivered("b") == [1, 2, 3]


def test_a_reset_that_was_cut_short_is_carried_out_by_the_next_run(one: Pipeline) -> None:
    one.run()

    def die() -> None:
        raise Crashed

    with pytest.raises(Crashed):
        one.open(At("engine.reset_wanted", die)).reset(["a"])
    assert one.state().reset_wanted
    one.run()
    assert one.delivered() == sorted([1, 2, 3, 4, 5] * 2)


def test_a_reset_of_a_stream_that_cannot_finish_its_slice_waits(three: Pipeline) -> None:
    three.run(only=["a"])
    three.source = Breaking(three.rows, "reading", StreamFailed("locked", next_step="unlock"))
    three.run(only=["b"])
    eof = three.open().reset(["b"])
    assert (eof.exit_code, eof.reason) == (1, "failed: b")
    assert three.state("b").reset_wanted
    three.source = MemorySource(three.rows)
    three.run()
    assert [m.reason for m in three.heard(StateChanged, "b")] == ["advance", "reset", "advance", "advance"]


def test_a_reset_that_waits_is_void_once_recover_has_led_to_the_beginning(three: Pipeline) -> None:
    three.source = Breaking(three.rows, "reading", StreamFailed("locked", next_step="unlock"))
    three.run(only=["b"])
    three.open().reset(["b"])
    three.open().recover(["b"])
    three.source = MemorySource(three.rows)
    assert three.run().exit_code == 0
    assert three.delivered("b") == [1, 2, 3], "there was nothing to reset"


# ---------------------------------------------------------------- recover


def test_recover_sets_a_lost_store_to_what_the_sink_holds(three: Pipeline) -> None:
    three.run(max_rows=6)
    delivered = {stream: three.delivered(stream) for stream in "abc"}
    three.store.lose()
    assert three.run().exit_code == 1
    assert {stream: three.delivered(stream) for stream in "abc"} == delivered
    eof = three.open().recover(["a", "b", "c"])
    assert eof.exit_code == 0
    assert {m.reason for m in three.heard(StateChanged)} == {"recover"}
    assert three.run().exit_code == 0
    assert [three.delivered(stream) for stream in "abc"] == [[1, 2, 3, 4, 5], [1, 2, 3], [1]]


def test_recover_from_a_sink_that_is_gone_delivers_everything_again(one: Pipeline) -> None:
    one.run()
    shutil.rmtree(one.out)
    assert one.run().exit_code == 1
    one.open().recover(["a"])
    (message,) = one.heard(StateChanged)
    assert (message.number, message.slice_id, message.mark) == (0, "", None)
    state = one.state()
    assert (state.last, state.intent, state.stopped, state.rows) == (None, None, None, 0)
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5]


def test_recover_withdraws_what_cannot_be_made_whole(one: Pipeline) -> None:
    one.run()
    data = os.path.join(one.out, "a")
    newest = [name for name in os.listdir(data) if name.startswith("00000003")]
    os.unlink(os.path.join(data, newest[0]))
    assert one.run().exit_code == 1
    assert one.error("a").stopped
    one.open().recover()
    assert [text.split(" to ")[0] for text in one.logs()] == ["slice 3 was withdrawn"]
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5]


def test_recover_where_all_is_well_changes_no_rows(one: Pipeline) -> None:
    one.run()
    last = one.state().last
    assert one.open().recover(["a"]).exit_code == 0
    assert one.state().last == last
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5]


def test_an_error_of_the_store_ends_the_run_as_a_message(one: Pipeline) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise PenstockError("the store's disk is full", next_step="free some space")

    one.store.start_run = fail  # type: ignore[method-assign]  # a store in trouble
    eof = one.run()
    assert (eof.status, eof.exit_code, eof.reason) == ("failed", 1, "the store's disk is full")


def test_limits_of_one_call_do_not_last(one: Pipeline) -> None:
    assert one.open().run(Limits(max_rows=1)).has_more
    assert not one.open().run().has_more

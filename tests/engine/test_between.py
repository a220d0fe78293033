"""What comes between: signals, a lease that another holds or takes, and an operator's reset and recover."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.core.messages import Log, StateChanged, StepDone
from penstock.core.slices import Part, Receipt
from penstock.errors import ConnectionFailed, StoreRefused, StreamFailed
from penstock.ports import Owner, Reader, Writer
from tests.engine.pipeline import PIPELINE, At, Breaking, Pipeline, broken_off, rows
from tests.engine.processes import Crashed
from tests.harness.doubles import Clock, LoopMover, MemorySource

SIGNALS = {2: 130, 15: 143}


@pytest.fixture
def one(tmp_path: Path) -> Pipeline:
    """One stream `a` of five rows, two a slice."""
    return Pipeline(str(tmp_path), {"a": rows(5)})


@pytest.fixture
def three(tmp_path: Path) -> Pipeline:
    return Pipeline(str(tmp_path), {"a": rows(5), "b": rows(3), "c": rows(1)})


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
    assert eof.next_step == "run the same command again to resume"
    assert one.statuses("a") == ["start"], "a move that was cancelled on request is no failure of the stream"
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


class CountingMover(LoopMover):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = self.moves = self.closed = 0

    def begin(self) -> None:
        self.begun += 1

    def move(self, reader: Reader, writer: Writer, parts: Sequence[Part]) -> Sequence[Receipt]:
        self.moves += 1
        return super().move(reader, writer, parts)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("point", ["engine.leased", "gate.compared", "gate.planned", "gate.intended", "gate.asked"])
def test_a_signal_before_the_first_move_prevents_it(one: Pipeline, point: str) -> None:
    movers: list[CountingMover] = []

    def mover() -> CountingMover:
        movers.append(CountingMover())
        return movers[-1]

    probe = At(point, lambda: one.engine.stop(2))
    eof = one.open(probe, mover=mover).run()
    assert (eof.status, eof.exit_code) == ("interrupted", 130)
    assert one.delivered() == []
    assert [(each.begun, each.moves, each.cancelled, each.closed) for each in movers] == [(1, 0, True, 1)], (
        "Spark, which the look had begun to start, is given up"
    )
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


@pytest.mark.parametrize(("replaced", "code"), [(True, 4), (False, 3)])
def test_a_connection_that_was_cut_while_the_run_was_replaced(one: Pipeline, replaced: bool, code: int) -> None:
    """The server ends the transaction of a frozen process: what counts then is who goes on."""

    def cut() -> None:
        if replaced:
            now = one.clock.now()
            one.store.acquire(PIPELINE, Owner("other", "there", 77), now=now, ttl=60, gone=lambda _: True)
        raise ConnectionFailed("the connection was lost", next_step="see that the server is up")

    eof = one.run(At("gate.asked", cut))
    assert eof.exit_code == code
    assert ("was replaced by process 77 on there" in str(eof.reason)) is replaced


@pytest.mark.parametrize("point", ["gate.compared", "gate.intended", "gate.moved", "gate.committed"])
def test_a_run_that_was_replaced_says_so_and_changes_nothing(one: Pipeline, point: str) -> None:
    def replaced() -> None:
        now = one.clock.now()
        one.store.acquire(PIPELINE, Owner("other", "there", 77), now=now, ttl=60, gone=lambda _: True)

    eof = one.run(At(point, replaced))
    assert (eof.status, eof.exit_code, eof.has_more) == ("lost", 4, True)
    assert eof.reason == (
        "this run sent no heartbeat for longer than its lease (frozen or cut off) and was replaced by process 77 on "
        "there; "
        "the other run continued from the open slice, and rows that this run had staged were not delivered twice"
    )
    assert eof.safe == "Nothing was lost and nothing delivered twice."
    assert eof.next_step == "none needed; `penstock status FILE` shows the progress of the other run"
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
            raise StreamFailed("the move was cancelled on request", next_step="run again")

        def cancel(self) -> None:
            cancelled.set()

    engine = one.open(mover=Long, heartbeat=True)
    engine.settings = replace(engine.settings, lease_seconds=0.3)
    eof = engine.run()
    assert (eof.status, eof.exit_code) == ("lost", 4)
    assert one.statuses("a") == ["start"]


class RealClock:
    """The machine's clock for spans of time, as the heartbeat waits by it."""

    def __init__(self) -> None:
        self.clock = Clock()

    def now(self) -> datetime:
        return self.clock.now()

    def elapsed(self) -> float:
        return time.monotonic()


@pytest.mark.parametrize("failure", ["known", "unknown", "blocked"])
def test_a_heartbeat_that_keeps_failing_ends_the_run_before_its_lease_is_over(one: Pipeline, failure: str) -> None:
    cancelled, released = threading.Event(), threading.Event()
    beats: list[float] = []
    plain = one.store.heartbeat

    def beat(lease: Any, *, now: Any, ttl: float) -> None:
        beats.append(time.monotonic())
        match failure:
            case "known":
                raise StoreRefused("the store is busy", next_step="end that process")
            case "unknown":
                raise ZeroDivisionError("a defect")
            case _:
                released.wait(60)
                plain(lease, now=now, ttl=ttl)

    class Long(LoopMover):
        def move(self, reader: Any, writer: Any, parts: Any) -> Any:
            one.store.heartbeat = beat  # type: ignore[method-assign]  # a store that no longer answers
            assert cancelled.wait(60)
            released.set()
            raise StreamFailed("the move was cancelled on request", next_step="run again")

        def cancel(self) -> None:
            cancelled.set()

    engine = one.open(mover=Long, heartbeat=True)
    engine.clock, engine.settings = RealClock(), replace(engine.settings, lease_seconds=1.2)
    eof = engine.run()
    assert cancelled.is_set()
    assert (eof.status, eof.exit_code, eof.has_more) == ("failed", 3, True)
    why = {"known": "the store is busy", "unknown": "ZeroDivisionError: a defect", "blocked": "it does not answer"}
    assert eof.reason is not None
    assert eof.reason.startswith("the lease could not be renewed for 1 s, and ends after 1.2 s: ")
    assert why[failure] in eof.reason
    assert eof.next_step == "see that the store answers, then run again"
    assert len(beats) > 1 or failure == "blocked", "a beat that fails is tried again"
    del one.store.heartbeat
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5]


def test_a_heartbeat_that_fails_once_is_reported_and_the_run_goes_on(one: Pipeline) -> None:
    plain, failed = one.store.heartbeat, threading.Event()
    again = threading.Event()

    def beat(lease: Any, *, now: Any, ttl: float) -> None:
        if not failed.is_set():
            failed.set()
            raise StoreRefused("the store is busy", next_step="end that process")
        plain(lease, now=now, ttl=ttl)
        again.set()

    class Long(LoopMover):
        def move(self, reader: Any, writer: Any, parts: Any) -> Any:
            one.store.heartbeat = beat  # type: ignore[method-assign]  # a store that is busy for a while
            assert again.wait(60)
            return super().move(reader, writer, parts)

    engine = one.open(mover=Long, heartbeat=True)
    engine.clock, engine.settings = RealClock(), replace(engine.settings, lease_seconds=3.0)
    eof = engine.run()
    assert eof.exit_code == 0
    warned = [log.text for log in one.heard(Log) if log.level == "warning"]
    assert warned == ["the lease could not be renewed at first: the store is busy; it is renewed again"]


# ---------------------------------------------------------------- what is said at the end


def test_a_failure_after_slices_that_were_delivered_says_where_the_mark_is(one: Pipeline) -> None:
    class Tiring(LoopMover):
        """Gives up after a number of slices."""

        def __init__(self, slices: int) -> None:
            super().__init__()
            self.slices = slices

        def move(self, reader: Any, writer: Any, parts: Any) -> Any:
            self.slices -= 1
            if self.slices < 0:
                raise StreamFailed("the worker died", next_step="run again")
            return super().move(reader, writer, parts)

    assert one.open(mover=lambda: Tiring(1)).run().exit_code == 1
    assert one.error("a").safe == "Nothing was lost: the mark is at slice 1, up to which everything was delivered."
    assert one.open(mover=lambda: Tiring(0)).run().exit_code == 1
    assert one.error("a").safe == "Nothing was lost: the mark has not moved."


def test_a_lost_connection_after_slices_that_were_delivered_says_where_the_marks_are(one: Pipeline) -> None:
    class Lost(MemorySource):
        last = 0

        def reading(self, slice_: Any) -> Any:
            if slice_.number > self.last:
                raise ConnectionFailed("the server is gone", next_step="see that it is up")
            return super().reading(slice_)

    for last, safe in ((0, "the mark has not moved"), (2, "the marks are where this run has brought them")):
        one.source = Lost(one.rows)
        one.source.last = last
        eof = one.run()
        assert (eof.exit_code, eof.safe) == (3, f"Nothing was lost: {safe}.")


def test_the_last_message_has_the_status_of_the_run_in_its_progress(one: Pipeline) -> None:
    one.store.acquire(PIPELINE, Owner("o", "there", 7), now=one.clock.now(), ttl=60, gone=lambda _: True)
    one.gone = False
    eof = one.run()
    assert (eof.status, eof.exit_code) == ("failed", 4)
    assert (eof.run_progress["status"], eof.request_progress["status"]) == ("failed", "failed")


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

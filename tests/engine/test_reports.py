"""What a run leaves behind for people who ask later: its last look, its failures, its day."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.core.messages import Log
from penstock.core.reports import WHOLE_RUN, Problem, RunReport
from penstock.errors import ConnectionFailed, InputError, StoreRefused, StreamFailed
from penstock.ports import Owner
from tests.engine.pipeline import PIPELINE, At, Pipeline, rows
from tests.harness.doubles import LoopMover
from tests.store.memory_store import MemoryStore

MISSING = Problem("a column is missing", "Nothing lost.", "add it")


class Failing(LoopMover):
    """Moves nothing."""

    def move(self, *_: Any) -> Any:
        raise StreamFailed("the disk is full", next_step="penstock run FILE")


@pytest.fixture
def two(tmp_path: Path) -> Pipeline:
    return Pipeline(str(tmp_path), {"a": rows(3), "b": rows(2)})


def times(pipeline: Pipeline) -> dict[str, int]:
    return {stream: failure.times for stream, failure in pipeline.store.failures(PIPELINE).items()}


def test_an_idle_run_leaves_when_it_looked_and_takes_no_lease(two: Pipeline) -> None:
    two.run()
    [before] = two.store.last_looks(PIPELINE)
    runs = two.store.runs(PIPELINE)
    two.clock.moment += timedelta(minutes=10)
    two.run()
    [look] = two.store.last_looks(PIPELINE)
    assert look.at - before.at >= timedelta(minutes=10)
    [day] = two.store.days(PIPELINE)
    assert (day.runs, day.idle, day.failed, day.rows, day.last) == (2, 1, 0, 5, look.at)
    assert two.store.runs(PIPELINE) == runs


def test_a_run_of_some_streams_has_not_looked_at_the_others(two: Pipeline) -> None:
    two.run()
    two.run(only=["b"])
    newest, before = two.store.last_looks(PIPELINE)
    assert (newest.streams, before.streams) == (("b",), None)


def test_failures_are_counted_until_the_stream_succeeds(two: Pipeline) -> None:
    for _ in range(2):
        assert two.open(mover=Failing).run().exit_code == 1
    failure = two.store.failures(PIPELINE)["a"]
    assert (failure.problem.what, failure.problem.next_step) == ("the disk is full", "penstock run FILE")
    assert failure.since < failure.at
    assert times(two) == {"a": 2, "b": 2}
    two.run(only=["a"])
    assert times(two) == {"a": 0, "b": 2}
    two.run()
    assert times(two) == {"a": 0, "b": 0}
    [day] = two.store.days(PIPELINE)
    assert (day.runs, day.failed, day.rows) == (4, 2, 5)


def test_a_stream_without_a_turn_has_not_succeeded(two: Pipeline) -> None:
    two.open(mover=Failing).run()
    eof = two.run(max_rows=1)
    assert eof.status == "limited"
    assert times(two)["b"] == 1


def test_an_idle_run_ends_a_failure_too(two: Pipeline) -> None:
    two.run()
    two.store.save_report(PIPELINE, RunReport(two.clock.now(), failed=True, problems={"a": MISSING}))
    assert times(two) == {"a": 1}
    two.run()
    assert times(two) == {"a": 0}


@pytest.mark.parametrize("error", [ConnectionFailed("no route", next_step="look"), InputError("x", next_step="y")])
def test_a_run_that_never_took_the_lease_is_known_too(
    two: Pipeline, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse() -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(two.source, "connect", refuse)
        for _ in range(3):
            assert two.run().exit_code in (2, 3)
    assert times(two) == {WHOLE_RUN: 3}
    assert two.store.last_looks(PIPELINE) == []
    [day] = two.store.days(PIPELINE)
    assert (day.runs, day.failed) == (3, 3)
    two.run()
    assert times(two) == {WHOLE_RUN: 0}


def test_a_connection_that_is_lost_in_the_middle_is_the_runs_own_failure(two: Pipeline) -> None:
    def lose() -> None:
        raise ConnectionFailed("the server is gone", next_step="see that it is up")

    assert two.run(At("gate.committed", lose)).exit_code == 3
    assert times(two) == {WHOLE_RUN: 1}


def test_a_pipeline_that_another_holds_is_no_failure(two: Pipeline) -> None:
    two.store.acquire(PIPELINE, Owner("other", "there", 7), now=two.clock.now(), ttl=60, gone=lambda _: False)
    two.gone = False
    assert two.run().exit_code == 4
    assert (times(two), two.store.days(PIPELINE)) == ({}, [])


def test_operators_commands_are_no_runs_and_end_failures(two: Pipeline) -> None:
    two.run()
    two.rows["a"].arrive(99)
    two.open(mover=Failing).run()
    assert times(two) == {"a": 1}
    two.open().recover(["a"])
    assert times(two) == {"a": 0}
    two.open().reset(["a"])
    two.open().undo(["a"])
    assert [run.verb for run in two.store.runs(PIPELINE)] == ["undo", "reset", "recover", "run", "run"]
    [day] = two.store.days(PIPELINE)
    assert day.runs == 2


def test_a_store_that_cannot_be_written_is_said_and_changes_nothing_about_the_run(two: Pipeline) -> None:
    class ReadOnly(MemoryStore):
        def save_report(self, pipeline: str, report: RunReport) -> None:
            raise StoreRefused("the store is read-only", next_step="")

    two.store = ReadOnly()
    assert two.run().exit_code == 0
    assert two.run().exit_code == 0
    [warning] = [said for said in two.said if isinstance(said, Log)]
    assert (warning.level, warning.text) == (
        "warning",
        "`penstock status` will not show this run: the store is read-only",
    )

"""Rows that someone keeps from being read: told in every run, also when nothing moves, and kept in its record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.messages import Log, RowsRemaining, StateChanged
from penstock.ports import Budget, Planned, Remaining
from tests.engine.pipeline import PIPELINE, Pipeline, rows
from tests.harness.doubles import LoopMover, MemorySource


class Holding(MemorySource):
    """Someone holds back what lies above a place; `note`: and the mark must take note of it."""

    def __init__(self, streams: Any, upto: int, *, warning: str | None = None, note: str | None = None) -> None:
        super().__init__(streams)
        self.upto, self.warning, self.note = upto, warning, note
        self.asked = 0

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        arrived = self.streams[stream].arrived
        at = after.document["place"] if after else 0
        if arrived == at:
            return super().ceiling(stream, content, run, after)
        return {"place": min(arrived, self.upto), "held": arrived > self.upto}

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        planned = super().plan(stream, content, after, ceiling, budget)
        if planned or not self.note or not ceiling.get("held"):
            return planned
        at: Any = after.document if after else {"place": 0}
        return None if at.get("note") == self.note else Planned(Mark.of({**at, "note": self.note}), rows=0)

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        self.asked += 1
        found = super().remaining(stream, content, after, ceiling)
        if not ceiling.get("held"):
            return found
        held = self.streams[stream].arrived - self.upto
        return Remaining(found.rows, found.exact, held, "pid 7", f"up to {self.upto} (proven)", True, self.warning)


@pytest.fixture
def one(tmp_path: Path) -> Pipeline:
    return Pipeline(str(tmp_path), {"a": rows(5)})


def held(pipeline: Pipeline) -> list[tuple[int | None, int | None, str | None]]:
    return [(said.rows, said.held_back, said.blocker) for said in pipeline.heard(RowsRemaining)]


def recorded(pipeline: Pipeline) -> dict[str, Any]:
    [run, *_] = pipeline.store.runs(PIPELINE)
    found: dict[str, Any] = json.loads(run.streams["a"])
    return found


def test_what_is_held_back_is_told_with_every_slice_and_at_the_end(one: Pipeline) -> None:
    one.source = Holding(one.rows, 3)
    eof = one.run()
    assert (eof.status, eof.exit_code, eof.has_more) == ("complete", 0, False)
    assert one.delivered() == [1, 2, 3]
    assert held(one) == [(3, 2, "pid 7"), (1, 2, "pid 7"), (0, 2, "pid 7")]
    assert {(said.horizon, said.proven) for said in one.heard(RowsRemaining)} == {("up to 3 (proven)", True)}
    assert one.statuses("a")[-1] == "complete"


def test_a_run_that_can_read_nothing_tells_it_too_and_leaves_it_in_its_record(one: Pipeline) -> None:
    one.source = Holding(one.rows, 0)
    made: list[LoopMover] = []

    def mover() -> LoopMover:
        made.append(LoopMover())
        return made[-1]

    eof = one.open(mover=mover).run()
    assert (eof.status, eof.exit_code) == ("complete", 0)
    assert held(one) == [(0, 5, "pid 7")]
    assert one.heard(StateChanged) == []
    assert made == []
    found = recorded(one)
    assert (found["held_back"], found["blocker"]) == (5, "pid 7")
    assert (found["horizon"], found["proven"]) == ("up to 0 (proven)", True)


def test_once_it_is_over_nothing_of_it_is_left(one: Pipeline) -> None:
    one.source = Holding(one.rows, 0)
    one.run()
    one.source = Holding(one.rows, 9)
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5]
    assert {blocker for _, _, blocker in held(one)} == {None}
    assert recorded(one)["blocker"] is None


def test_nothing_new_asks_nothing_and_records_nothing(one: Pipeline) -> None:
    source = one.source = Holding(one.rows, 9)
    one.run()
    asked, store = source.asked, one.kept()
    assert one.run().exit_code == 0
    assert one.heard(RowsRemaining) == []
    assert source.asked == asked
    assert one.kept() == store


def test_a_warning_is_said_once_in_a_run(one: Pipeline) -> None:
    one.source = Holding(one.rows, 3, warning="pid 7 has been there for an hour")
    one.run()
    said = [(log.level, log.stream, log.text) for log in one.heard(Log)]
    assert said == [("warning", "a", "pid 7 has been there for an hour")]


def test_a_slice_that_only_takes_note_needs_no_mover(one: Pipeline) -> None:
    one.source = Holding(one.rows, 0, note="waits for pid 7")
    made: list[LoopMover] = []

    def mover() -> LoopMover:
        made.append(LoopMover())
        return made[-1]

    assert one.open(mover=mover).run().exit_code == 0
    assert made == []
    [changed] = one.heard(StateChanged)
    assert (changed.rows, changed.reason) == (0, "advance")
    state = one.state()
    assert state.last
    assert state.last.mark == Mark.of({"place": 0, "note": "waits for pid 7"})
    # It is in the sink too, and the next run has nothing to take note of.
    one.open(mover=mover).run()
    assert one.heard(StateChanged) == []
    one.source = MemorySource(one.rows)
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5]

"""Settling before the first plan, and an operator's rewind: what is read again, what must not be removed meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.core.marks import Mark
from penstock.core.messages import Log, StateChanged, StepDone
from penstock.core.slices import Kind
from penstock.errors import StreamFailed
from penstock.ports import Budget, Planned
from tests.engine.pipeline import PIPELINE, At, Breaking, Pipeline, broken_off, rows
from tests.engine.processes import Crashed
from tests.harness.doubles import MemorySource


def at(place: int) -> Mark:
    return Mark.of({"place": place})


def die() -> None:
    raise Crashed


@pytest.fixture
def one(tmp_path: Path) -> Pipeline:
    """One stream `a` of five rows, two a slice."""
    return Pipeline(str(tmp_path), {"a": rows(5)})


@pytest.fixture
def three(tmp_path: Path) -> Pipeline:
    return Pipeline(str(tmp_path), {"a": rows(5), "b": rows(3), "c": rows(1)})


# ---------------------------------------------------------------- settling


class Telling(MemorySource):
    """Remembers what it is asked, in order; settling may bring rows."""

    def __init__(self, streams: Any, *, lines: Sequence[str] = (), brings: int = 0) -> None:
        super().__init__(streams)
        self.lines, self.brings = lines, brings
        self.asked: list[Any] = []

    def content(self, stream: str) -> Any:
        self.asked.append("content")
        return super().content(stream)

    def prepare(self, stream: str, content: Any, last: Any) -> Sequence[str]:
        self.asked.append(("prepare", last.mark if last else None))
        super().prepare(stream, content, last)
        for _ in range(self.brings):
            self.streams[stream].arrive(99)
        return self.lines

    def ceiling(self, stream: str, content: Any, run: str, after: Any = None) -> Any:
        self.asked.append("ceiling")
        return super().ceiling(stream, content, run, after)

    def plan(self, stream: str, content: Any, after: Any, ceiling: Any, budget: Budget) -> Planned | None:
        self.asked.append("look" if budget.look else "plan")
        return super().plan(stream, content, after, ceiling, budget)

    def reading(self, slice_: Any) -> Any:
        self.asked.append("reading")
        return super().reading(slice_)


def test_the_source_prepares_once_and_is_then_asked_anew(one: Pipeline) -> None:
    one.source = source = Telling(one.rows)
    assert one.run(max_rows=3).has_more
    assert source.asked == [
        *("content", "ceiling", "look"),
        *(("prepare", None), "content", "ceiling", "plan", "reading"),
        # Its columns may have changed meanwhile.
        *("plan", "content", "reading"),
        "look",
    ]


def test_a_source_learns_of_every_advance_with_the_number_of_the_slice(one: Pipeline) -> None:
    one.open().run()
    assert one.source.released == [("a", 1, at(2)), ("a", 2, at(4)), ("a", 3, at(5))]
    one.open().run()
    assert len(one.source.released) == 3, "nothing moved"
    one.open().rewind(["a"], "2")
    assert one.source.released[3:] == [("a", 4, at(2))]


def test_a_look_prepares_nothing(one: Pipeline) -> None:
    one.run()
    one.source = source = Telling(one.rows)
    assert one.run().exit_code == 0
    assert source.asked == ["content", "ceiling", "look"]


def test_an_open_slice_is_finished_before_the_source_prepares(one: Pipeline) -> None:
    broken_off(one)
    one.source = source = Telling(one.rows)
    assert one.run().exit_code == 0
    assert source.asked[:5] == ["reading", "content", ("prepare", at(2)), "content", "ceiling"]
    assert source.prepared == [("a", at(2))]


def test_a_wanted_reset_is_carried_out_before_the_source_prepares(one: Pipeline) -> None:
    one.run()
    with pytest.raises(Crashed):
        one.open(At("engine.reset_wanted", die)).reset(["a"])
    one.source = source = Telling(one.rows)
    one.run()
    assert source.prepared == [("a", None)]


def test_what_settling_brings_is_read_in_the_same_run(one: Pipeline) -> None:
    one.source = Telling(one.rows, lines=["2 rows were given their place", "registered"], brings=2)
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5, 6, 7]
    said = [(message.level, message.text) for message in one.heard(Log, "a")]
    assert said == [("info", "2 rows were given their place"), ("info", "registered")]


def test_each_stream_prepares_for_itself(three: Pipeline) -> None:
    three.run()
    three.source = source = Telling(three.rows)
    three.rows["c"].arrive(9)
    three.run()
    assert source.prepared == [("a", at(5)), ("b", at(3)), ("c", at(1))]


def test_a_source_that_the_mark_was_not_made_in_prepares_nothing(one: Pipeline) -> None:
    one.run(max_rows=2)
    one.source = MemorySource(one.rows, identity="elsewhere")
    assert one.run().exit_code == 2
    assert one.source.prepared == []


def test_a_stream_that_cannot_prepare_fails_alone_and_plans_nothing(three: Pipeline) -> None:
    three.source = Breaking(three.rows, "prepare", StreamFailed("the table is locked", next_step="unlock it"))
    eof = three.run()
    assert (eof.exit_code, eof.reason) == (1, "failed: b")
    assert (three.delivered("a"), three.delivered("b"), three.delivered("c")) == ([1, 2, 3, 4, 5], [], [1])
    assert three.state("b").intent is None


# ---------------------------------------------------------------- a rewind


def test_what_comes_after_the_place_is_delivered_once_more(one: Pipeline) -> None:
    one.run()
    before = one.state()
    eof = one.open().rewind(["a"], "3")
    assert (eof.status, eof.exit_code, eof.has_more) == ("complete", 0, False)
    (moved,) = one.heard(StateChanged)
    assert (moved.number, moved.reason, moved.mark, moved.rows, moved.bytes) == (4, "rewind", '{"place":3}', 0, 0)
    state = one.state()
    assert state.last is not None
    assert (state.last.number, state.last.mark, state.intent) == (4, at(3), None)
    assert (state.rows, state.bytes, state.last_rows) == (before.rows, before.bytes, before.last_rows)
    assert [(c.version, c.reason) for c in one.store.history(PIPELINE, "a")][:2] == [(4, "rewind"), (3, "advance")]
    assert one.delivered() == [1, 2, 3, 4, 5]
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 4, 5, 5]
    assert one.state().rows == 7


def test_the_sinks_chain_tells_of_the_rewind(one: Pipeline) -> None:
    one.run()
    one.open().rewind(["a"], "3")
    held = one.sink().held("a")
    assert held is not None
    assert (held.position, held.rows, held.bytes) == (one.state().last, 0, 0)
    one.store.lose()
    assert one.open().recover(["a"]).exit_code == 0
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 4, 5, 5]


def test_back_to_the_beginning(one: Pipeline) -> None:
    one.run()
    one.open().rewind(["a"], "0")
    last = one.state().last
    assert last is not None
    assert last.mark is None
    one.run()
    assert one.delivered() == sorted([1, 2, 3, 4, 5] * 2)


def test_a_place_where_it_stands_already(one: Pipeline) -> None:
    one.open().rewind(["a"], "0")
    assert one.logs() == ["is at its beginning already"]
    one.run()
    version, disk = one.state().version, one.disk()
    assert one.open().rewind(["a"], "5").exit_code == 0
    assert one.logs() == ["is at that place already"]
    assert (one.state().version, one.disk()) == (version, disk)
    assert one.source.prepared == [("a", None)], "by the run alone"


@pytest.mark.parametrize(
    ("to", "reason"),
    [("6", "cannot rewind forward: place 6 comes after place 5"), ("yesterday", "'yesterday' is not a place")],
)
def test_a_place_that_the_source_refuses(one: Pipeline, to: str, reason: str) -> None:
    one.run()
    state, disk = one.state(), one.disk()
    eof = one.open().rewind(["a"], to)
    assert (eof.exit_code, eof.reason) == (2, "failed: a")
    assert (one.error("a").reason, one.error("a").next_step) == (reason, "give a number from 0 to 5")
    assert (one.state(), one.disk()) == (state, disk)
    assert one.store.holder(PIPELINE) is None


def test_only_its_streams_and_one_that_is_refused_does_not_keep_the_others(three: Pipeline) -> None:
    three.run()
    eof = three.open().rewind(["a", "c"], "2")
    assert (eof.exit_code, eof.reason) == (2, "failed: c")
    assert [m.stream for m in three.heard(StateChanged)] == ["a"]
    three.open().rewind(None, "1")
    assert [m.stream for m in three.heard(StateChanged)] == ["a", "b"]
    assert three.logs() == ["is at that place already"]
    assert three.open().rewind(["x"], "1").reason == "there is no stream 'x'"
    three.run()
    assert three.delivered("a") == [1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert (three.delivered("b"), three.delivered("c")) == ([1, 2, 2, 3, 3], [1])


def test_an_open_slice_is_finished_first(one: Pipeline) -> None:
    one.run(max_rows=2)
    broken_off(one)
    intent = one.state().intent
    assert intent is not None
    assert one.open().rewind(["a"], "1").exit_code == 0
    assert [(m.number, m.reason) for m in one.heard(StateChanged)] == [(2, "advance"), (3, "rewind")]
    assert one.heard(StateChanged)[0].slice_id == intent.id
    one.run()
    assert one.delivered() == [1, 2, 2, 3, 3, 4, 4, 5]


def test_an_open_slice_that_cannot_be_finished_keeps_the_mark(three: Pipeline) -> None:
    three.source = Breaking(three.rows, "reading", StreamFailed("locked", next_step="unlock"))
    three.run(only=["b"])
    before = three.state("b")
    assert three.open().rewind(["b"], "0").exit_code == 1
    assert three.state("b") == before


def test_a_wanted_reset_goes_before_a_rewind(one: Pipeline) -> None:
    one.run()
    with pytest.raises(Crashed):
        one.open(At("engine.reset_wanted", die)).reset(["a"])
    assert one.open().rewind(["a"], "2").exit_code == 0
    assert [m.reason for m in one.heard(StateChanged)] == ["reset"]
    assert one.logs() == ["is at its beginning already"]


def test_a_sink_that_disagrees_stops_it(one: Pipeline) -> None:
    one.run()
    shutil.rmtree(one.out)
    assert one.open().rewind(["a"], "1").exit_code == 1
    assert one.error("a").stopped
    assert one.state().stopped is not None
    assert one.source.prepared == [("a", None)], "nothing is let go of, and nothing held, on a mark that may be wrong"


def test_a_signal_ends_it_between_two_streams(three: Pipeline) -> None:
    three.run()
    eof = three.open(At("gate.advanced", lambda: three.engine.stop(15))).rewind(None, "1")
    assert (eof.status, eof.exit_code) == ("interrupted", 143)
    assert [m.stream for m in three.heard(StateChanged)] == ["a"]


# ---------------------------------------------------------------- what lies between may not be removed meanwhile


def test_the_source_prepares_at_the_place_before_the_mark_goes_back(one: Pipeline) -> None:
    one.run()
    seen: list[tuple[Any, Any, Any]] = []

    def look() -> None:
        state = one.state()
        assert state.last is not None
        seen.append((one.source.prepared[-1], state.intent, state.last.mark))

    one.open(At("gate.prepared", look)).rewind(["a"], "2")
    assert seen == [(("a", at(2)), None, at(5))]


def test_a_rewind_that_was_cut_short_is_finished_by_the_next_run_and_prepared_where_it_leads(one: Pipeline) -> None:
    one.run()
    with pytest.raises(Crashed):
        one.open(At("gate.intended", die)).rewind(["a"], "2")
    intent = one.state().intent
    assert intent is not None
    assert (intent.kind, intent.upto) == (Kind.REWIND, at(2))
    assert one.run().exit_code == 0
    assert next((m.step, m.resumed) for m in one.heard(StepDone)) == ("intend", True)
    assert [m.reason for m in one.heard(StateChanged)] == ["rewind", "advance", "advance"]
    assert one.source.prepared[-2:] == [("a", at(2)), ("a", at(2))]
    assert one.delivered() == [1, 2, 3, 3, 4, 4, 5, 5]


def test_a_rewind_that_was_cut_short_before_it_began_is_forgotten(one: Pipeline) -> None:
    one.run()
    with pytest.raises(Crashed):
        one.open(At("gate.prepared", die)).rewind(["a"], "2")
    one.rows["a"].arrive(6)
    assert one.run().exit_code == 0
    assert one.source.prepared[-2:] == [("a", at(2)), ("a", at(5))]
    assert one.delivered() == [1, 2, 3, 4, 5, 6]


def test_the_same_rewind_again_after_it_was_cut_short_changes_nothing_more(one: Pipeline) -> None:
    one.run()
    with pytest.raises(Crashed):
        one.open(At("gate.committed", die)).rewind(["a"], "2")
    assert one.open().rewind(["a"], "2").exit_code == 0
    assert [m.reason for m in one.heard(StateChanged)] == ["rewind"]
    assert one.logs() == ["is at that place already"]

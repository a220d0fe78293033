"""An operator's undo: where the mark goes, what is delivered again, what is refused, and a kill at every step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.core.history import HistoryLimits
from penstock.core.marks import Mark
from penstock.core.messages import StateChanged, StepDone, StreamStatus
from penstock.core.slices import Kind
from penstock.errors import StreamFailed
from penstock.ports import StreamInfo
from tests.engine.pipeline import PIPELINE, At, Breaking, Pipeline, broken_off, rows
from tests.engine.processes import Crashed
from tests.harness.doubles import MemorySource
from tests.store.memory_store import MemoryStore


def at(place: int) -> Mark:
    return Mark.of({"place": place})


def die() -> None:
    raise Crashed


@pytest.fixture
def one(tmp_path: Path) -> Pipeline:
    """One stream `a` of five rows, two a slice: versions 1, 2, 3 are the places 2, 4, 5."""
    made = Pipeline(str(tmp_path), {"a": rows(5)})
    made.run()
    return made


@pytest.fixture
def three(tmp_path: Path) -> Pipeline:
    made = Pipeline(str(tmp_path), {"a": rows(5), "b": rows(3), "c": rows(4)})
    made.run()
    return made


def mark(pipeline: Pipeline, stream: str = "a") -> Mark | None:
    last = pipeline.state(stream).last
    return last.mark if last else None


# ---------------------------------------------------------------- where it leads


def test_undo_of_an_advance_delivers_the_last_slice_again(one: Pipeline) -> None:
    before = one.state()
    eof = one.open().undo(["a"])
    assert (eof.status, eof.exit_code, eof.has_more) == ("complete", 0, False)
    (moved,) = one.heard(StateChanged)
    assert (moved.number, moved.reason, moved.mark, moved.rows, moved.bytes) == (4, "undo", '{"place":4}', 0, 0)
    state = one.state()
    assert state.last is not None
    assert (state.last.number, state.last.mark, state.intent) == (4, at(4), None)
    assert (state.rows, state.bytes, state.last_rows) == (before.rows, before.bytes, before.last_rows)
    assert [(c.version, c.reason) for c in one.store.history(PIPELINE, "a")][:2] == [(4, "undo"), (3, "advance")]
    assert one.delivered() == [1, 2, 3, 4, 5]
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5, 5]


def test_undo_to_a_version(one: Pipeline) -> None:
    assert one.open().undo(["a"], 1).exit_code == 0
    assert mark(one) == at(2)
    one.run()
    assert one.delivered() == [1, 2, 3, 3, 4, 4, 5, 5]


def test_undo_of_a_reset_brings_the_rows_delivered_back(one: Pipeline) -> None:
    before = one.state()
    assert one.open().reset(["a"]).exit_code == 0
    assert (one.state().rows, one.state().bytes) == (0, 0)
    assert one.open().undo(["a"]).exit_code == 0
    state = one.state()
    assert (state.rows, state.bytes) == (before.rows, before.bytes)
    one.rows["a"].arrive(6)
    one.run()
    assert one.state().rows == before.rows + 1


def test_a_version_that_is_no_longer_kept(tmp_path: Path) -> None:
    one = Pipeline(str(tmp_path), {"a": rows(60)}, store=MemoryStore(HistoryLimits(changes=20)))
    one.run()
    assert one.open().undo(["a"], 3).exit_code == 2
    (failed,) = [status for status in one.heard(StreamStatus) if status.reason]
    assert failed.reason == (
        "it cannot go back to version 3: it is no longer kept; the oldest version that is kept is 11"
    )
    assert one.open().undo(["a"], 11).exit_code == 0
    assert mark(one) == at(22)


def test_the_sinks_chain_tells_of_the_undo(one: Pipeline) -> None:
    one.open().undo(["a"])
    held = one.sink().held("a")
    assert held is not None
    assert (held.position, held.rows, held.bytes) == (one.state().last, 0, 0)
    one.store.lose()
    assert one.open().recover(["a"]).exit_code == 0
    one.run()
    assert one.delivered() == [1, 2, 3, 4, 5, 5]


@pytest.mark.parametrize("goes_back", [lambda e: e.reset(["a"]), lambda e: e.rewind(["a"], "1")])
def test_undo_of_a_reset_or_a_rewind_goes_on_where_it_stood(one: Pipeline, goes_back: Callable[[Any], Any]) -> None:
    goes_back(one.open())
    assert one.open().undo(["a"]).exit_code == 0
    assert mark(one) == at(5)
    one.rows["a"].arrive(6)
    one.run()
    assert one.delivered() == [1, 2, 3, 4, 5, 6]


def test_undo_of_a_reset_that_has_begun_to_read_again(one: Pipeline) -> None:
    one.open().reset(["a"])
    one.run(max_rows=2)
    assert one.open().undo(["a"], 3).exit_code == 0
    one.run()
    assert one.delivered() == [1, 1, 2, 2, 3, 4, 5]


def test_undo_of_an_undo_is_a_redo(one: Pipeline) -> None:
    one.open().undo(["a"])
    one.open().undo(["a"])
    assert mark(one) == at(5)
    one.open().undo(["a"])
    assert mark(one) == at(4)
    one.run()
    assert one.delivered() == [1, 2, 3, 4, 5, 5]


def test_a_version_where_it_stands_already(one: Pipeline) -> None:
    version, disk = one.state().version, one.disk()
    assert one.open().undo(["a"], 3).exit_code == 0
    assert one.logs() == ["is at that place already"]
    assert (one.state().version, one.disk()) == (version, disk)


def test_only_its_streams(three: Pipeline) -> None:
    before = three.state("b")
    assert three.open().undo(["a", "c"], 1).exit_code == 0
    assert three.state("b") == before
    three.run()
    assert three.delivered("a") == [1, 2, 3, 3, 4, 4, 5, 5]
    assert (three.delivered("b"), three.delivered("c")) == ([1, 2, 3], [1, 2, 3, 3, 4, 4])


# ---------------------------------------------------------------- what is refused


def refused(pipeline: Pipeline, version: int | None) -> tuple[str | None, str | None]:
    state, disk, prepared = pipeline.state(), pipeline.disk(), list(pipeline.source.prepared)
    eof = pipeline.open().undo(["a"], version)
    assert (eof.exit_code, eof.reason) == (2, "failed: a")
    assert (pipeline.state(), pipeline.disk(), pipeline.source.prepared) == (state, disk, prepared)
    assert pipeline.store.holder(PIPELINE) is None
    return pipeline.error("a").reason, pipeline.error("a").next_step


RESET = "`penstock state reset FILE --stream a` reads it again from the beginning"
LISTED = "`penstock state history FILE --stream a` lists them"


@pytest.mark.parametrize("version", [4, 99, -1])
def test_a_version_that_does_not_exist(one: Pipeline, version: int) -> None:
    assert refused(one, version) == (
        f"it cannot go back to version {version}: there is none; the newest is 3",
        LISTED,
    )


def test_the_beginning_is_for_a_reset(one: Pipeline) -> None:
    assert refused(one, 0) == ("it cannot go back to version 0: it was at its beginning then", RESET)
    one.open().reset(["a"])
    one.run(max_rows=2)
    assert refused(one, 4) == ("it cannot go back to version 4: it was at its beginning then", RESET)
    assert refused(one, None) == ("it cannot go back to version 4: it was at its beginning then", RESET)


def test_a_first_change_has_nothing_before_it(tmp_path: Path) -> None:
    one = Pipeline(str(tmp_path), {"a": rows(2)})
    assert refused(one, None) == (
        "it has not been changed yet, so there is nothing to undo",
        "run the pipeline: `penstock run FILE`",
    )
    one.run()
    assert refused(one, None) == ("it cannot go back to version 0: it was at its beginning then", RESET)


def test_a_mark_of_another_source_is_refused(one: Pipeline) -> None:
    one.source = MemorySource(one.rows, identity="elsewhere")
    assert refused(one, 1) == ("another source", "use the source the mark was made from")


def test_a_place_that_the_source_has_no_more_keeps_the_mark(three: Pipeline) -> None:
    three.source = Breaking(three.rows, "prepare", StreamFailed("gone by retention", next_step="reset it"))
    before = three.state("b")
    assert three.open().undo(["b"], 1).exit_code == 1
    assert three.error("b").reason == "gone by retention"
    assert three.state("b") == before


def test_a_stream_that_is_read_whole_in_every_run(one: Pipeline) -> None:
    class Whole(MemorySource):
        def catalog(self) -> list[StreamInfo]:
            return [StreamInfo("a", Kind.REFRESH)]

    one.source = Whole(one.rows)
    assert refused(one, None) == (
        "the stream is read in full in every run, so its mark cannot be moved back",
        "nothing needs to be undone: the next run replaces all rows",
    )


# ---------------------------------------------------------------- past a recover


def lose_last(pipeline: Pipeline) -> None:
    """The sink loses slice 3, and recover leads back to slice 2."""
    data = os.path.join(pipeline.out, "a")
    for name in os.listdir(data):
        if name.startswith("00000003"):
            os.unlink(os.path.join(data, name))
    pipeline.open().recover(["a"])
    assert mark(pipeline) == at(4)


def test_undo_of_a_recover_would_skip_what_the_sink_has_lost(one: Pipeline) -> None:
    lose_last(one)
    reason, step = refused(one, None)
    assert reason == (
        "it cannot go back to version 3: the recover at version 4 found the sink without that slice; "
        "its rows would be skipped"
    )
    assert step == "go on from where it is: `penstock run FILE`"
    one.run()
    assert refused(one, 3)[0] == reason
    assert one.delivered() == [1, 2, 3, 4, 5]


def test_what_the_sink_held_all_the_time_can_be_gone_back_to_past_a_recover(one: Pipeline) -> None:
    lose_last(one)
    assert one.open().undo(["a"], 1).exit_code == 0
    one.run()
    assert one.delivered() == [1, 2, 3, 3, 4, 4, 5]


def test_what_came_before_a_recover_that_led_ahead_is_not_known(one: Pipeline) -> None:
    one.rows["a"].arrive(6)
    copy = one.store.copy()
    one.run()
    one.store.restore(copy)
    one.open().recover(["a"])
    assert mark(one) == at(6)
    assert refused(one, 3)[0] == (
        "it cannot go back to version 3: the recover at version 4 does not tell whether the sink holds that slice"
    )
    one.store.lose()
    one.open().recover(["a"])
    assert refused(one, None)[1] == RESET


def test_a_recover_that_changed_nothing_is_no_wall(one: Pipeline) -> None:
    one.open().recover(["a"])
    assert one.open().undo(["a"]).exit_code == 0
    assert one.logs() == ["is at that place already"]
    assert one.open().undo(["a"], 2).exit_code == 0
    assert mark(one) == at(4)


# ---------------------------------------------------------------- what is open is finished first


def test_an_open_slice_is_finished_and_is_the_change_that_is_undone(one: Pipeline) -> None:
    one.rows["a"].arrive(6)
    broken_off(one)
    intent = one.state().intent
    assert intent is not None
    assert one.open().undo(["a"]).exit_code == 0
    assert [(m.number, m.reason) for m in one.heard(StateChanged)] == [(4, "advance"), (5, "undo")]
    assert one.heard(StateChanged)[0].slice_id == intent.id
    one.run()
    assert one.delivered() == [1, 2, 3, 4, 5, 6, 6]


def test_an_open_slice_that_cannot_be_finished_keeps_the_mark(three: Pipeline) -> None:
    three.rows["b"].arrive(4)
    three.source = Breaking(three.rows, "reading", StreamFailed("locked", next_step="unlock"))
    three.run(only=["b"])
    before = three.state("b")
    assert three.open().undo(["b"], 1).exit_code == 1
    assert three.state("b") == before


def test_a_wanted_reset_is_carried_out_and_is_the_change_that_is_undone(one: Pipeline) -> None:
    with pytest.raises(Crashed):
        one.open(At("engine.reset_wanted", die)).reset(["a"])
    assert one.open().undo(["a"]).exit_code == 0
    assert [m.reason for m in one.heard(StateChanged)] == ["reset", "undo"]
    assert mark(one) == at(5)


def test_a_sink_that_disagrees_stops_it(one: Pipeline) -> None:
    prepared = list(one.source.prepared)
    shutil.rmtree(one.out)
    assert one.open().undo(["a"]).exit_code == 1
    assert one.error("a").stopped
    assert one.state().stopped is not None
    assert one.source.prepared == prepared


def test_a_signal_ends_it_between_two_streams(three: Pipeline) -> None:
    eof = three.open(At("gate.advanced", lambda: three.engine.stop(15))).undo(None, 1)
    assert (eof.status, eof.exit_code) == ("interrupted", 143)
    assert [m.stream for m in three.heard(StateChanged)] == ["a"]


# ---------------------------------------------------------------- what lies between may not be removed meanwhile


def test_the_source_prepares_at_the_place_before_the_mark_goes_back(one: Pipeline) -> None:
    seen: list[tuple[Any, Any, Any]] = []
    look = At("gate.prepared", lambda: seen.append((one.source.prepared[-1], one.state().intent, mark(one))))
    one.open(look).undo(["a"], 1)
    assert seen == [(("a", at(2)), None, at(5))]


def test_the_source_lets_go_of_nothing_before_the_mark_goes_on(one: Pipeline) -> None:
    """Told of the place ahead and then killed, it could remove what a run from the old mark would read."""
    one.open().rewind(["a"], "1")
    prepared = list(one.source.prepared)
    with pytest.raises(Crashed):
        one.open(At("gate.intended", die)).undo(["a"])
    assert one.source.prepared == prepared
    assert one.run().exit_code == 0
    assert one.source.prepared[-1] == ("a", at(5))
    one.open().undo(["a"], 2)
    prepared = list(one.source.prepared)
    one.open().undo(["a"])
    assert (mark(one), one.source.prepared) == (at(5), prepared)


# ---------------------------------------------------------------- cut short


def test_an_undo_that_was_cut_short_is_finished_by_the_next_run(one: Pipeline) -> None:
    with pytest.raises(Crashed):
        one.open(At("gate.intended", die)).undo(["a"], 1)
    intent = one.state().intent
    assert intent is not None
    assert (intent.kind, intent.upto) == (Kind.UNDO, at(2))
    assert one.run().exit_code == 0
    assert next((m.step, m.resumed) for m in one.heard(StepDone)) == ("intend", True)
    assert [m.reason for m in one.heard(StateChanged)] == ["undo", "advance", "advance"]
    assert one.delivered() == [1, 2, 3, 3, 4, 4, 5, 5]


def test_an_undo_that_was_cut_short_before_it_began_is_forgotten(one: Pipeline) -> None:
    with pytest.raises(Crashed):
        one.open(At("gate.prepared", die)).undo(["a"], 1)
    one.rows["a"].arrive(6)
    assert one.run().exit_code == 0
    assert one.delivered() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("version", [None, 2])
@pytest.mark.parametrize("point", ["gate.intended", "gate.moved", "gate.committed"])
def test_the_same_undo_again_after_it_was_cut_short_is_no_redo(one: Pipeline, point: str, version: int | None) -> None:
    with pytest.raises(Crashed):
        one.open(At(point, die)).undo(["a"], version)
    assert one.open().undo(["a"], version).exit_code == 0
    assert [m.reason for m in one.heard(StateChanged)] == ["undo"]
    assert mark(one) == at(4)
    one.run()
    assert one.delivered() == [1, 2, 3, 4, 5, 5]

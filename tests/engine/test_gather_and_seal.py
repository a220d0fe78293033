"""Gather and seal, step by step: what is read again, what is not, and what an operator has to decide."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.core.content import Content
from penstock.core.messages import StepDone, WorkProgress
from penstock.core.slices import following
from penstock.engine.look import Look
from penstock.errors import StreamStopped
from penstock.ports import Context, NoProbe, Probe
from tests.engine.machine import MEMORY
from tests.engine.processes import Process
from tests.engine.sealed_world import SealedWorld
from tests.engine.spooling import SealedSink, WithdrawingSink
from tests.engine.world import PIPELINE, STREAM

#: what one slice passes through
POINTS = (
    "engine.leased",
    "gate.started",
    "gate.compared",
    "gate.prepared",
    "gate.planned",
    "gate.gathered",
    "gate.spooled",
    "gate.intended",
    "gate.asked",
    "gate.moved",
    "gate.sealed",
    "gate.seal_kept",
    "sealed.piece_sent",
    "gate.committed",
    "gate.advanced",
    "gate.swept",
    "engine.released",
)
ONCE = ("engine.leased", "gate.prepared", "engine.released")
CHANGES = (
    "nothing",
    "a row arrives",
    "a row of the open slice changes",
    "reset",
    "rewind",
    "undo",
    "someone else runs first",
    "it wakes up after someone else",
)


class Foreign(SealedWorld):
    """A receiver that cannot withdraw anything."""

    def sink(self, probe: Probe) -> WithdrawingSink:
        context = Context(PIPELINE, self.folder, probe, spools=self.spools)
        return SealedSink(self.receiver, context)  # type: ignore[return-value]  # less than the world's own


@pytest.fixture(params=[True, False], ids=["gathered", "read in place"])
def world(request: pytest.FixtureRequest) -> Iterator[SealedWorld]:
    yield from made(SealedWorld, request.param)


@pytest.fixture
def gathered() -> Iterator[SealedWorld]:
    yield from made(SealedWorld, True)


@pytest.fixture
def foreign() -> Iterator[SealedWorld]:
    yield from made(Foreign, True)


def made(kind: type[SealedWorld], gathers: bool) -> Iterator[SealedWorld]:
    folder = tempfile.mkdtemp(prefix="sealed-", dir=MEMORY)
    world = kind(folder, gathers=gathers)
    yield world
    world.end()
    shutil.rmtree(folder)


def arrive(world: SealedWorld, count: int) -> None:
    for _ in range(count):
        world.rows.arrive(world.rows.arrived + 1)


def go_to(world: SealedWorld, point: str, nth: int = 1, process: Process | None = None) -> Process:
    process = process or world.start()
    times = int(process.point == point)
    while times < nth and not process.ended:
        times += process.step() == point
        world.check()
    assert process.ended or process.point == point
    return process


def kill_at(world: SealedWorld, point: str, nth: int = 1) -> None:
    process = go_to(world, point, nth)
    assert not process.ended, f"never came to {point}"
    world.crash(process)


def places(world: SealedWorld) -> list[int]:
    return sorted(place for _, place in world.delivered())


def recover(world: SealedWorld, verb: str) -> str:
    """Why a recover stopped; empty: it did not."""
    world.stopped = None
    world.start(verb).run()
    world.processes = []
    return str(vars(world)["stopped"] or "")


def test_what_a_slice_passes_through(gathered: SealedWorld) -> None:
    arrive(gathered, 1)
    process = gathered.start()
    seen = [process.point]
    while process.step():
        seen.append(process.point)
    # The second turn finds nothing new.
    assert list(dict.fromkeys(seen)) == list(POINTS)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_crash_or_freeze(world: SealedWorld, point: str, nth: int, change: str) -> None:
    if not world.gathers and point in ("gate.gathered", "gate.spooled"):
        point = "gate.intended"
    arrive(world, 5)
    process = go_to(world, point, nth)
    assert not process.ended or (nth == 2 and point in ONCE)
    frozen = change == "it wakes up after someone else"
    if not process.ended and not frozen:
        world.crash(process)
    if change == "a row arrives":
        arrive(world, 1)
    elif change == "a row of the open slice changes":
        last = world.store.state(PIPELINE, STREAM).last
        mark = last.mark.document["place"] if last and last.mark else 0
        if mark + 1 in world.rows.places:
            world.rows.update(mark + 1)
    elif change in ("reset", "rewind", "undo"):
        world.start(change, 1).run()
        world.processes = []
    elif change == "someone else runs first" or frozen:
        world.start().run()
        arrive(world, 1)
        if not process.ended:
            process.run() if frozen else None
        world.processes = []
    world.check()
    world.finish_without_faults(None)
    assert not world.stopped


def test_an_answer_that_is_lost(world: SealedWorld) -> None:
    arrive(world, 4)
    process = go_to(world, "sealed.piece_sent")
    process.lose_answer()
    process.run()
    world.processes = []
    world.finish_without_faults(None)
    assert places(world) == [1, 2, 3, 4]


def test_a_sealed_slice_is_not_moved_again(world: SealedWorld) -> None:
    arrive(world, 2)
    kill_at(world, "sealed.piece_sent")
    seal = world.store.state(PIPELINE, STREAM).seal
    assert seal is not None
    world.rows.update(1)
    process = world.start()
    seen = []
    while process.step():
        seen.append(process.point)
    assert "gate.moved" not in seen[: seen.index("gate.committed")]
    assert {each.position.number for each in world.receiver.taken[STREAM]} == {1, 2}
    assert places(world)[:2] == [1, 2], "the pieces that were sealed, not what is there now"


def test_a_replay_reads_the_spool_and_never_the_source(gathered: SealedWorld) -> None:
    arrive(gathered, 2)
    kill_at(gathered, "gate.intended")
    gathered.rows.update(1)
    gathered.finish_without_faults(None)
    assert places(gathered) == [1, 2, 3]


def test_a_slice_that_is_gathered_again_is_another_slice(gathered: SealedWorld) -> None:
    arrive(gathered, 2)
    kill_at(gathered, "gate.intended")
    first = gathered.store.state(PIPELINE, STREAM).intent
    assert first is not None
    assert first.spool
    same = {"pipeline": PIPELINE, "stream": STREAM, "upto": first.upto, "content": Content(())}
    ids = {following(None, **same, spool=spool).id for spool in ("", "a", "b")}  # type: ignore[arg-type]  # few kinds
    assert len(ids) == 3


def test_a_gathered_spool_that_is_gone_stops_the_stream_and_recover_drops_the_slice(gathered: SealedWorld) -> None:
    arrive(gathered, 2)
    kill_at(gathered, "gate.intended")
    gathered.lose_spools()
    gathered.start().run()
    assert "its gathered spool" in (gathered.stopped or "")
    assert gathered.store.state(PIPELINE, STREAM).stopped
    assert gathered.store.state(PIPELINE, STREAM).intent is not None
    gathered.recover()
    assert gathered.store.state(PIPELINE, STREAM).intent is None
    gathered.finish_without_faults(None)
    assert places(gathered) == [1, 2]


def test_a_damaged_spool_is_not_read(gathered: SealedWorld) -> None:
    arrive(gathered, 2)
    kill_at(gathered, "gate.intended")
    [page, *_] = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(gathered.folder)
        for name in names
        if name.startswith("page-")
    ]
    with open(page, "a") as file:
        file.write(" ")
    gathered.tampered_store = True
    gathered.start().run()
    assert "gone or damaged" in (gathered.stopped or "")


@pytest.mark.parametrize("pieces", [1, 3])
def test_the_receiver_withdraws_a_sealed_slice_whose_spool_is_gone(world: SealedWorld, pieces: int) -> None:
    arrive(world, 4)
    kill_at(world, "sealed.piece_sent", pieces)
    world.lose_spools()
    world.start().run()
    done = pieces == 3
    assert bool(world.stopped) == (not done)
    world.recover()
    assert world.receiver.opened(STREAM) is None
    world.finish_without_faults(None)
    assert not world.stopped
    assert places(world) == [1, 2, 3, 4]


def test_a_sealed_spool_is_used_where_the_store_has_lost_its_seal(world: SealedWorld) -> None:
    arrive(world, 4)
    world.start().run()
    arrive(world, 2)
    copy = world.store.copy()
    kill_at(world, "sealed.piece_sent")
    world.store.restore(copy)
    world.tampered_store = True
    world.rows.update(5)
    world.start().run()
    assert world.stopped, "the receiver has a slice open that the store does not know"
    world.recover()
    state = world.store.state(PIPELINE, STREAM)
    assert state.seal is not None
    world.finish_without_faults(None)
    assert not world.stopped
    assert places(world)[:6] == [1, 2, 3, 4, 5, 6]


def test_a_receiver_that_cannot_withdraw_needs_the_operators_word(foreign: SealedWorld) -> None:
    arrive(foreign, 2)
    kill_at(foreign, "sealed.piece_sent")
    foreign.lose_spools()
    foreign.start().run()
    assert "slice 1, piece 0 (1 rows)" in (foreign.stopped or "")
    refused = recover(foreign, "recover")
    assert "cannot withdraw pieces" in refused
    assert "slice 1, piece 0 (1 rows)" in refused
    assert foreign.store.state(PIPELINE, STREAM).seal is not None, "it is never simply dropped"
    assert recover(foreign, "recover, drop sealed") == ""
    assert foreign.store.state(PIPELINE, STREAM).intent is None


def test_a_look_asks_for_what_an_open_slice_needs(world: SealedWorld) -> None:
    """The seal where it is sealed; else the spool, or the source itself; nothing once the sink holds it."""

    def look() -> None:
        state = world.store.state(PIPELINE, STREAM)
        source, sink = world.source(NoProbe()), world.sink(NoProbe())
        (info,) = source.catalog()
        assert state.intent is not None
        Look(PIPELINE, info, source, sink, "look", spools=world.spools).check_open_slice(state, state.intent)

    arrive(world, 4)
    kill_at(world, "gate.intended")
    look()
    if world.store.state(PIPELINE, STREAM).intent.spool:  # type: ignore[union-attr]  # it is open
        with kept_aside(world), pytest.raises(StreamStopped, match="its gathered spool"):
            look()
    kill_at(world, "sealed.piece_sent")
    look()
    with kept_aside(world), pytest.raises(StreamStopped, match="what was staged for it is gone"):
        look()
    kill_at(world, "gate.committed")
    with kept_aside(world):
        look()


@contextmanager
def kept_aside(world: SealedWorld) -> Iterator[None]:
    """Every spool is gone for a while."""
    copy = f"{world.folder}-copy"
    shutil.copytree(world.folder, copy)
    world.lose_spools()
    try:
        yield
    finally:
        shutil.rmtree(world.folder)
        shutil.move(copy, world.folder)


def test_seals_and_spools_are_swept_once_the_sink_holds_the_slice(world: SealedWorld) -> None:
    arrive(world, 5)
    kill_at(world, "sealed.piece_sent")
    assert any(os.walk(os.path.join(world.folder, "spools")))
    world.finish_without_faults(None)
    left = [name for _, folders, names in os.walk(os.path.join(world.folder, "spools")) for name in [*folders, *names]]
    assert left == [PIPELINE, STREAM]


def test_a_commit_that_takes_long_is_cancelled_and_finished_later(world: SealedWorld) -> None:
    arrive(world, 2)
    messages = world.messages
    process = go_to(world, "sealed.piece_sent")
    world.engines[process.name].stop(15)
    process.run()
    world.processes = []
    assert process.result.status == "interrupted"
    assert world.receiver.opened(STREAM) is not None
    work = [each for each in messages if isinstance(each, WorkProgress)]
    assert [(each.doing, each.done, each.total) for each in work] == [("delivering pieces", 1, 2)]
    world.finish_without_faults(None)
    assert places(world) == [1, 2]
    assert "seal" in {each.step for each in messages if isinstance(each, StepDone)}


def test_a_gather_that_fails_leaves_nothing_behind(gathered: SealedWorld) -> None:
    with pytest.raises(StreamStopped), gathered.spools.gather(STREAM, 1, "a"):
        raise StreamStopped("no", next_step="none")
    assert os.listdir(os.path.join(gathered.folder, "spools", PIPELINE, STREAM)) == []

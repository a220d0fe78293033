"""Mistakes one could make with the gather step, each made on purpose in the real code, and a scenario for each.

`gate_model.py` has no gather step: its slices are planned without reading. What it says of an intent and of the chain
holds for a gathered slice too, and these mistakes break it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.core.content import Content
from penstock.core.documents import canonical, digest
from penstock.core.slices import Part, Slice
from penstock.engine.gate import Gate
from penstock.links.spools import FolderSpools
from penstock.ports import Reading
from tests.engine.gathered_world import GatheredWorld
from tests.engine.mutants import Mutant, patched, registering
from tests.engine.processes import Process
from tests.engine.spooling import GatheringSource, PageReader
from tests.engine.world import PIPELINE, STREAM

GATHER_MUTANTS: dict[str, Mutant] = {}
mutant = registering(GATHER_MUTANTS)

Scenario = Callable[[GatheredWorld], None]


# ---------------------------------------------------------------- scenarios


def go_to(world: GatheredWorld, point: str) -> Process:
    process = world.start()
    while not process.ended and process.point != point:
        world.step(process)
    assert process.point == point, f"never came to {point}"
    return process


def arrive(world: GatheredWorld, count: int) -> None:
    for _ in range(count):
        world.rows.arrive(world.rows.arrived + 1)


def places(world: GatheredWorld) -> list[int]:
    return sorted(place for _, place in world.delivered())


def a_run(world: GatheredWorld) -> None:
    arrive(world, 7)
    world.finish_without_faults(None)
    assert places(world) == [1, 2, 3, 4, 5, 6, 7]
    assert os.listdir(os.path.join(world.folder, "spools", PIPELINE, STREAM)) == [], "spools are swept"


def a_slice_that_was_dropped_is_committed_late(world: GatheredWorld) -> None:
    """The API shows another row the second time. Whose slice the sink holds must be known."""
    arrive(world, 2)
    late = world.rows.places.pop(2)
    frozen = go_to(world, "gate.moved")
    world.lose_spools()
    world.start().run()
    assert "its gathered spool" in (world.stopped or "")
    world.processes = [frozen]
    world.recover()
    world.rows.places[2] = late
    other = go_to(world, "gate.intended")
    frozen.run()
    other.run()
    world.processes = []
    assert world.stopped or places(world) == [1, 2], "the mark is past a row that nobody has delivered"


def two_gather_at_the_same_time(world: GatheredWorld) -> None:
    """The one that was replaced closes its spool last: it must not take the place of the one that was intended."""
    arrive(world, 2)
    late = world.rows.places.pop(2)
    frozen = go_to(world, "gate.gathered")
    world.rows.places[2] = late
    other = go_to(world, "gate.intended")
    world.crash(other)
    frozen.run()
    world.processes = []
    world.finish_without_faults(None)
    assert not world.stopped
    assert places(world) == [1, 2]


def a_page_of_the_spool_is_lost(world: GatheredWorld) -> None:
    arrive(world, 2)
    world.crash(go_to(world, "gate.intended"))
    intent = world.store.state(PIPELINE, STREAM).intent
    assert intent is not None
    spool = world.spools.find_gathered(STREAM, intent.spool)
    assert spool is not None
    os.unlink(os.path.join(spool, "page-0001.json"))
    world.tampered_store = True
    world.start().run()
    assert "gone or damaged" in (world.stopped or "")
    assert places(world) == []


def rows_expire_at_the_source(world: GatheredWorld) -> None:
    """What was gathered is delivered, whether or not the API still has it."""
    arrive(world, 2)
    world.crash(go_to(world, "gate.intended"))
    del world.rows.places[1]
    world.finish_without_faults(None)
    assert places(world) == [1, 2]


def a_run_dies_before_its_commit(world: GatheredWorld) -> None:
    arrive(world, 2)
    world.crash(go_to(world, "gate.moved"))
    world.finish_without_faults(None)
    assert not world.stopped
    assert places(world) == [1, 2]


SCENARIOS: tuple[Scenario, ...] = (
    a_run,
    a_slice_that_was_dropped_is_committed_late,
    two_gather_at_the_same_time,
    a_page_of_the_spool_is_lost,
    rows_expire_at_the_source,
    a_run_dies_before_its_commit,
)

#: by mutant, the scenario that catches it
CAUGHT_BY: dict[str, Scenario] = {
    "the digest is not part of the slice's id": a_slice_that_was_dropped_is_committed_late,
    "a gathered spool is named by its slice's number alone": two_gather_at_the_same_time,
    "a spool is found without a check of its digest": a_page_of_the_spool_is_lost,
    "the intent is recorded before the source gathers": a_run,
    "a replay asks the API again": rows_expire_at_the_source,
    "a spool is swept once its slice was moved": a_run_dies_before_its_commit,
    "a spool is swept once its slice is intended": a_run_dies_before_its_commit,
    "spools are never swept": a_run,
}


# ---------------------------------------------------------------- mutants


@mutant("the digest is not part of the slice's id")
def _() -> Iterator[None]:
    def without_spool(self: Slice) -> str:
        marks = (mark.text if mark else "" for mark in (self.after, self.upto))
        fingerprint: str = self.fingerprint
        return digest(self.pipeline, self.stream, str(self.number), self.kind, *marks, fingerprint, self.previous)

    with patched((Slice, "id", property(without_spool))):
        yield


@mutant("a gathered spool is named by its slice's number alone")
def _() -> Iterator[None]:
    def close(self: FolderSpools, spool: Any) -> str:
        above, name = os.path.split(spool.path)
        number = str(name).partition("-")[0]
        final = os.path.join(above, f"{number}-gathered-slice")
        shutil.rmtree(final, ignore_errors=True)
        os.rename(spool.path, final)
        return number

    def find(self: FolderSpools, stream: str, digest: str) -> str | None:
        path = os.path.join(self._stream(stream), f"{digest}-gathered-slice")
        return path if os.path.isdir(path) else None

    with patched((FolderSpools, "close_gathered", close), (FolderSpools, "find_gathered", find)):
        yield


@mutant("a spool is found without a check of its digest")
def _() -> Iterator[None]:
    with patched((FolderSpools, "_read", lambda self, path: path.rpartition("-")[2])):
        yield


@mutant("the intent is recorded before the source gathers")
def _() -> Iterator[None]:
    def planned_alone(self: Gate, gathering: Any, state: Any, content: Content, budget: Any) -> Any:
        after = state.last.mark if state.last else None
        return self.look.plan(after, budget), "later"

    @contextmanager
    def gathered_now(self: Any, slice_: Slice) -> Iterator[Reading]:
        at = slice_.after.document["place"] if slice_.after else 0
        path = os.path.join(self.spools.folder, f"late-{slice_.number}")
        os.makedirs(path, exist_ok=True)
        self.write_pages(path, self.streams[slice_.stream].between(at, at + self.most))
        yield Reading(PageReader(), parts_of(path))

    with patched(
        (Gate, "gather", planned_alone),
        (GatheringSource, "reading", gathered_now),
        (FolderSpools, "find_gathered", lambda self, stream, digest: self.folder),
    ):
        yield


@mutant("a replay asks the API again")
def _() -> Iterator[None]:
    @contextmanager
    def again(self: Any, slice_: Slice) -> Iterator[Reading]:
        at = slice_.after.document["place"] if slice_.after else 0
        path = os.path.join(self.spools.folder, f"again-{slice_.number}")
        os.makedirs(path, exist_ok=True)
        assert slice_.upto is not None
        self.write_pages(path, self.streams[slice_.stream].between(at, slice_.upto.document["place"]))
        yield Reading(PageReader(), parts_of(path))

    with patched((GatheringSource, "reading", again)):
        yield


@mutant("a spool is swept once its slice was moved")
def _() -> Iterator[None]:
    move = Gate.move

    def sweeping(self: Gate, state: Any, slice_: Slice, attempt: str) -> Any:
        receipts = move(self, state, slice_, attempt)
        self.spools.sweep(self.stream, slice_.number)
        return receipts

    with patched((Gate, "move", sweeping)):
        yield


@mutant("a spool is swept once its slice is intended")
def _() -> Iterator[None]:
    intend = Gate.intend

    def sweeping(self: Gate, slice_: Slice, rows: int | None) -> Slice:
        intended = intend(self, slice_, rows)
        self.spools.sweep(self.stream, slice_.number)
        return intended

    with patched((Gate, "intend", sweeping)):
        yield


@mutant("spools are never swept")
def _() -> Iterator[None]:
    with patched((FolderSpools, "sweep", lambda self, stream, number: None)):
        yield


def parts_of(path: str) -> list[Part]:
    pages = sorted(os.listdir(path))
    return [Part(index, canonical({"page": os.path.join(path, page)})) for index, page in enumerate(pages)]

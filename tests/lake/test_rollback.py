"""A table that was rolled back, dropped, or made again: each stops with its own words, and `recover` leads out."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator

import pytest
from tests.engine.lake_world import LakeWorld, Look
from tests.engine.machine import MEMORY
from tests.harness.doubles import LoopMover, MemorySource
from tests.lake.compaction import compact

from penstock.core.messages import Message, Status, StreamStatus
from penstock.engine import Engine, Settings
from penstock.lake import names
from penstock.lake.tables import load_table, open_catalog
from penstock.ports import NoProbe, Owner


@pytest.fixture
def world() -> Iterator[LakeWorld]:
    """Three slices of two rows."""
    folder = tempfile.mkdtemp(prefix="rollback-", dir=MEMORY)
    made = LakeWorld(f"{folder}/one")
    for key in range(1, 7):
        made.rows.arrive(key)
    made.finish_without_faults(None)
    assert len(made.landings()) == 3
    yield made
    made.end()
    shutil.rmtree(folder)


def said(world: LakeWorld, verb: str = "run") -> StreamStatus:
    """How a run of the real engine reports the stop."""
    heard: list[Message] = []
    engine = Engine(
        "p",
        source=MemorySource({"s": world.rows}),
        sink=world.sink(NoProbe()),
        store=world.store,
        mover=LoopMover,
        clock=world.clock,
        probe=NoProbe(),
        owner=Owner(verb, "here", 1),
        gone=lambda _: True,
        emit=heard.append,
        settings=Settings(heartbeat=False),
    )
    eof = engine.recover(["s"]) if verb == "recover" else engine.run()
    assert eof.exit_code == 1
    (found,) = [m for m in heard if isinstance(m, StreamStatus) and m.status is Status.ERROR]
    assert found.stopped
    return found


def recovered(world: LakeWorld) -> None:
    """The way out that the message names leads out: every row is there, once."""
    world.tampered_sink = True
    world.recover()
    world.finish_without_faults(None)
    assert world.stopped is None
    assert sorted(place for _, place in world.delivered()) == list(range(1, world.rows.arrived + 1))


@pytest.mark.parametrize("new_rows", [0, 1])
def test_rolled_back(world: LakeWorld, new_rows: int) -> None:
    """Even when nothing is new."""
    head = world.look().head
    world.rolls_back(2)
    if new_rows:
        world.rows.arrive(7)
    stop = said(world)
    assert stop.reason == ("the table s says it holds slice 3, but the table was rolled back to a snapshot before it")
    assert stop.safe == "Nothing was changed: neither the mark nor the table."
    assert "restore the table as it was" in (stop.next_step or "")
    assert "penstock state recover FILE --stream s" in (stop.next_step or "")
    recovered(world)
    assert all(number > head for number, place in world.look().rows if place > 2)
    assert [landed.number for landed in world.landings()] == list(range(1, 4 + new_rows))


def test_rolled_back_and_put_back_as_it_was(world: LakeWorld) -> None:
    """The other way out: nothing was changed meanwhile, so the run goes on as before."""
    newest = world.look().state
    assert newest
    assert newest.main
    world.rolls_back(2)
    said(world)
    table = load_table(world.lake, "s")
    assert table
    table.manage_snapshots().set_current_snapshot(newest.main.id).commit()
    world.now = Look()  # whoever read meanwhile has missed what came back
    world.look_anew()
    world.stopped = None
    world.rows.arrive(7)
    world.finish_without_faults(None)
    assert sorted(place for _, place in world.delivered()) == [1, 2, 3, 4, 5, 6, 7]


def test_rolled_back_and_another_pipeline_landed_since(world: LakeWorld) -> None:
    world.rolls_back(1)
    world.other_lands(1)
    world.look_anew()
    assert "rolled back" in (said(world).reason or "")
    recovered(world)


def test_rolled_back_twice_to_where_a_recovery_ended(world: LakeWorld) -> None:
    """A recovery is itself a place that one can be rolled back to."""
    world.rolls_back(1)
    world.recover()
    state = world.look().state
    assert state
    assert state.main
    assert state.main.kind == "recover"
    world.rows.arrive(7)
    world.finish_without_faults(None)
    table = load_table(world.lake, "s")
    assert table
    table.manage_snapshots().rollback_to_snapshot(state.main.id).commit()
    world.meddled()
    assert "rolled back" in (said(world).reason or "")
    recovered(world)


def test_rolled_back_to_before_its_first_slice(world: LakeWorld) -> None:
    """Another pipeline made the table: all that is left is its row."""
    world.drops()
    world.other_lands(1)
    world.recover()
    world.finish_without_faults(None)
    world.rolls_back(3)
    assert "rolled back" in (said(world).reason or "")
    recovered(world)
    assert {place for _, place in world.look().rows if place < 0} == {-10}


def test_history_that_does_not_tell(world: LakeWorld) -> None:
    """A compaction whose past has expired: recover says so, and what to do."""
    table = load_table(world.lake, "s")
    assert table
    compact(table)
    world.look_anew()
    world.expires()
    world.look_anew()
    world.rows.arrive(7)
    world.finish_without_faults(None)
    world.rolls_back(1)
    assert "rolled back" in (said(world).reason or "")
    stop = said(world, "recover")
    assert "its history no longer shows which slice of this stream it holds" in (stop.reason or "")
    assert "drop s and recover again" in (stop.next_step or "")
    world.stopped = None
    world.drops()
    recovered(world)


def test_dropped(world: LakeWorld) -> None:
    world.drops()
    stop = said(world)
    assert "the sink is behind the store: the store has delivered slice 3, but the sink holds nothing" in (
        stop.reason or ""
    )
    assert "Its folder, table or database was deleted, emptied, or is another one" in (stop.reason or "")
    assert load_table(world.lake, "s") is None
    recovered(world)


def test_dropped_and_made_again_by_another_pipeline(world: LakeWorld) -> None:
    world.drops()
    world.other_lands(2)
    world.look_anew()
    assert "the sink holds nothing of this stream" in (said(world).reason or "")
    recovered(world)
    assert len([place for _, place in world.look().rows if place < 0]) == 2


def test_made_again_with_the_old_tables_properties(world: LakeWorld) -> None:
    """As a copy by hand does it: the chain says one thing, the table is another."""
    old = load_table(world.lake, "s")
    assert old
    properties = {k: v for k, v in old.properties.items() if not k.startswith("commit.")}
    schema = old.schema()
    world.drops()
    made = open_catalog(world.lake).create_table(world.lake.identifier("s"), schema, properties=properties)
    assert json.loads(made.properties[names.chain_property("p", "s")])["number"] == 3
    world.meddled()
    stop = said(world)
    assert stop.reason == "the table s says it holds slice 3, but the table was dropped and created again"
    recovered(world)

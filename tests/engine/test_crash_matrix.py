"""The whole crash matrix in memory: every point, first and second time, every kind of change before the restart."""

import shutil
import tempfile
from collections.abc import Iterator

import pytest

from penstock.testing.faults import RUN_POINTS
from tests.engine.machine import MEMORY
from tests.engine.world import World

CHANGES = ("nothing", "a row arrives", "a row of the open slice changes", "reset", "someone else runs first")


@pytest.fixture
def world() -> Iterator[World]:
    folder = tempfile.mkdtemp(prefix="matrix-", dir=MEMORY)
    made = World(folder)
    yield made
    made.end()
    shutil.rmtree(folder)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", RUN_POINTS)
def test_crash(world: World, point: str, nth: int, change: str) -> None:
    for key in range(1, 6):
        world.rows.arrive(key)
    process = world.start()
    times = int(process.point == point)
    while times < nth and not process.ended:
        times += process.step() == point
        world.check()
    if not process.ended:
        assert process.point == point
        world.crash(process)
    else:
        assert nth == 2, f"never came to {point}"
        assert point in ("engine.leased", "engine.released")  # once a run; the second time is the next run's
    if change == "a row arrives":
        world.rows.arrive(6)
    elif change == "a row of the open slice changes":
        last = world.store.state("p", "s").last
        mark = last.mark.document["place"] if last and last.mark else 0
        if mark + 1 in world.rows.places:
            world.rows.update(mark + 1)
    elif change == "reset":
        world.start("reset").run()
        world.processes = []
    elif change == "someone else runs first":
        world.start().run()
        world.processes = []
        world.rows.arrive(6)
    world.check()
    world.settle(None)
    assert not world.stopped

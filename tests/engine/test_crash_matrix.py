"""The whole crash matrix in memory: every point, first and second time, every kind of change before the restart."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.engine.files_world import FilesWorld
from tests.engine.machine import MEMORY
from tests.engine.processes import Process
from tests.engine.world import World
from tests.harness.faults import RUN_POINTS

CHANGES = (
    "nothing",
    "a row arrives",
    "a row of the open slice changes",
    "reset",
    "rewind",
    "undo",
    "someone else runs first",
)
#: a run comes to these once; the second time is the next run's
ONCE = ("engine.leased", "gate.prepared", "engine.released")
#: what a rewind passes through, in order, and an undo that leads back
REWIND_POINTS = (
    "engine.leased",
    "gate.started",
    "gate.compared",
    "gate.prepared",
    "gate.intended",
    "gate.asked",
    "gate.moved",
    "files.manifest_written",
    "files.manifest_linked",
    "files.all_visible",
    "gate.committed",
    "gate.advanced",
    "gate.swept",
    "engine.released",
)
#: what an open slice, finished by the same process, does not pass through
ALONE = ("engine.leased", "gate.compared", "gate.prepared", "gate.intended", "engine.released")
#: killed here, it has not begun
BEFORE = REWIND_POINTS[: REWIND_POINTS.index("gate.intended")]
#: what an undo that leads ahead passes through
AHEAD_POINTS = tuple(point for point in REWIND_POINTS if point != "gate.prepared")


@pytest.fixture
def world() -> Iterator[World]:
    folder = tempfile.mkdtemp(prefix="matrix-", dir=MEMORY)
    made = FilesWorld(folder)
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
        assert point in ONCE
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
    elif change == "rewind":
        world.start("rewind", 1).run()
        world.processes = []
    elif change == "undo":
        world.start("undo", 1).run()
        world.processes = []
    elif change == "someone else runs first":
        world.start().run()
        world.processes = []
        world.rows.arrive(6)
    world.check()
    world.finish_without_faults(None)
    assert not world.stopped


def rewinding(world: World, verb: str, to: int, *, open_slice: bool) -> Process:
    """Five places delivered in three slices, perhaps a sixth in an open one; then the verb is under way."""
    for key in range(1, 6):
        world.rows.arrive(key)
    world.start().run()
    world.processes = []
    if open_slice:
        world.rows.arrive(6)
        process = world.start()
        while process.step() != "gate.moved":
            world.check()
        world.crash(process)
    return world.start(verb, to)


def killed(world: World, process: Process, point: str, times: int) -> None:
    """Kill it when it comes to a point for the so-manieth time."""
    while times := times - (process.point == point):
        process.step()
        world.check()
        assert not process.ended, f"never came to {point}"
    world.crash(process)
    world.check()


def happens(world: World, change: str) -> None:
    if change == "a row arrives":
        world.rows.arrive(7)
    elif change == "reset":
        world.start("reset").run()
    elif change == "rewind":
        world.start("rewind", 1).run()
    elif change == "undo":
        world.start("undo", 2).run()
    elif change == "someone else runs first":
        world.start().run()
        world.rows.arrive(7)
    world.processes = []
    world.check()


def points_of(process: Process) -> tuple[str | None, ...]:
    points = [process.point]
    while process.step():
        points.append(process.point)
    return tuple(points)


#: each leads back to place 2
BACK = pytest.mark.parametrize(("verb", "to"), [("rewind", 2), ("undo", 1)])


@BACK
def test_what_a_rewind_passes_through(world: World, verb: str, to: int) -> None:
    assert points_of(rewinding(world, verb, to, open_slice=False)) == REWIND_POINTS


@pytest.mark.parametrize("change", ["nothing", "a row arrives", "reset", "rewind", "undo", "someone else runs first"])
@pytest.mark.parametrize("open_slice", [False, True])
@pytest.mark.parametrize("point", REWIND_POINTS)
@BACK
def test_crash_in_a_rewind(world: World, verb: str, to: int, point: str, open_slice: bool, change: str) -> None:
    process = rewinding(world, verb, to, open_slice=open_slice)
    # The open slice, which is finished first, passes through most points too.
    killed(world, process, point, 2 if open_slice and point not in ALONE else 1)
    happens(world, change)
    world.finish_without_faults(None)
    assert not world.stopped
    wanted = [] if point in BEFORE else [2]
    wanted += {"rewind": [1], "reset": [0], "undo": [4]}.get(change, [])
    assert [each.to for each in world.returns()] == wanted
    times = Counter(place for _, place in world.delivered())
    if change == "nothing":
        again = 1 if point in BEFORE else 2
        last = 7 if open_slice else 6
        assert times == {1: 1, 2: 1} | dict.fromkeys(range(3, last), again)


def going_ahead(world: World) -> Process:
    """Five places delivered, a reset, and then the undo of it is under way."""
    for key in range(1, 6):
        world.rows.arrive(key)
    for verb in ("run", "reset"):
        world.start(verb).run()
        world.processes = []
    return world.start("undo", 3)


def test_what_an_undo_of_a_reset_passes_through(world: World) -> None:
    assert points_of(going_ahead(world)) == AHEAD_POINTS


@pytest.mark.parametrize("change", ["nothing", "a row arrives", "reset", "undo", "someone else runs first"])
@pytest.mark.parametrize("point", AHEAD_POINTS)
def test_crash_in_an_undo_of_a_reset(world: World, point: str, change: str) -> None:
    killed(world, going_ahead(world), point, 1)
    happens(world, change)
    world.finish_without_faults(None)
    assert not world.stopped
    times = Counter(place for _, place in world.delivered())
    assert set(times) >= {1, 2, 3, 4, 5}
    if change == "nothing":
        assert set(times.values()) == ({2} if point in BEFORE else {1}), "nothing is read again once it has begun"

"""Landing in a log: frozen writers, lost answers, retries; numbers only grow in the order of commits."""

from __future__ import annotations

import errno
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.engine.lake_world import LakeWorld
from tests.engine.machine import MEMORY
from tests.lake.lanes import STREAM, At, Lane, Poller, rows

from penstock.core.retry import Backoff
from penstock.errors import CommitUnclear, StreamFailed, StreamStopped
from penstock.lake import disk_space, landing, parquet
from penstock.links import watch


@pytest.fixture
def lane(tmp_path: Path) -> Lane:
    return Lane(tmp_path)


def successor(lane: Lane) -> None:
    """Two empty slices and two full ones, by one that found the first one's rows gone."""
    for parts in ((), (), (rows(10, 11),), (rows(12),)):
        lane.deliver(*parts)


@pytest.mark.parametrize("first", [0, 1], ids=["first slice", "second slice"])
@pytest.mark.parametrize("point", ["lake.part_written", "lake.prepared", "lake.landed"])
def test_frozen_writer_wakes_after_four_slices_of_its_successor(lane: Lane, point: str, first: int) -> None:
    if first:
        lane.deliver(rows(1))
    before = lane.ids() if first else []
    poller, slice_ = Poller(lane), lane.next()
    sink = lane.sink(At(point, lambda: successor(lane)))
    if point == "lake.landed":  # it landed: the successor follows it
        sink.commit(slice_, *lane.aside(sink, slice_, rows(2, 3)))
        wanted = [*before, 2, 3, 10, 11, 12]
    else:
        with pytest.raises(CommitUnclear):
            sink.commit(slice_, *lane.aside(sink, slice_, rows(2, 3)))
        wanted = [*before, 10, 11, 12]
    assert lane.ids() == wanted
    assert poller.has(wanted)
    assert lane.held is not None
    assert lane.held.number == first + 4 + (point == "lake.landed")
    lane.deliver(rows(20))
    assert lane.ids() == [*wanted, 20]


def test_one_that_only_empty_slices_overtook_puts_nothing_in(lane: Lane) -> None:
    """No head moves by an empty slice: only its snapshot keeps the woken writer out."""
    lane.deliver(rows(1))
    slice_ = lane.next()
    sink = lane.sink(At("lake.prepared", lambda: [lane.deliver(), lane.deliver()]))
    with pytest.raises(CommitUnclear):
        sink.commit(slice_, *lane.aside(sink, slice_, rows(2)))
    assert lane.ids() == [1]
    assert lane.held is not None
    assert lane.held.number == 3


def test_numbers_stay_where_only_a_compaction_came_between(lane: Lane) -> None:
    from tests.lake.compaction import compact

    lane.deliver(rows(1))
    lane.deliver(rows(2))
    probe = At("lake.prepared", lambda: compact(lane.table))
    lane.deliver(rows(3), probe=probe)
    assert "lake.lost_race" in probe.passed
    assert "lake.restamped" not in probe.passed
    assert lane.ids() == [1, 2, 3]


def test_a_head_that_moved_gives_new_numbers_and_removes_the_old_files(lane: Lane) -> None:
    other = Lane(lane.folder, "other")
    lane.deliver(rows(1))
    poller = Poller(lane)

    def lands() -> None:
        other.deliver(rows(50))
        poller.poll()

    probe = At("lake.prepared", lands)
    lane.deliver(rows(2, 3), rows(4), probe=probe)
    assert "lake.restamped" in probe.passed
    assert [id_ for _, id_, _ in lane.seen()] == [1, 50, 2, 3, 4]
    assert poller.has([1, 2, 3, 4, 50])
    data = lane.folder / "lake" / "n" / STREAM / "data"
    assert {path.name for path in data.iterdir()} == lane.files()


def test_whoever_lost_two_races_has_the_next_turn(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "TURN_POLL", Backoff(0.001, 0.001))
    other = Lane(lane.folder, "other")
    lane.deliver(rows(1))
    waiting: list[threading.Thread] = []
    late = iter(range(50, 60))

    def races() -> None:
        if len(waiting) < 2:
            other.deliver(rows(next(late)))
            waiting.append(threading.Thread())
        else:  # the turn is taken: this one must wait for it
            waiting.append(threading.Thread(target=lambda: other.deliver(rows(next(late)))))
            waiting[-1].start()
            waiting[-1].join(0.3)
            assert waiting[-1].is_alive()

    probe = At("lake.prepared", races, times=3)
    lane.deliver(rows(2), probe=probe)
    waiting[-1].join(30)
    assert probe.passed.count("lake.lost_race") == 2
    assert "lake.turn_taken" in probe.passed
    assert [id_ for _, id_, _ in lane.seen()] == [1, 50, 51, 2, 52]


def test_a_writer_that_gives_up_gives_its_turn_back(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "TURN_POLL", Backoff(0.001, 0.001))
    monkeypatch.setattr(landing, "RACES_BEFORE_TURN", 0)
    lane.deliver(rows(1))
    slice_ = lane.next()
    sink = lane.sink(At("lake.turn_taken", lambda: [][0]))
    with pytest.raises(IndexError):
        sink.commit(slice_, *lane.aside(sink, slice_, rows(2)))
    assert lane.state.turn() is None
    Lane(lane.folder, "other").deliver(rows(50))
    assert lane.ids() == [1, 50]


# ---------------------------------------------------------------- through the engine


@pytest.fixture
def world() -> Iterator[LakeWorld]:
    folder = tempfile.mkdtemp(prefix="landing-", dir=MEMORY)
    made = LakeWorld(f"{folder}/one")
    yield made
    made.end()
    shutil.rmtree(folder)


@pytest.mark.parametrize("point", ["lake.landed", "gate.committed"])
def test_committed_and_its_advance_lost_while_rows_arrive(world: LakeWorld, point: str) -> None:
    """The retry is the same slice: the same files under the same names, and no row twice."""
    for key in (1, 2):
        world.rows.arrive(key)
    process = world.start()
    while process.step() != point:
        world.check()
    world.crash(process)
    world.check()
    files, head = world.look().files, world.look().head
    state = world.store.state("p", "s")
    assert files
    assert state.last is None
    assert state.intent
    world.rows.arrive(3)
    world.rows.update(2)
    world.finish_without_faults(None)
    assert files < world.look().files
    assert sorted(world.look().rows) == [(1, 1), (1 + (1 << 26), 2), (head + 1, 3), (head + 1 + (1 << 26), 4)]
    assert [landed.number for landed in world.landings()] == [1, 2]


@pytest.mark.parametrize("point", ["gate.intended", "gate.asked", "lake.part_written", "gate.moved", "lake.prepared"])
def test_killed_before_the_commit_its_files_are_swept(world: LakeWorld, point: str) -> None:
    for key in (1, 2):
        world.rows.arrive(key)
    process = world.start()
    while process.step() != point:
        world.check()
    world.crash(process)
    world.rows.arrive(3)
    world.finish_without_faults(None)
    assert sorted(place for _, place in world.delivered()) == [1, 2, 3]
    (data,) = {Path(path).parent for path in world.look().files}
    assert {str(path) for path in data.iterdir()} == world.look().files


def test_a_landing_does_not_wait_for_others_without_end(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that does not end: its owner's clock is ahead, or one follows the other."""
    monkeypatch.setattr(landing, "TURN_POLL", Backoff(0.001, 0.001))
    monkeypatch.setattr(landing, "MAX_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(landing, "SILENCE_SECONDS", 0.01)
    lane.deliver(rows(1))
    landing.take_turn(lane.table, lane.state, "another", 3600, by="slice 7 of big/orders")
    with pytest.raises(StreamFailed, match="slice 7 of big/orders has the turn until ") as failed:
        lane.deliver(rows(2))
    assert not isinstance(failed.value, StreamStopped)
    assert lane.said == ["orders: slice 2 waits for slice 7 of big/orders, which is writing to n.orders"]
    turn = lane.state.turn()
    assert turn
    assert turn.owner == "another"
    landing.remove_turn(lane.table)
    lane.deliver(rows(2))
    assert lane.ids() == [1, 2]


def test_a_landing_that_waits_is_reported_and_ends_with_the_run(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "REPORT_SECONDS", 0.3)
    doing: list[str] = []
    lane.report = lambda stream, text, **_: doing.append(f"{stream}: {text}")
    lane.is_cancelled = lambda: len(doing) > 1
    lane.deliver(rows(1))
    landing.take_turn(lane.table, lane.state, "another", 3600)
    with pytest.raises(StreamFailed, match="because the run is to end"):
        lane.deliver(rows(2))
    assert doing[0].startswith("orders: landing 1 row, ")
    landing.remove_turn(lane.table)
    lane.is_cancelled = lambda: False
    lane.deliver(rows(2))
    assert lane.ids() == [1, 2]


def test_a_writer_that_loses_races_ends_with_the_run_and_gives_its_turn_back(lane: Lane) -> None:
    other = Lane(lane.folder, "other")
    lane.deliver(rows(1))
    late = iter(range(50, 90))
    probe = At("lake.prepared", lambda: other.deliver(rows(next(late))), times=2)
    lane.is_cancelled = lambda: probe.passed.count("lake.lost_race") == 2
    with pytest.raises(StreamFailed, match="because the run is to end"):
        lane.deliver(rows(2), probe=probe)
    assert lane.state.turn() is None
    assert lane.ids() == [1, 50, 51]


@pytest.mark.parametrize("first", [True, False])
def test_a_disk_that_is_full_under_a_commit_is_said_to_be_full(
    lane: Lane, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """Manifests and metadata: whether a table is made, or a slice lands in it."""
    if not first:
        lane.deliver(rows(1))

    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    with monkeypatch.context() as patched:
        patched.setattr(parquet, "sync", full)
        with pytest.raises(StreamFailed, match=f"no space left for file://{lane.folder}/lake") as failed:
            lane.deliver(rows(2))
    assert "free some space" in failed.value.next_step
    lane.deliver(rows(2))
    assert lane.ids() == ([2] if first else [1, 2])


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (RuntimeError("(sqlite3.OperationalError) database or disk is full"), True),
        (RuntimeError("java.io.IOException: No space left on device"), True),
        (OSError(errno.EIO, "Input/output error"), False),
    ],
)
def test_a_full_disk_is_known_by_what_everyone_says_of_it(error: Exception, full: bool) -> None:
    assert disk_space.is_full(error) == full


def test_a_full_disk_is_recognized_although_the_error_does_not_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError("disk I/O error")
    assert not disk_space.is_full(error, str(tmp_path))
    assert not disk_space.is_full(error, str(tmp_path / "missing"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    assert disk_space.is_full(error, str(tmp_path))
    assert not disk_space.is_full(error)

"""A file is read once it was the same in two looks a set time apart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sources.files.folders import Inbox

from penstock.errors import StreamFailed
from penstock.sources.files.looking import Settling
from penstock.sources.files.places import File, LocalFolder, Version

CSV = {"path": "**/*.csv", "columns": {"id": "int64"}}


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.on_sleep: Callable[[], object] = lambda: None
        patch.setattr(time, "monotonic", lambda: self.now)
        patch.setattr(time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_file_that_grows_is_left_to_a_later_run(clock: Clock, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id\n1\n")
    inbox.put("b.csv", "id\n")

    def grow() -> None:
        with (inbox.place / "b.csv").open("a") as file:
            file.write("2\n")

    clock.on_sleep = grow
    assert inbox.run(settle=5) == [{"id": 1}]
    assert inbox.told() == ["left to a later run, still being written: 1 file, such as b.csv"]
    clock.on_sleep = lambda: None
    assert len(inbox.run(settle=5)) > 1


def test_a_file_that_is_replaced_or_goes_while_it_settles(clock: Clock, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id\n1\n", time=1)
    inbox.put("b.csv", "id\n2\n", time=1)
    times = iter(range(1000))

    def replace() -> None:
        if next(times) == 2:
            inbox.put("a.csv", "id\n3\n", time=1)  # of the same size and time
            (inbox.place / "b.csv").unlink()

    clock.on_sleep = replace
    assert inbox.run(settle=5) == []
    assert inbox.last is None
    assert inbox.run(settle=5) == [{"id": 3}]


def test_a_run_waits_once_and_not_for_files_that_arrive_meanwhile(clock: Clock, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id\n1\n")
    place, settling = LocalFolder(str(inbox.place)), Settling(5, lambda: False)
    for arrived, left in ((0, set()), (1, {"b.csv"})):
        if arrived:
            inbox.put("b.csv", "id\n2\n")
        files = place.listing(["*.csv"], ()).files
        settling.begin(files)
        assert settling.must_wait() != bool(arrived)
        assert settling.settle(place, files) == left
        assert clock.now == pytest.approx(5)


def test_nothing_new_does_not_wait(clock: Clock, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, **CSV)
    inbox.put("a.csv", "id\n1\n")
    inbox.run()
    assert inbox.run(settle=5) == []
    assert clock.now == 0


def test_streams_settle_at_the_same_time(clock: Clock, tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, path="1/*.csv", columns={"id": "int64"})
    inbox.others = {name: {"path": f"{name}/*.csv", "columns": {"id": "int64"}} for name in "23"}
    for name in "123":
        inbox.put(f"{name}/a.csv", "id\n1\n")
    source = inbox.open(settle=5)
    for stream in ("orders", "2", "3"):
        assert source.ceiling(stream, source.content(stream), "run")
    assert clock.now == pytest.approx(5)


def test_a_signal_ends_the_wait() -> None:
    over = threading.Event()
    settling = Settling(3600, over.is_set)
    files = [File("a", Version(1, 1, 1))]
    settling.begin(files)
    over.set()
    with pytest.raises(StreamFailed, match="the run is to end"):
        settling.settle(LocalFolder("/"), files)

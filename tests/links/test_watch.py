"""Work that takes long is reported, and cancelled with the run."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.errors import CommitUnclear, StreamFailed
from penstock.links import watch as module
from penstock.links.watch import Watch
from penstock.ports import Context, NoProbe


@dataclass
class Run:
    """What a run hears, and whether it is to end."""

    doing: list[str] = field(default_factory=list)
    is_ending: bool = False

    def report(self, stream: str, doing: str, **about: Any) -> None:
        self.doing.append(f"{stream}: {doing}")

    @property
    def watch(self) -> Watch:
        context = Context("p", ".", NoProbe(), report=self.report, is_cancelled=lambda: self.is_ending)
        return Watch(context, "orders")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    return Run()


def test_only_work_that_takes_long_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with run.watch.report("merging 3 rows"):
        time.sleep(0.1)
    assert run.doing == []
    monkeypatch.setattr(module, "REPORT_SECONDS", 0.03)
    with run.watch.report("merging 3 rows"):
        time.sleep(0.5)
    assert len(run.doing) > 2
    assert set(run.doing) <= {"orders: merging 3 rows, 0 s", "orders: merging 3 rows, 1 s"}


def test_work_is_cancelled_until_it_ends(run: Run) -> None:
    """A statement that begins after the first cancellation is cancelled too."""
    cancelled: list[float] = []
    ended = threading.Event()

    def cancel() -> None:
        cancelled.append(time.monotonic())
        if len(cancelled) == 3:
            ended.set()

    def work() -> None:
        with run.watch.cancel(cancel):
            run.is_ending = True
            assert ended.wait(10)
            raise ValueError("canceling statement due to user request")

    with pytest.raises(StreamFailed, match="because the run is to end") as failed:
        work()
    assert isinstance(failed.value.__cause__, ValueError)
    times = len(cancelled)
    time.sleep(0.1)
    assert len(cancelled) == times


def test_work_that_ended_although_it_was_cancelled_does_not_count(run: Run) -> None:
    cancelled = threading.Event()

    def work() -> None:
        with run.watch.cancel(cancelled.set):
            run.is_ending = True
            assert cancelled.wait(10)

    with pytest.raises(StreamFailed, match="because the run is to end"):
        work()


def test_other_errors_come_through(run: Run) -> None:
    with pytest.raises(ValueError, match="its own"), run.watch.cancel(lambda: None):
        raise ValueError("its own")
    unclear = CommitUnclear("unclear", next_step="ask")

    def work() -> None:
        with run.watch.cancel(lambda: None):
            run.is_ending = True
            time.sleep(0.1)
            raise unclear

    with pytest.raises(CommitUnclear):
        work()


def test_a_run_that_is_to_end_begins_nothing(run: Run) -> None:
    run.is_ending = True
    begun = False
    with pytest.raises(StreamFailed), run.watch.cancel(lambda: None):
        begun = True
    assert not begun

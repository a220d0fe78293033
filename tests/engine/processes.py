"""Processes in a box: each an engine in a thread that halts at every probe point until it is told to go on.

One that is not told is frozen; told again, it wakes. A crash lets nothing run after the point it stood at.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from penstock.errors import CommitUnclear

#: a process that does not reach its next point in this many seconds hangs
HANGS = 30.0


class Crashed(BaseException):
    """Raised inside a process at the point where it is killed; no handler for errors may catch it."""


class Halting:
    """The probe inside a process."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.came = threading.Semaphore(0)
        self.point: str | None = None
        self.fate: BaseException | None = None

    def at(self, point: str, **about: Any) -> None:
        if isinstance(self.fate, Crashed):
            raise self.fate
        self.point = point
        self.came.release()
        self.go.acquire()
        if self.fate is not None:
            fate = self.fate
            if not isinstance(fate, Crashed):
                self.fate = None
            raise fate


class Process:
    """Work that halts at every point."""

    def __init__(self, name: str, work: Callable[[Halting], Any]) -> None:
        self.name = name
        self.probe = Halting()
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = False
        self._work = work
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()
        self._arrive()

    @property
    def point(self) -> str | None:
        return None if self.ended else self.probe.point

    def step(self) -> str | None:
        """Go on to the next point; None: it has ended."""
        self.probe.go.release()
        self._arrive()
        return self.point

    def run(self, most: int = 400) -> None:
        """Go on to the end."""
        for _ in range(most):
            if self.ended:
                return
            self.step()
        raise AssertionError(f"{self.name} never came to rest: livelock at {self.point}")

    def crash(self) -> None:
        """Die where it stands."""
        if not self.ended:
            self.probe.fate = Crashed()
            self.step()

    def lose_answer(self) -> None:
        """What it has just done took effect, but it does not learn so."""
        self.probe.fate = CommitUnclear("the answer was lost", next_step="ask the sink")
        self.step()

    def _live(self) -> None:
        try:
            self.result = self._work(self.probe)
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001 (handed to the thread that steps)
            self.error = error
        self.ended = True
        self.probe.came.release()

    def _arrive(self) -> None:
        if not self.probe.came.acquire(timeout=HANGS):
            raise AssertionError(f"{self.name} hangs after {self.probe.point}")
        if self.error is not None:
            raise self.error

"""Handles SIGINT and SIGTERM: the first stops the engine cleanly, a second SIGINT ends the process immediately."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import TYPE_CHECKING, Any

from penstock.errors import STOPPED_IMMEDIATELY, Interrupted

if TYPE_CHECKING:
    from penstock.engine import Engine


class Signals:
    """Handles signals while it is open."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._engine: Engine | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def watch(self, engine: Engine) -> None:
        """Stop this engine when a signal arrives."""
        self._engine = engine
        if self.number is not None:
            engine.stop(self.number)

    def stop(self, number: int) -> None:
        """Act as if this signal had arrived."""
        self.number = number
        if self._engine is None:
            raise Interrupted(number)
        self._engine.stop(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None and number == signal.SIGINT:
            # A regular exit would wait for threads. An open slice stays open, and the next run finishes it.
            os.write(2, STOPPED_IMMEDIATELY)
            os._exit(128 + number)
        if self.number is None:
            self.stop(number)

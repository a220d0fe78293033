"""SIGINT and SIGTERM: the first asks the engine to stop, a second SIGINT ends the process at once."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from penstock.errors import ENDED_AT_ONCE, Interrupted

if TYPE_CHECKING:
    from penstock.engine import Engine


class Signals:
    """Hears signals while it is open."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._engine: Engine | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def watch(self, engine: Engine) -> None:
        """From now on a signal stops this engine."""
        self._engine = engine
        if self.number is not None:
            engine.stop(self.number)

    def stop(self, number: int) -> None:
        """As if the signal had come."""
        self.number = number
        if self._engine is None:
            raise Interrupted(number)
        self._engine.stop(number)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None and number == signal.SIGINT:
            # Not through Python's own end: it would wait for threads. A slice that was open stays open.
            os.write(2, ENDED_AT_ONCE)
            os._exit(128 + number)
        if self.number is None:
            self.stop(number)

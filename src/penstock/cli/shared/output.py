"""Where a pipeline's messages go: lines for people or JSON for machines; errors to standard error.

On a terminal `run` shows them as a picture instead: `display.live`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self, TextIO

from penstock.cli.shared.cost import Cost
from penstock.cli.shared.render import Line, dated, lines
from penstock.cli.shared.report import TRACEBACK, say
from penstock.cli.shared.silence import PATIENCE, Silence, still
from penstock.core.messages import Eof, Message, StepDone, encode, with_commands
from penstock.core.progress import Progress, apply


def live_wanted(*, plain: bool, as_json: bool) -> bool:
    """Whether people look at a terminal that can show a picture."""
    capable = os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    return capable and not plain and not as_json and sys.stdout.isatty()


class Output:
    """Prints the messages of one pipeline as they come."""

    def __init__(
        self,
        file: str,
        pipeline: str,
        *,
        as_json: bool,
        several: bool = False,
        closing: bool = True,
        broken: Callable[[], None],
        patience: float = PATIENCE,
    ) -> None:
        self._file = file
        self._pipeline = pipeline
        #: whether the file has other pipelines too, so that next steps must name this one
        self._several = several
        self._as_json = as_json
        #: a run: the totals are of interest, and in a log the time of each line
        self._closing = closing
        #: called when nobody reads our output any more
        self._broken = broken
        self._progress = Progress()
        self._cost = Cost()
        self._began = datetime.now(UTC)
        self._silence = Silence(self._speak_up, patience)
        self._printing = threading.Lock()
        #: says a mark in words; the source's own, once there is one
        self.words: Callable[[str | None], str] = str

    def __enter__(self) -> Self:
        if not self._as_json:
            self._silence.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._as_json:
            self._silence.stop()

    def emit(self, message: Message) -> None:
        """Print a message; the engine's `emit`."""
        message = with_commands(message, self._file, self._pipeline if self._several else None)
        if isinstance(message, Eof):
            message = replace(message, cpu_seconds=self._cost.seconds())
        elif isinstance(message, StepDone):
            self._cost.look()
        self._progress = apply(self._progress, message)
        self._show(message)

    def _show(self, message: Message) -> None:
        for line in self._lines(message):
            self._tell(line, message.ts)
        if self._as_json:
            self._print(encode(message))

    def _lines(self, message: Message) -> list[Line]:
        if isinstance(message, Eof) and not self._closing and not message.exit_code:
            return []
        debug = bool(os.environ.get(TRACEBACK))
        return lines(message, self._progress, pipeline=self._pipeline, words=self.words, debug=debug)

    def _tell(self, line: Line, at: datetime | None = None) -> None:
        self._silence.heard()
        at = at or datetime.now(UTC)
        if line.error:
            say(self._dated(line.text, at, sys.stderr))
        elif not self._as_json:
            self._print(self._dated(line.text, at, sys.stdout))

    def _speak_up(self) -> None:
        now = datetime.now(UTC)
        self._print(self._dated(still(self._progress, now, self._began, self._pipeline), now, sys.stdout))

    def _dated(self, text: str, at: datetime, stream: TextIO) -> str:
        """With the time, where a run's lines go into a log; people at a terminal know what time it is."""
        return dated(text, at) if self._closing and not stream.isatty() else text

    def _print(self, text: str) -> None:
        with self._printing:
            try:
                print(text, flush=True)
            except BrokenPipeError:
                # Go on to a clean end, saying nothing; Python itself would complain once more at its own end.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                self._broken()

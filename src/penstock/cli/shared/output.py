"""Prints a pipeline's messages as text or JSON, and errors on standard error.

On a terminal, `run` shows a live display instead: `display.live`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Self, TextIO

from penstock.cli.shared.cpu_time import CpuTime
from penstock.cli.shared.error_report import TRACEBACK, print_error
from penstock.cli.shared.quiet_timer import QUIET_SECONDS, QuietTimer, progress_line
from penstock.cli.shared.render import Line, dated, lines
from penstock.core.messages import Eof, Message, StepDone, encode, with_commands
from penstock.core.progress import Progress, apply


def live_wanted(*, plain: bool, as_json: bool) -> bool:
    """Whether standard output is a terminal that can show the live display."""
    capable = os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    return capable and not plain and not as_json and sys.stdout.isatty()


class Output:
    """Prints the messages of one pipeline as they arrive."""

    def __init__(
        self,
        file: str,
        pipeline: str,
        *,
        as_json: bool,
        several: bool = False,
        summary: bool = True,
        broken: Callable[[], None],
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        self._file = file
        self._pipeline = pipeline
        #: whether the file has other pipelines, so that next steps must name this one
        self._several = several
        self._as_json = as_json
        #: print totals at the end and, in a log, the time of each line
        self._summary = summary
        #: called when the reader of our output has exited
        self._broken = broken
        self._progress = Progress()
        self._cpu_time = CpuTime()
        self._began = datetime.now(UTC)
        self._quiet_timer = QuietTimer(self._print_progress, quiet_seconds)
        self._printing = threading.Lock()
        #: print text on standard error: the caller prints a document on standard output
        self.to_stderr = False
        #: turns a stored mark into text; the source's own function once there is a source
        self.describe_mark: Callable[[str | None], str] = str

    def __enter__(self) -> Self:
        if not self._as_json:
            self._quiet_timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._as_json:
            self._quiet_timer.stop()

    def emit(self, message: Message) -> None:
        """Print a message; the engine's `emit`."""
        message = with_commands(message, self._file, self._pipeline if self._several else None)
        if isinstance(message, Eof):
            message = replace(message, cpu_seconds=self._cpu_time.seconds())
        elif isinstance(message, StepDone):
            self._cpu_time.sample()
        self._progress = apply(self._progress, message)
        self._show(message)

    def _show(self, message: Message) -> None:
        for line in self._lines(message):
            self._print_line(line, message.ts)
        if self._as_json:
            self._print(encode(message))

    def _lines(self, message: Message) -> list[Line]:
        if isinstance(message, Eof) and not self._summary and not message.exit_code:
            return []
        debug = bool(os.environ.get(TRACEBACK))
        return lines(message, self._progress, pipeline=self._pipeline, describe_mark=self.describe_mark, debug=debug)

    def _print_line(self, line: Line, at: datetime | None = None) -> None:
        self._quiet_timer.restart()
        at = at or datetime.now(UTC)
        if line.error:
            print_error(self._dated(line.text, at, sys.stderr))
        elif not self._as_json:
            self._print(self._dated(line.text, at, sys.stdout))

    def _print_progress(self) -> None:
        now = datetime.now(UTC)
        self._print(self._dated(progress_line(self._progress, now, self._began, self._pipeline), now, sys.stdout))

    def _dated(self, text: str, at: datetime, stream: TextIO) -> str:
        """Add the time to each line of a run unless the output is a terminal."""
        return dated(text, at) if self._summary and not stream.isatty() else text

    def _print(self, text: str) -> None:
        with self._printing:
            try:
                print(text, file=sys.stderr if self.to_stderr else sys.stdout, flush=True)
            except BrokenPipeError:
                # End cleanly without output: Python would report the broken pipe again at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                self._broken()

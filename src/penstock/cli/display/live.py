"""Updates the live display of a run on a terminal, and leaves the summary table there."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO, cast

from penstock.cli.display import pace
from penstock.cli.display.view import View, Viewport, clock
from penstock.cli.shared.output import Output
from penstock.cli.shared.render import Line
from penstock.core.messages import Eof, Log, Message, Status, StreamStatus

if TYPE_CHECKING:
    from penstock.cli.display.region import Region

#: frames per second
FRAME_RATE = 8
#: seconds before the first frame; a shorter run shows none and does not import Rich
FIRST_FRAME_SECONDS = 0.5


class LiveOutput(Output):
    """Shows the messages of one pipeline as a live display."""

    def __init__(
        self,
        file: str,
        pipeline: str,
        *,
        several: bool = False,
        stopping: Callable[[], bool],
        broken: Callable[[], None],
    ) -> None:
        super().__init__(file, pipeline, as_json=False, several=several, broken=broken)
        self._pace = pace.Pace()
        self._stopping = stopping
        #: lines that the display replaces; printed if it is never shown
        self._replaced: list[tuple[Line, datetime | None]] = []
        self._last_lines: list[tuple[Line, datetime | None]] = []
        self._terminal = _Terminal(broken)
        self._region: Region | None = None
        self._redirected = ExitStack()
        self._begin, self._end = threading.Event(), threading.Event()
        self._painter = threading.Thread(target=self._paint, name="penstock-display", daemon=True)

    def __enter__(self) -> LiveOutput:
        self._painter.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the display, even if no last message has arrived."""
        if not self._end.is_set():
            self._finish()

    def _show(self, message: Message) -> None:
        self._pace = pace.apply(self._pace, message)
        printed = [(line, message.ts) for line in self._lines(message)]
        if isinstance(message, Log):
            for line, at in printed:
                self._print_line(line, at)
        elif isinstance(message, Eof):
            self._last_lines = printed
            self._finish()
        else:
            self._replaced += printed
            if isinstance(message, StreamStatus) and message.status is Status.START:
                self._begin.set()

    def _finish(self) -> None:
        self._end.set()
        self._begin.set()
        self._painter.join()
        self._redirected.close()
        if self._region is None:
            shown = [*self._replaced, *self._last_lines]
        else:
            from penstock.cli.display.summary import summary_table

            self._region.finish(summary_table(self._view(), self._terminal.viewport()))
            errors = (entry for entry in self._replaced if entry[0].error)
            last = [entry for entry in self._last_lines if not entry[0].recap]
            # Errors, with their next steps, come last.
            shown = sorted([*last, *errors], key=lambda entry: entry[0].error)
        for line, at in shown:
            self._print_line(line, at)

    def _view(self) -> View:
        return View(
            self._pipeline,
            self._progress,
            datetime.now(UTC),
            self._pace,
            describe_mark=self._describe_mark,
            begun=self._began,
            stopping=self._stopping(),
        )

    @functools.lru_cache(maxsize=1000)  # noqa: B019 (it lives as long as the run)
    def _describe_mark(self, mark: str | None) -> str:
        return self.describe_mark(mark)

    # ------------------------------------------------------------ in the painter's thread

    def _paint(self) -> None:
        self._begin.wait(FIRST_FRAME_SECONDS)
        if self._end.is_set():
            return
        from penstock.cli.display.frame import draw_frame

        region = self._terminal.region()
        if self._end.is_set():
            return
        self._region = region
        self._redirect(region)
        before: object = None
        while not self._end.is_set():
            view, viewport = self._view(), self._terminal.viewport()
            now = (view.progress, view.pace, view.stopping, viewport, clock(view.elapsed))
            if now != before:
                region.paint(draw_frame(view, viewport))
                before = now
            self._end.wait(1 / FRAME_RATE)

    def _redirect(self, region: Region) -> None:
        """Print all further output to this terminal above the frame."""
        self._redirected.enter_context(redirect_stdout(_above(region, sys.stdout)))
        if sys.stderr.isatty():
            self._redirected.enter_context(redirect_stderr(_above(region, sys.stderr)))


class _Terminal:
    """The terminal on standard output."""

    def __init__(self, broken: Callable[[], None]) -> None:
        self._out = sys.stdout
        self._broken = broken
        encoding = (self._out.encoding or "").lower().replace("-", "")
        # The Linux console has few characters.
        self._ascii = not encoding.startswith("utf") or os.environ.get("TERM") == "linux"

    def region(self) -> Region:
        from rich.console import Console

        from penstock.cli.display.region import Region

        console = Console(file=self._out, force_terminal=True, legacy_windows=False, highlight=False, emoji=False)
        return Region(console, self._write, self.size)

    def size(self) -> os.terminal_size:
        size = os.get_terminal_size(self._out.fileno())
        return os.terminal_size((size.columns or 80, size.lines or 24))

    def viewport(self) -> Viewport:
        """The terminal's size less one column, because a full line would wrap, and one line for the cursor."""
        size = self.size()
        return Viewport(max(1, size.columns - 1), max(1, size.lines - 1), self._ascii)

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except OSError:
            # The terminal is gone, and every further write would fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())
            self._broken()


def _above(region: Region, stream: TextIO) -> TextIO:
    return cast("TextIO", _LinesAbove(region, stream))


class _LinesAbove:
    """A stream whose complete lines are printed above the frame."""

    def __init__(self, region: Region, stream: TextIO) -> None:
        self._region, self._stream = region, stream
        self._partial_line = ""
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        whole, newline, self._partial_line = (self._partial_line + text).rpartition("\n")
        if newline:
            self._region.print_above(whole)
        return len(text)

    def flush(self) -> None:
        return None

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

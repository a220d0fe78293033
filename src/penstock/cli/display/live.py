"""Keeps the picture of a run moving on a terminal, and leaves the closing table there."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, TextIO, cast

from penstock.cli.display import pace
from penstock.cli.display.view import Look, View, clock
from penstock.cli.shared.output import Output
from penstock.cli.shared.render import Line
from penstock.core.messages import Eof, Log, Message, Status, StreamStatus

if TYPE_CHECKING:
    from penstock.cli.display.region import Area

#: pictures a second
RATE = 8
#: a run that ends sooner shows no picture, and does not pay for Rich
BEFORE = 0.5


class LiveOutput(Output):
    """Shows the messages of one pipeline as a picture that changes."""

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
        #: lines that the picture stands for; printed if there never is one
        self._kept: list[tuple[Line, datetime | None]] = []
        self._closing_lines: list[tuple[Line, datetime | None]] = []
        self._terminal = _Terminal(broken)
        self._area: Area | None = None
        self._redirected = ExitStack()
        self._begin, self._end = threading.Event(), threading.Event()
        self._painter = threading.Thread(target=self._paint, name="penstock-display", daemon=True)

    def __enter__(self) -> LiveOutput:
        self._painter.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends with what there is, also when no last message came."""
        if not self._end.is_set():
            self._finish()

    def _show(self, message: Message) -> None:
        self._pace = pace.apply(self._pace, message)
        told = [(line, message.ts) for line in self._lines(message)]
        if isinstance(message, Log):
            for line, at in told:
                self._tell(line, at)
        elif isinstance(message, Eof):
            self._closing_lines = told
            self._finish()
        else:
            self._kept += told
            if isinstance(message, StreamStatus) and message.status is Status.START:
                self._begin.set()

    def _finish(self) -> None:
        self._end.set()
        self._begin.set()
        self._painter.join()
        self._redirected.close()
        if self._area is None:
            shown = [*self._kept, *self._closing_lines]
        else:
            from penstock.cli.display.summary import closing

            self._area.last(closing(self._view(), self._terminal.look()))
            told = [*self._closing_lines, *(kept for kept in self._kept if kept[0].error)]
            # What to do next comes last.
            shown = sorted(told, key=lambda kept: kept[0].error)
        for line, at in shown:
            self._tell(line, at)

    def _view(self) -> View:
        return View(
            self._pipeline,
            self._progress,
            datetime.now(UTC),
            self._pace,
            describe_mark=self._in_words,
            begun=self._began,
            stopping=self._stopping(),
        )

    @functools.lru_cache(maxsize=1000)  # noqa: B019 (it lives as long as the run)
    def _in_words(self, mark: str | None) -> str:
        return self.words(mark)

    # ------------------------------------------------------------ in the painter's thread

    def _paint(self) -> None:
        self._begin.wait(BEFORE)
        if self._end.is_set():
            return
        from penstock.cli.display.frame import frame

        area = self._terminal.area()
        if self._end.is_set():
            return
        self._area = area
        self._redirect(area)
        before: object = None
        while not self._end.is_set():
            view, look = self._view(), self._terminal.look()
            now = (view.progress, view.pace, view.stopping, look, clock(view.elapsed))
            if now != before:
                area.paint(frame(view, look))
                before = now
            self._end.wait(1 / RATE)

    def _redirect(self, area: Area) -> None:
        """What anyone prints from here on appears above the picture, if it would appear on this terminal."""
        self._redirected.enter_context(redirect_stdout(_above(area, sys.stdout)))
        if sys.stderr.isatty():
            self._redirected.enter_context(redirect_stderr(_above(area, sys.stderr)))


class _Terminal:
    """The terminal on standard output."""

    def __init__(self, broken: Callable[[], None]) -> None:
        self._out = sys.stdout
        self._broken = broken
        encoding = (self._out.encoding or "").lower().replace("-", "")
        # The console of a bare Linux has few letters.
        self._ascii = not encoding.startswith("utf") or os.environ.get("TERM") == "linux"

    def area(self) -> Area:
        from rich.console import Console

        from penstock.cli.display.region import Area

        console = Console(file=self._out, force_terminal=True, legacy_windows=False, highlight=False, emoji=False)
        return Area(console, self._write, self.size)

    def size(self) -> os.terminal_size:
        size = os.get_terminal_size(self._out.fileno())
        return os.terminal_size((size.columns or 80, size.lines or 24))

    def look(self) -> Look:
        """One column and one line stay free: a full line would be folded, and the cursor rests below."""
        size = self.size()
        return Look(max(1, size.columns - 1), max(1, size.lines - 1), self._ascii)

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except OSError:
            # The terminal is gone; whoever printed next would fail as well.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())
            self._broken()


def _above(area: Area, stream: TextIO) -> TextIO:
    return cast("TextIO", _Above(area, stream))


class _Above:
    """Stands in for a stream: whole lines appear above the picture."""

    def __init__(self, area: Area, stream: TextIO) -> None:
        self._area, self._stream = area, stream
        self._begun = ""
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        whole, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            self._area.above(whole)
        return len(text)

    def flush(self) -> None:
        return None

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

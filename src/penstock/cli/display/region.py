"""Repaints the last lines of a terminal; other output appears above them.

Rich's Live is not used: it clears every line before drawing it, which flickers, and it loses its position when the
terminal becomes narrower and wraps lines. The cursor is never hidden and always rests below the frame, so that the
terminal is usable whenever the process ends, even by SIGKILL.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType

#: synchronized output: the terminal shows everything in between at once, or ignores these sequences
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_CLEAR_LINE, _CLEAR_BELOW = "\x1b[K", "\x1b[J"
_STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Region:
    """The lines at the bottom of a terminal in which frames are painted. Thread-safe."""

    def __init__(self, console: Console, write: Callable[[str], None], size: Callable[[], os.terminal_size]) -> None:
        self._console, self._write, self._size = console, write, size
        self._lock = threading.RLock()
        #: the lines on the screen, as they were sent
        self._lines: list[str] = []

    def paint(self, frame: RenderableType) -> None:
        """Replace the current frame."""
        with self._lock:
            width = self._size().columns
            lines = self._render(frame, width)
            if lines != self._lines:
                self._send([], lines, width)

    def print_above(self, text: str) -> None:
        """Print permanent lines above the frame."""
        with self._lock:
            self._send(text.splitlines(), self._lines, self._size().columns)

    def finish(self, frame: RenderableType) -> None:
        """Replace the current frame by a last one, which stays on the screen."""
        with self._lock:
            width = self._size().columns
            self._send(self._render(frame, width), [], width)

    def _send(self, above: Sequence[str], lines: list[str], width: int) -> None:
        # A terminal that became narrower has wrapped long lines.
        up = sum(max(1, -(-_width(line) // width)) for line in self._lines)
        back = f"\x1b[{up}A\r" if up else "\r"
        # After a full line the cursor is on its last character, which clearing would remove.
        text = "".join(line + ("" if _is_full(line, width) else _CLEAR_LINE) + "\n" for line in (*above, *lines))
        self._lines = lines
        self._write(f"{_BEGIN}{back}{text}{_CLEAR_BELOW}{_END}")

    def _render(self, frame: RenderableType, width: int) -> list[str]:
        # COLUMNS is ignored: it may have been exported for another terminal.
        self._console.width = width
        with self._console.capture() as captured:
            self._console.print(frame, end="", no_wrap=True)
        return captured.get().splitlines()


def _is_full(line: str, width: int) -> bool:
    """Whether a line ends in the last column."""
    cells = _width(line)
    return cells > 0 and cells % width == 0


def _width(line: str) -> int:
    return cell_len(_STYLES.sub("", line))

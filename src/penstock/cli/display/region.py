"""The last lines of a terminal, painted again and again; whatever is written meanwhile appears above them.

Not Rich's Live: it clears every line before it draws it, which flickers, and loses its place when a terminal becomes
narrower and folds the lines that are there. The cursor is never hidden and always rests below the picture, so that
the terminal is in order whenever the process ends, by SIGKILL too.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType

#: the terminal shows at once what lies between; one that does not know it ignores it
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_CLEAR_LINE, _CLEAR_BELOW = "\x1b[K", "\x1b[J"
_STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Area:
    """Where pictures are painted. May be used by several threads."""

    def __init__(self, console: Console, write: Callable[[str], None], size: Callable[[], os.terminal_size]) -> None:
        self._console, self._write, self._size = console, write, size
        self._lock = threading.RLock()
        #: what stands there, as it was sent
        self._lines: list[str] = []

    def paint(self, picture: RenderableType) -> None:
        """Show a picture in place of the one before."""
        with self._lock:
            width = self._size().columns
            lines = self._drawn(picture, width)
            if lines != self._lines:
                self._send([], lines, width)

    def above(self, text: str) -> None:
        """Write lines above the picture; they stay."""
        with self._lock:
            self._send(text.splitlines(), self._lines, self._size().columns)

    def last(self, picture: RenderableType) -> None:
        """Put another picture in place of the one before; it stays, and the area is empty again."""
        with self._lock:
            width = self._size().columns
            self._send(self._drawn(picture, width), [], width)

    def _send(self, above: Sequence[str], lines: list[str], width: int) -> None:
        # A line that the terminal has become too narrow for was folded by it.
        up = sum(max(1, -(-_wide(line) // width)) for line in self._lines)
        back = f"\x1b[{up}A\r" if up else "\r"
        # After a full line the cursor stands on its last letter: clearing from there would take it away.
        text = "".join(line + ("" if _full(line, width) else _CLEAR_LINE) + "\n" for line in (*above, *lines))
        self._lines = lines
        self._write(f"{_BEGIN}{back}{text}{_CLEAR_BELOW}{_END}")

    def _drawn(self, picture: RenderableType, width: int) -> list[str]:
        # Not what COLUMNS says: it may have been exported when the terminal was another one.
        self._console.width = width
        with self._console.capture() as captured:
            self._console.print(picture, end="", no_wrap=True)
        return captured.get().splitlines()


def _full(line: str, width: int) -> bool:
    """Whether it ends in the last column."""
    wide = _wide(line)
    return wide > 0 and wide % width == 0


def _wide(line: str) -> int:
    return cell_len(_STYLES.sub("", line))

"""A terminal that tests can look at: a real pseudo-terminal, and an emulator that keeps the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyte

#: a screen that does not come to show what is waited for in this many seconds never will
WAIT_SECONDS = 60.0


class Terminal:
    """A command on a terminal of its own."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        columns: int = 100,
        lines: int = 30,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=1000)
        self._stream = pyte.ByteStream(self.screen)
        self._lock = threading.Lock()
        #: everything that was sent
        self.sent = b""
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env={**os.environ, "TERM": "xterm-256color", **environment},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        with self._lock:
            self.screen.resize(lines, columns)

    @property
    def shown(self) -> list[str]:
        """The lines of the screen, without the empty ones at its end."""
        with self._lock:
            lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        return "\n".join(self.shown)

    @property
    def at(self) -> tuple[int, int]:
        """The line and the column that the cursor is in."""
        with self._lock:
            return self.screen.cursor.y, self.screen.cursor.x

    @property
    def cursor_seen(self) -> bool:
        with self._lock:
            return not self.screen.cursor.hidden

    def wait(self, seen: Callable[[str], bool]) -> str:
        """Wait until the screen shows something."""
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            if seen(self.text):
                return self.text
            time.sleep(0.02)
        raise AssertionError(f"never seen; the screen shows:\n{self.text}")

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> int:
        """Wait for its end; the exit code."""
        code = self.process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        return code

    def close(self) -> None:
        self.process.kill()
        self.end()
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                got = os.read(self._master, 65536)
            except OSError:
                return  # how Linux says that nobody has the other end open any more
            if not got:
                return
            with self._lock:
                self.sent += got
                self._stream.feed(got)

"""Prints the demo's text and runs its commands on the same terminal.

No started command outlives the stage.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

import psutil

from penstock.errors import Interrupted, PenstockError

#: seconds to wait for a command to stop before it is killed
STOP_SECONDS = 20.0
#: maximum characters per line of text
WIDTH = 100
_SHOW_CURSOR = "\x1b[?25h"


class DemoFailed(PenstockError):
    """The demo had an unexpected result."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    seconds: float
    #: the names of the programs that it was seen to start
    started: frozenset[str]


class Stage:
    """Prints text, and runs commands in the demo's environment."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def act(self, number: int, title: str) -> None:
        print(f"\n{self._in('1;36', f'{number}. {title}')}", flush=True)

    def print_text(self, text: str) -> None:
        """Print a paragraph."""
        print(textwrap.fill(text, WIDTH), flush=True)

    def show(self, text: str) -> None:
        """Print preformatted lines, indented."""
        print(textwrap.indent(text, "    "), flush=True)

    def show_columns(self, lines: dict[str, str]) -> None:
        """Print pairs in two columns, indented."""
        wide = max(map(len, lines))
        self.show("\n".join(f"{left:<{wide}}  {right}" for left, right in lines.items()))

    def good(self, text: str) -> None:
        """Print a result that was just verified."""
        print(self._in("32", text), flush=True)

    def _in(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self.colours else text

    # ------------------------------------------------------------ commands

    def penstock(self, *words: str, last_lines: int | None = None) -> Ended:
        """Run a command to its end; DemoFailed if its exit code is not 0. `last_lines`: only these are shown."""
        began = time.monotonic()
        started: set[str] = set()
        with tempfile.TemporaryFile("w+b") as aside:
            with self.running(*words, aside=aside if last_lines else None, suffix=_tail(last_lines)) as process:
                while process.poll() is None:
                    started |= _names(_descendants(process))
                    time.sleep(0.1)
            aside.seek(0)
            lines = aside.read().decode(errors="replace").splitlines()
        shown = lines[-last_lines:] if last_lines and process.returncode == 0 else lines
        print(*shown, sep="\n", end="\n" if shown else "", flush=True)
        if process.returncode != 0:
            raise DemoFailed(
                f"`{command_text(words)}` ended with exit code {process.returncode}",
                safe="",
                next_step="read its output above",
            )
        return Ended(time.monotonic() - began, frozenset(started))

    @contextmanager
    def running(
        self, *words: str, aside: IO[bytes] | None = None, suffix: str = ""
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command on our terminal, or with its output in a file; stop it at the end if it is still running."""
        print(self._in("1", f"$ {command_text(words)}{suffix}"), flush=True)
        # If this process is killed, the command receives SIGTERM.
        command = ["setpriv", "--pdeathsig", "TERM", "--", sys.executable, "-m", "penstock", *words]
        process = subprocess.Popen(command, env=self.environment, stdout=aside)
        try:
            yield process
        finally:
            self._end(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill only the command with SIGKILL, and wait until the processes it started have ended by themselves."""
        family = _descendants(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if sys.stdout.isatty():
            print(_SHOW_CURSOR, flush=True)  # a killed display cannot restore the cursor
        _wait_for_end(family)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is not None:
            return
        family = _descendants(process)
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _wait_for_end(family)


def command_text(words: tuple[str, ...]) -> str:
    """A command as it is typed."""
    return shlex.join(["penstock", *words])


def _tail(lines: int | None) -> str:
    return "" if lines is None else f" | tail -{lines}"


def short_path(path: Path) -> str:
    """A path relative to the current folder if it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _names(family: list[psutil.Process]) -> set[str]:
    """The names of those that are still there: any of them may end while it is asked."""
    names = set()
    for process in family:
        with suppress(psutil.NoSuchProcess):
            names.add(process.name())
    return names


def _wait_for_end(family: list[psutil.Process]) -> None:
    """Wait until these processes have ended, and kill those that do not end."""
    for process in psutil.wait_procs(family, STOP_SECONDS)[1]:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted at the first SIGINT, SIGTERM or SIGHUP; ignore further ones during the cleanup."""
    received: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise Interrupted(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

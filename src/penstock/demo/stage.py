"""What the demo says and the commands it runs: each printed as one would type it, then run on the same terminal.

No command that was started outlives the stage, whatever happens.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from penstock.demo.processes import alive, descendants, name_of
from penstock.errors import Interrupted, PenstockError

#: seconds that a command which was asked to stop may take
PATIENCE = 20.0
WIDTH = 100
_SHOW_CURSOR = "\x1b[?25h"


class DemoFailed(PenstockError):
    """Something is not as it should be."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    seconds: float
    #: the names of the programs that it started, as far as they were seen
    started: frozenset[str]


class Stage:
    """Speaks, and runs commands in the environment of the demo."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def act(self, number: int, title: str) -> None:
        print(f"\n{self._in('1;36', f'{number}. {title}')}", flush=True)

    def say(self, text: str) -> None:
        """A paragraph."""
        print(textwrap.fill(text, WIDTH), flush=True)

    def pause(self) -> None:
        """An empty line, after what a command has said."""
        print(flush=True)

    def show(self, text: str) -> None:
        """Lines as they are, set off from what is said."""
        print(textwrap.indent(text, "    "), flush=True)

    def good(self, text: str) -> None:
        """What has been proven just now."""
        print(self._in("32", text), flush=True)

    def _in(self, colour: str, text: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self.colours else text

    # ------------------------------------------------------------ commands

    def penstock(self, *words: str) -> Ended:
        """Run a command to its end; DemoFailed if it does not end well."""
        began = time.monotonic()
        started: set[str] = set()
        with self.running(*words) as process:
            while process.poll() is None:
                started |= {name_of(pid) for pid in descendants(process.pid)}
                time.sleep(0.1)
        if process.returncode != 0:
            raise DemoFailed(
                f"`{typed(words)}` ended with {process.returncode}",
                safe="",
                next_step="see what it says above",
            )
        return Ended(time.monotonic() - began, frozenset(started))

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that runs on our terminal; whatever is left of it at the end is ended."""
        print(f"\n{self._in('1', f'$ {typed(words)}')}", flush=True)
        # Should we be killed, it is asked to stop.
        command = ["setpriv", "--pdeathsig", "TERM", "--", sys.executable, "-m", "penstock", *words]
        process = subprocess.Popen(command, env=self.environment)
        try:
            yield process
        finally:
            self._end(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL, to the command alone; what it had started must end by itself, and is waited for."""
        family = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        # A display that is killed cannot put the cursor back.
        print(_SHOW_CURSOR if sys.stdout.isatty() else "", flush=True)
        _gone(family)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is not None:
            return
        family = descendants(process.pid)
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _gone(family)


def typed(words: tuple[str, ...]) -> str:
    """A command as one would type it."""
    return shlex.join(["penstock", *words])


def near(path: Path) -> str:
    """A path as short as it can be said from here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _gone(family: dict[int, str]) -> None:
    """Wait until these processes have ended; end what does not."""
    end = time.monotonic() + PATIENCE
    while any(alive(pid, born) for pid, born in family.items()):
        if time.monotonic() > end:
            for pid, born in family.items():
                if alive(pid, born):
                    os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.05)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM come as Interrupted, once; while one cleans up after it, more of them change nothing."""
    heard: list[int] = []

    def hear(number: int, _frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) == 1:
            raise Interrupted(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Commands that begin at once: a process that has imported what they need forks for each of them.

A new interpreter takes more than a second to import what a run needs, and the fault harness starts hundreds. What is
forked is a process of its own all the same: with its own id, folder, environment and signals, and an end of its own.

    python -m tests.harness.forking FOLDER      (in the checkout)

reads an order from each line that it is sent. It leaves `pid`, `out`, `err` and at the end `code` in the place that the
order names, within the folder, and removes the folder when nobody can send anything any more.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import mkdtemp
from typing import Any

from tests.harness.statements import rehearse, share_compiled

import penstock
from penstock.warm.imports import IMPORTED_BY_RUNS, IMPORTED_WITH_LAKE, freeze_for_forks

#: rooms of which every module is imported: a command needs those of its source, sink and words
ROOMS = ("cli", "config", "engine", "shaping", "sinks", "sources", "store", "wal")
#: imported by commands, besides those and what every run imports
IMPORTED_BY_COMMANDS = (
    "anyio._backends._asyncio",
    "click",
    "encodings.ascii",
    "encodings.idna",
    "encodings.utf_8_sig",
    "google_crc32c",
    "h2.connection",
    "httpcore",
    "httptools",
    "httpx",
    "importlib.readers",
    "importlib.resources.readers",
    "mimetypes",
    "msgspec",
    "penstock.core.exits",
    "penstock.links.http.direct",
    "penstock.links.http.protocol",
    "penstock.links.spark",
    "penstock.links.spark.runtime",
    "penstock.links.spools",
    "penstock.warm.handover",
    "penstock.warm.worker",
    "pydantic.type_adapter",
    "rich.console",
    "rich.live",
    "rich.progress",
    "tests.harness.command",
    "tests.harness.doubles",
    "tests.harness.rest_api",
    "typer._adapters",
    "typer._click._textwrap",
    "typer._click.decorators",
)
#: of prctl(2)
PR_SET_PDEATHSIG = 1
#: seconds between two looks of a waiting process: at a start, and at an end, which takes longer
POLL_SECONDS = 0.005
END_POLL_SECONDS = 0.02


class Forked:
    """A command that was forked; as much of `subprocess.Popen` as is needed."""

    def __init__(self, place: Path, nursery: subprocess.Popen[str]) -> None:
        self._place = place
        while (found := _read(place / "pid")) is None:
            assert nursery.poll() is None, "the process that forks has ended"
            time.sleep(POLL_SECONDS)
        self.pid = int(found)

    @property
    def returncode(self) -> int:
        found = self.poll()
        assert found is not None, "it has not ended"
        return found

    def poll(self) -> int | None:
        found = _read(self._place / "code")
        return None if found is None else int(found)

    def kill(self) -> None:
        """SIGKILL, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def first_line(self) -> str:
        """Wait for the first line that it writes; empty if it ends without."""
        while True:
            ended = self.poll() is not None
            line, newline, _ = (_read(self._place / "out") or "").partition("\n")
            if newline or ended:
                return line
            time.sleep(POLL_SECONDS)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; what it has written."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("penstock", timeout or 0)
            time.sleep(END_POLL_SECONDS)
        # One that was killed at once has not opened its files yet.
        return _read(self._place / "out") or "", _read(self._place / "err") or ""


class Nursery:
    """The process that forks, as its parent sees it."""

    def __init__(self) -> None:
        self._folder = mkdtemp(prefix="penstock-forked-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.forking", self._folder],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self._lock = threading.Lock()
        self._count = 0

    def start(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], *, serves: str | None = None
    ) -> Forked:
        """Begin `command.py WORDS`; or the server of a module, which ends with the process that forks."""
        assert self._process.stdin is not None
        with self._lock:
            self._count += 1
            place = Path(self._folder, str(self._count))
            place.mkdir()
            order = {
                "place": str(place),
                "serves": serves,
                "words": words,
                "folder": str(folder),
                "environment": dict(environment),
            }
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        return Forked(place, self._process)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@cache
def nursery() -> Nursery:
    """The one of this process."""
    made = Nursery()
    atexit.register(made.close)
    return made


def main() -> None:
    for name in (*IMPORTED_BY_RUNS, *IMPORTED_WITH_LAKE, *IMPORTED_BY_COMMANDS, *_modules_of_rooms()):
        import_module(name)
    _build_commands()
    share_compiled()
    rehearse()
    freeze_for_forks()
    order = _serve()
    if order is None:
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        return
    # Back at the bottom of the stack, as a command of its own.
    program = import_module(order["serves"] or "tests.harness.command")
    if order["serves"]:
        _end_with_parent()
    sys.argv = [str(program.__file__), *order["words"]]
    try:
        program.main()
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        _end(end.code or 0)
    _end(0)


def _modules_of_rooms() -> Iterator[str]:
    for room in ROOMS:
        for module in walk_packages([str(Path(penstock.__path__[0], room))], f"penstock.{room}."):
            # Alembic's own file, which only it can run.
            if not module.name.endswith(".migrations.env"):
                yield module.name


def _end(code: int) -> None:
    """End as an interpreter ends, but free nothing: that would copy every page of memory that forks share."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the end of every interpreter does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _end_with_parent() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _build_commands() -> None:
    """Build the commands once, which Typer does whenever one is called."""
    import typer.main

    from penstock.cli import app

    built = typer.main.get_command(app)
    setattr(typer.main, "get_command", lambda _: built)  # noqa: B010 (a function of a module is no variable to mypy)


def _serve() -> dict[str, Any] | None:
    """Fork at every order. Returns the order in what was forked, and None at the end of all orders."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    places: dict[int, Path] = {}
    orders = b""
    while True:
        ready, _, _ = select.select([0, reading], [], [])
        if reading in ready:
            os.read(reading, 4096)
            _bury(places)
        if 0 not in ready:
            continue
        told = os.read(0, 65536)
        if not told:
            return None
        *lines, orders = (orders + told).split(b"\n")
        for line in lines:
            order: dict[str, Any] = json.loads(line)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                os.close(reading)
                os.close(writing)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _settle(order)
                return order
            places[pid] = Path(order["place"])
            _leave(places[pid] / "pid", pid)


def _bury(places: dict[int, Path]) -> None:
    """Leave how each command has ended that has: only its parent can know."""
    while places:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        _leave(places.pop(pid) / "code", os.waitstatus_to_exitcode(status))


def _settle(order: Mapping[str, Any]) -> None:
    """Take the folder, environment and files that the order names."""
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for number, path, how in (
        (0, Path(os.devnull), os.O_RDONLY),
        (1, Path(order["place"], "out"), os.O_WRONLY | os.O_CREAT),
        (2, Path(order["place"], "err"), os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, how)
        os.dup2(opened, number)
        os.close(opened)


def _leave(path: Path, number: int) -> None:
    # Whole under another name first: the one who waits must not read half of it.
    temporary = path.with_name(f"{path.name}-")
    temporary.write_text(str(number))
    temporary.replace(path)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    main()

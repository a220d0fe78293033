"""A shop with a warm worker of its own: commands that hand over to it, points at which runs halt, what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
from tests.acceptance.shop import Shop
from tests.harness.command import START
from tests.harness.faults import PATIENCE, Outcome, Running

from penstock.links.spark import archive

LOOK_SECONDS = 0.01
Found = TypeVar("Found")


@dataclass
class Halted(Running):
    """A command whose run in the worker halts at a point."""

    point: Path = field(default_factory=Path)

    def reached(self) -> dict[str, Any]:
        """Wait until the run halts; what the point said. `pid` is that of the run's process, or of a Python worker."""
        return Running(self.process, self.point).reached()

    def go(self) -> None:
        (self.point / "go").touch()


@dataclass
class WarmShop:
    """A shop, its worker, and the place where runs in the worker look for a point to halt at."""

    shop: Shop
    folder: Path
    worker: subprocess.Popen[str] | None = None
    #: what the worker said when it was ready
    ready: dict[str, Any] = field(default_factory=dict)
    _points: int = 0
    _rows: int = 3000
    _moments: int = 0

    @classmethod
    def open(cls, url: str, folder: Path, **how: Any) -> WarmShop:
        shop = Shop.open(url, folder, **how)
        for name in ("runtime", "tmp", "cache"):
            (folder / name).mkdir(mode=0o700)
        shop.command.environment = {
            **shop.command.environment,
            "XDG_RUNTIME_DIR": str(folder / "runtime"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TMPDIR": str(folder / "tmp"),
            "PENSTOCK_ARCHIVES": os.environ.get(archive.VARIABLE) or str(archive.folder() or archive.OFF),
            "PENSTOCK_JARS": os.environ.get("PENSTOCK_JARS", str(Path.home() / ".cache" / "penstock" / "jars")),
            # It changes with every test, and the worker outlives several.
            "PYTEST_CURRENT_TEST": "",
        }
        return cls(shop, folder)

    def start_worker(self, *options: str, spark: bool = False, **settings: Any) -> None:
        """Start a worker in the foreground of a process of its own, and wait until it is ready.

        `settings` are those of `tests/harness/command.py`.
        """
        how = {"halts": str(self.folder / "halts.json"), **settings}
        how |= {} if spark else {"spark": "none", "mover": "loop"}
        words = ["warm", "shop.yaml", "--foreground", "--json"]
        with open(self.folder / "worker.log", "w") as log:
            self.worker = subprocess.Popen(
                [*START, json.dumps(how), *words, *options],
                cwd=self.folder,
                env={**os.environ, **self.shop.command.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self.worker.stdout is not None
        for line in self.worker.stdout:
            said = json.loads(line)
            if "ready" in said:
                self.ready = said["ready"]
                return
        raise AssertionError((self.folder / "worker.log").read_text())

    @property
    def pid(self) -> int:
        assert self.worker is not None
        return self.worker.pid

    def renew(self, *, spark: bool = False) -> None:
        """New rows for some slices, no point to halt at, and a worker, if the last one has ended."""
        self._moments += 1
        self.shop.arrive(self._rows + 1, self._rows + 2000, at=self._moments)
        self._rows += 2000
        self.clear()
        if self.worker is None or self.worker.poll() is not None:
            self.start_worker(spark=spark)

    # ------------------------------------------------------------ commands

    def run(self, *options: str) -> Outcome:
        return self.shop.command.run("run", "shop.yaml", *options)

    def run_here(self) -> Outcome:
        """A run that is not handed over, to the end."""
        self.clear()
        return self.shop.command.run("run", "shop.yaml", "--here", "--json")

    def halt(self, point: str, *options: str, nth: int = 1) -> Halted:
        """Start a command whose run in the worker halts at a point, and wait until it does."""
        place = self.halt_next(point, nth=nth)
        running = self.shop.command.start("run", "shop.yaml", *options)
        halted = Halted(running.process, running.folder, place)
        halted.reached()
        return halted

    def halt_next(self, point: str, *, nth: int = 1) -> Path:
        """Have runs in the worker halt at a point from now on; the folder where they say so."""
        self._points += 1
        place = self.folder / f"point-{self._points}"
        place.mkdir()
        (self.folder / "halts.json").write_text(json.dumps({"point": point, "nth": nth, "folder": str(place)}))
        return place

    def go(self) -> None:
        """Let a run go on from the point of the last `halt_next`."""
        (self.folder / f"point-{self._points}" / "go").touch()

    def clear(self) -> None:
        """Let runs from now on halt nowhere."""
        (self.folder / "halts.json").unlink(missing_ok=True)

    def status(self) -> dict[str, Any] | None:
        said = self.shop.command.run("status", "shop.yaml", "--json")
        assert said.code == 0, said.err
        found: dict[str, Any] | None = json.loads(said.out)["worker"]
        return found

    def run_pid(self) -> int:
        """The process of the run that is under way."""
        found = self.status()
        assert found is not None
        assert found["running"] is not None
        return int(found["running"])

    # ------------------------------------------------------------ ends

    def await_end(self) -> int:
        """Wait until the worker has ended by itself; its exit code."""
        assert self.worker is not None
        code = self.worker.wait(timeout=PATIENCE)
        if self.worker.stdout is not None:
            self.worker.stdout.close()
        return code

    def stop_worker(self) -> None:
        if self.worker is not None and self.worker.poll() is None:
            self.worker.send_signal(signal.SIGTERM)
        if self.worker is not None:
            self.await_end()

    def await_idle(self) -> dict[str, Any]:
        """Wait until the worker is free for the next run."""

        def idle() -> dict[str, Any] | None:
            found = self.status()
            return found if found is not None and found["running"] is None else None

        return until(idle)

    def running(self) -> list[psutil.Process]:
        """Everything that still runs in this shop's environment."""
        wanted = f"XDG_RUNTIME_DIR={self.folder / 'runtime'}".encode()
        found = []
        for process in psutil.process_iter(["pid"]):
            with suppress(OSError, psutil.Error):
                if wanted in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                    found.append(process)
        return found

    def processes(self) -> list[str]:
        """The command lines of everything that still runs in this shop's environment."""
        found = []
        for process in self.running():
            with suppress(psutil.Error):
                found.append(" ".join(process.cmdline())[:120])
        return found

    def left_behind(self) -> list[str]:
        """What an ended worker and its runs have left; waits a little for processes that are just ending."""
        end = time.monotonic() + PATIENCE
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(LOOK_SECONDS * 10)
        left += [str(path) for path in (self.folder / "runtime").rglob("*") if path.name != "penstock"]
        left += [str(path) for path in (self.folder / "tmp").iterdir() if not path.name.endswith(".log")]
        return left + self.staged()

    def staged(self) -> list[str]:
        """Files in the sink that no slice has taken."""
        return [str(path) for path in (self.folder / "out").glob("_penstock/*/*/staged/*")]

    def check_whole(self) -> None:
        """A run that is not handed over finishes what is open; the sink has what the source has."""
        done = self.run_here()
        assert done.code == 0, done.err
        compared = self.shop.compared()
        assert compared.same, compared


def until(look: Callable[[], Found | None]) -> Found:
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(LOOK_SECONDS)
    raise AssertionError("never came true")


@contextmanager
def warm_shop(
    url: str, folder: Path, *options: str, spark: bool = False, settings: Mapping[str, Any] | None = None, **how: Any
) -> Iterator[WarmShop]:
    """A shop with a worker; whatever becomes of it, no process stays. `how` is the shop, `settings` the worker."""
    warm = WarmShop.open(url, folder, **how)
    try:
        warm.start_worker(*options, spark=spark, **(settings or {}))
        yield warm
    finally:
        if warm.worker is not None:
            if warm.worker.poll() is None:
                warm.worker.kill()
            warm.await_end()

"""A real PostgreSQL for tests: Debian's newest server on a loopback port, in a directory of its own."""

from __future__ import annotations

import itertools
import shutil
import signal
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.demo.server import LocalServer, free_port

__all__ = ["PASSWORD", "PostgresServer", "free_port", "newest_programs"]

PASSWORD = "penstock"
INSTALLED = Path("/usr/lib/postgresql")


class PostgresServer(LocalServer):
    """One server, with databases that are never named alike; leaving the `with` removes all of it.

    It ends with the thread that started it, so a killed test run leaves no server behind.
    """

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        super().__init__(
            newest_programs(),
            directory,
            port=free_port(),
            password=PASSWORD,
            settings={"max_prepared_transactions": "10", "unix_socket_directories": str(directory)} | (settings or {}),
        )
        self._numbers = itertools.count(1)

    def database(self, name: str | None = None) -> str:
        """Create an empty database, of that name or of one never used before; return its URL."""
        return self.create(name or f"test_{next(self._numbers)}")

    def crash(self) -> None:
        """End at once, as `pg_ctl stop -m immediate` does: the next start recovers, and empties unlogged tables."""
        process, self._process = self._process, None
        if process is None:
            raise RuntimeError("this server was not started here, or has ended")
        process.send_signal(signal.SIGQUIT)
        process.wait()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory)


def newest_programs() -> Path:
    """The directory of the newest PostgreSQL that the machine's packages have installed."""
    found = [path.parent for path in INSTALLED.glob("*/bin/postgres") if path.parts[-3].isdigit()]
    if not found:
        raise RuntimeError(f"no PostgreSQL server programs under {INSTALLED}/*/bin; run script/setup")
    return max(found, key=lambda path: int(path.parts[-2]))

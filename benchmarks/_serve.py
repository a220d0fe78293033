"""`penstock serve` as a process of its own, and the rows of a lake table behind it."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks import _orders as orders
from pyiceberg.catalog.sql import SqlCatalog

#: seconds in which it must answer
START_SECONDS = 60.0


class Served:
    """A receiver in the folder `received`; leaving the `with` ends it."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [orders.COMMAND, "serve", "--directory", "received", "--port", str(port)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise SystemExit(f"penstock serve ended with {self._process.returncode}")
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=1):
                    return self
            except (OSError, urllib.error.URLError):
                time.sleep(0.05)
        self._process.kill()
        raise SystemExit("penstock serve does not answer")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        if (code := self._process.wait()) != 0 and error is None:
            raise SystemExit(f"penstock serve ended with {code}")


def rows_in_lake(folder: Path, namespace: str, table: str) -> int:
    """The rows of a table in the warehouse `landed`."""
    catalog = SqlCatalog("landed", uri=f"sqlite:///{folder}/landed/catalog.db")
    try:
        return int(catalog.load_table(f"{namespace}.{table}").scan().count())
    finally:
        catalog.close()

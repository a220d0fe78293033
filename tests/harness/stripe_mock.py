"""Stripe's own mock server for tests: it checks every parameter against Stripe's OpenAPI description.

    python -m tests.harness.stripe_mock

builds it once. Imports the standard library only: script/setup builds it while the locked packages are installed.
"""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.harness.go_programs import go_program

MODULE, VERSION = "github.com/stripe/stripe-mock", "v0.203.0"
#: seconds that a start may take on a busy machine
START_SECONDS = 60.0


def program() -> Path:
    """The server's program. Built if it is missing."""
    return go_program(MODULE, VERSION)


class StripeMock:
    """One server on a loopback port; it ends with the thread that started it."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        command = [str(program()), "-http-addr", f"127.0.0.1:{self._port}"]
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"stripe-mock does not answer at {self.url}")
            time.sleep(0.02)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


if __name__ == "__main__":
    print(program())

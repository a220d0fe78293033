"""Starts Spark in a thread: the caller can wait for it or give it up at any time."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable

from penstock.errors import StreamFailed

#: seconds that a start may take to notice that its JVM was killed
_NOTICE_SECONDS = 5.0


class BackgroundStart(threading.Thread):
    """Runs `work`, which registers the process that must be killed if the start is given up."""

    def __init__(self, work: Callable[[BackgroundStart], object]) -> None:
        super().__init__(name="penstock-start", daemon=True)
        self._work = work
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.given_up = False
        self.start()

    def run(self) -> None:
        try:
            self._work(self)
        except BaseException as error:  # noqa: BLE001 (handed to the thread that waits)
            self._failure = error

    def wait(self) -> None:
        """Wait until it is done, and raise its error."""
        self.join()
        if self._failure is not None:
            raise self._failure

    def register(self, process: subprocess.Popen[bytes]) -> None:
        """Note the JVM that was launched. StreamFailed if the start was given up before."""
        with self._lock:
            self._process = process
            given_up = self.given_up
        if given_up:
            process.kill()
            process.wait()
            raise cancelled_error()

    def give_up(self) -> None:
        """Kill the JVM. A start that has not launched one yet is left alone: it ends by itself."""
        with self._lock:
            self.given_up = True
            process = self._process
        if process is not None:
            process.kill()
            self.join(_NOTICE_SECONDS)


def cancelled_error() -> StreamFailed:
    return StreamFailed("the move was cancelled on request", next_step="run again; the slice is still open")

"""A start of Spark that goes on beside the caller, who can wait for it or give it up at any time."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable

from penstock.errors import StreamFailed

#: seconds that a start which was given up may take to notice that its JVM was killed
_NOTICE_SECONDS = 5.0


class Start(threading.Thread):
    """Runs `work`, which says by `launched` what must be killed if it is given up."""

    def __init__(self, work: Callable[[Start], object]) -> None:
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
        """Wait until it is done; raises what went wrong."""
        self.join()
        if self._failure is not None:
            raise self._failure

    def launched(self, process: subprocess.Popen[bytes]) -> None:
        """The JVM that it has launched. StreamFailed if it was given up before."""
        with self._lock:
            self._process = process
            given_up = self.given_up
        if given_up:
            process.kill()
            process.wait()
            raise given_up_error()

    def give_up(self) -> None:
        """Kill what it has launched. One that only prepares to launch is left alone: it ends by itself."""
        with self._lock:
            self.given_up = True
            process = self._process
        if process is not None:
            process.kill()
            self.join(_NOTICE_SECONDS)


def given_up_error() -> StreamFailed:
    return StreamFailed("the move was given up on request", next_step="run again; the slice is still open")

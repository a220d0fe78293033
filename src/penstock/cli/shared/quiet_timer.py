"""Prints a progress line when a run has printed nothing for 30 seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime

from penstock.cli.display.view import Activity, activity_of, describe_state
from penstock.cli.shared.render import count, describe_fetch, span
from penstock.core.progress import Progress

#: seconds without a line after which a progress line is printed
QUIET_SECONDS = 30.0


class QuietTimer:
    """Calls a function, from a thread of its own, whenever nothing was printed for a while."""

    def __init__(self, on_quiet: Callable[[], None], quiet_seconds: float = QUIET_SECONDS) -> None:
        self._on_quiet, self._quiet_seconds = on_quiet, quiet_seconds
        self._last_line = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="penstock-quiet-timer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def restart(self) -> None:
        """Count again from now: a line was printed."""
        self._last_line = time.monotonic()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _wait(self) -> None:
        while not self._stopped.wait(max(0.01, self._last_line + self._quiet_seconds - time.monotonic())):
            if time.monotonic() - self._last_line >= self._quiet_seconds:
                self.restart()
                self._on_quiet()


def progress_line(progress: Progress, now: datetime, began: datetime, pipeline: str) -> str:
    """One line that says what a run is doing, and for how long."""
    if progress.starting:
        waited = span((now - (progress.starting_since or began)).total_seconds())
        return f"{pipeline}: still starting {progress.starting}, {waited} so far"
    waited = span((now - (progress.updated or began)).total_seconds())
    for name, stream in progress.streams.items():
        if stream.doing and stream.fetched:
            done = stream.fetched.share_done
            of_range = f", {done:.0%} of its range of time" if done is not None else ""
            return f"{pipeline}/{name}: still {stream.doing}: {describe_fetch(stream.fetched)}{of_range}"
        if stream.doing:
            return f"{pipeline}/{name}: still {stream.doing}"
        if activity_of(stream) is Activity.BUSY:
            expected = f" ({count(stream.expected, 'row')})" if stream.expected is not None else ""
            return f"{pipeline}/{name}: still {describe_state(stream)} slice {stream.number}{expected}, {waited} so far"
    doing = "checking for new rows" if progress.streams else "connecting"
    return f"{pipeline}: still {doing}, {waited} so far"

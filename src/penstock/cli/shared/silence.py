"""A log is never silent for minutes: what a run is doing, said again when nothing else was."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime

from penstock.cli.display.view import Mood, mood, state
from penstock.cli.shared.render import count, span
from penstock.core.progress import Progress

#: seconds without a line after which there is one
PATIENCE = 30.0


class Silence:
    """Calls `speak` whenever nothing was heard for a while, from a thread of its own."""

    def __init__(self, speak: Callable[[], None], patience: float = PATIENCE) -> None:
        self._speak, self._patience = speak, patience
        self._heard = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="penstock-silence", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def heard(self) -> None:
        self._heard = time.monotonic()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _listen(self) -> None:
        while not self._done.wait(max(0.01, self._heard + self._patience - time.monotonic())):
            if time.monotonic() - self._heard >= self._patience:
                self.heard()
                self._speak()


def still(progress: Progress, now: datetime, began: datetime, pipeline: str) -> str:
    """What a run is doing and for how long, in a line."""
    if progress.starting:
        waited = span((now - (progress.starting_since or began)).total_seconds())
        return f"{pipeline}: still starting {progress.starting}, {waited} so far"
    waited = span((now - (progress.updated or began)).total_seconds())
    for name, stream in progress.streams.items():
        if mood(stream) is Mood.BUSY:
            expected = f" ({count(stream.expected, 'row')})" if stream.expected is not None else ""
            return f"{pipeline}/{name}: still {state(stream)} slice {stream.number}{expected}, {waited} so far"
    doing = "looking for what is new" if progress.streams else "connecting"
    return f"{pipeline}: still {doing}, {waited} so far"

"""Watches work that keeps its thread waiting for minutes: reports how long it takes, and cancels it with the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.errors import PenstockError
from penstock.links.pause import cancelled_error, refuse_cancelled
from penstock.ports import Context, is_never_cancelled, report_nothing

#: after which work is reported, and reported again
REPORT_SECONDS = 5.0
#: between two looks whether the run is to end
_POLL_SECONDS = 0.25


class Watch:
    """Watches the work on one stream."""

    def __init__(self, context: Context, stream: str) -> None:
        self._context, self._stream = context, stream

    @contextmanager
    def report(self, doing: str) -> Iterator[None]:
        """Report what is done, such as `merging 1,000 rows`, and since when, while it takes long."""
        if self._context.report is report_nothing:
            yield
            return
        with self._beside(self._reporter(doing)):
            yield

    @contextmanager
    def cancel(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Call `cancel` while the run is to end, again and again until the work is over; StreamFailed then.

        When this is left, no call of it is under way, and none follows.
        """
        if self._context.is_cancelled is is_never_cancelled:
            yield
            return
        refuse_cancelled(self._context.is_cancelled)
        cancelled = False

        def look() -> None:
            nonlocal cancelled
            if self._context.is_cancelled():
                cancelled = True
                cancel()

        try:
            with self._beside(look):
                yield
        except PenstockError:
            raise
        except Exception as error:
            if cancelled:
                raise cancelled_error() from error
            raise
        if cancelled:
            raise cancelled_error()

    def _reporter(self, doing: str) -> Callable[[], None]:
        begun = reported = time.monotonic()

        def report() -> None:
            nonlocal reported
            if (now := time.monotonic()) - reported >= REPORT_SECONDS:
                reported = now
                self._context.report(self._stream, f"{doing}, {now - begun:.0f} s")

        return report

    @contextmanager
    def _beside(self, look: Callable[[], None]) -> Iterator[None]:
        """Look every moment, in a thread of its own."""
        end = threading.Event()

        def watch() -> None:
            while not end.wait(_POLL_SECONDS):
                look()

        thread = threading.Thread(target=watch, name="penstock-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

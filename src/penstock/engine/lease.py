"""Holding the lease while a run works: a heartbeat beside it, and word when someone took over."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.errors import LeaseLost, PenstockError
from penstock.ports import Clock, Lease, Store


class Heartbeat:
    """Renews a lease every third of its life. Safety does not rest on it: the chain decides."""

    def __init__(self, store: Store, lease: Lease, clock: Clock, ttl: float, on_lost: Callable[[], None]) -> None:
        self._store, self._lease, self._clock, self._ttl, self._on_lost = store, lease, clock, ttl, on_lost
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="penstock-heartbeat", daemon=True)
        #: the newest beat that failed, in words; None: all is well
        self.trouble: str | None = None

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(timeout=self._ttl)

    def _beat(self) -> None:
        while not self._end.wait(self._ttl / 3):
            try:
                self._store.heartbeat(self._lease, now=self._clock.now(), ttl=self._ttl)
                self.trouble = None
            except LeaseLost:
                self._on_lost()
                return
            except PenstockError as error:
                # A busy store may answer the next beat; if it never does, the lease runs out and the chain decides.
                self.trouble = error.what

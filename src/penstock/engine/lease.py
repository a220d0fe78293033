"""Renews the lease while a run works, and reports when another process took over or the store does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.errors import LeaseLost, PenstockError
from penstock.ports import Clock, Lease, Store

#: share of the lease after which a run ends whose lease could not be renewed: it must be gone before another begins
PATIENT_SHARE = 5 / 6


class Heartbeat:
    """Renews a lease every third of its life. Safety does not rest on it: the chain decides.

    A beat that fails is tried again. If none succeeds, `on_overdue` is called before the lease is over, also while the
    store keeps a beat waiting: so a second thread looks at the time.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        clock: Clock,
        ttl: float,
        on_lost: Callable[[], None],
        on_overdue: Callable[[], None],
    ) -> None:
        self._store, self._lease, self._clock, self._ttl = store, lease, clock, ttl
        self._on_lost, self._on_overdue = on_lost, on_overdue
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"penstock-{name}", daemon=True)
            for name, work in (("heartbeat", self._beat), ("lease", self._watch))
        ]
        self._renewed = clock.elapsed()
        #: why the newest beat failed; None: it did not
        self.trouble: str | None = None
        #: failures that were followed by a beat that succeeded, until they were taken note of
        self.recovered: str | None = None

    def __enter__(self) -> Heartbeat:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(timeout=self._ttl)

    def _beat(self) -> None:
        while not self._end.wait(self._ttl / 12 if self.trouble else self._ttl / 3):
            begun = self._clock.elapsed()
            try:
                self._store.heartbeat(self._lease, now=self._clock.now(), ttl=self._ttl)
            except LeaseLost:
                self._end.set()
                self._on_lost()
                return
            except PenstockError as error:
                self.trouble = error.what
            except Exception as error:  # noqa: BLE001 (reported when it ends the run; a thread that dies reports nothing)
                self.trouble = f"{type(error).__name__}: {error}"
            else:
                self._renewed = begun
                self.recovered, self.trouble = self.trouble or self.recovered, None

    def _watch(self) -> None:
        looked = resumed = self._clock.elapsed()
        while not self._end.wait(self._ttl / 24):
            before, looked = looked, self._clock.elapsed()
            if looked - before > self._ttl / 4:
                # The whole process stood still: the beat that comes now says whether another has taken over.
                resumed = looked
            if looked - max(self._renewed, resumed) >= self._ttl * PATIENT_SHARE:
                self._end.set()
                self._on_overdue()
                return

    @property
    def silent(self) -> float:
        """Seconds since the lease was last renewed."""
        return self._clock.elapsed() - self._renewed

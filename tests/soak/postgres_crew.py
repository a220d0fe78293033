"""What the soak's writers share: what each has done, who ends what they prepared, and when all must stop."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import psycopg

#: rows of each table that are there before the first writer
BEFORE = 2000
#: seconds that everybody has to come to an end
PATIENCE = 120.0

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass
class Work:
    """One transaction, or several that came together: what it wrote and how it ended."""

    kind: str
    writer: int
    touched: list[tuple[str, int]] = field(default_factory=list)
    outcome: str = "open"
    began: float = field(default_factory=time.time)
    ended: float | None = None

    def end(self, outcome: str) -> None:
        self.outcome, self.ended = outcome, time.time()

    def told(self) -> str:
        took = "" if self.ended is None else f" after {self.ended - self.began:.3f} s"
        return f"{self.kind} by writer {self.writer}, begun at {_clock(self.began)}, {self.outcome}{took}"


@dataclass
class Crew:
    """The writers, the notary who ends what they prepared, and what all of them know."""

    url: str
    seed: int
    #: seconds that a transaction may take
    longest: float
    #: transactions that may be prepared at the same time
    most_prepared: int
    #: most seconds between two transactions of a writer
    pause: float = 0.3
    works: list[Work] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    #: ids of `stamped` that anyone may update
    known: list[int] = field(default_factory=lambda: list(range(1, BEFORE + 1)))
    stop: threading.Event = field(default_factory=threading.Event)
    _began: float = field(default_factory=time.monotonic)
    _ended: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    #: (when, name, commit or roll back, whose)
    _prepared: list[tuple[float, str, bool, Work]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, lives: Iterable[Callable[[], None]]) -> None:
        self._threads = [threading.Thread(target=life, daemon=True) for life in (self._notary, *lives)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Nobody begins another transaction; all that are open or prepared end."""
        self.stop.set()
        notary, *writers = self._threads
        for thread in writers:
            thread.join(PATIENCE)
        self._ended.set()
        notary.join(PATIENCE)
        if any(thread.is_alive() for thread in self._threads):
            self.faults.append("a writer hangs")

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """How many pieces of work of each kind, by how they ended."""
        found: dict[str, Counter[str]] = {}
        for work in list(self.works):
            found.setdefault(work.kind, Counter())[work.outcome] += 1
        return {kind: dict(sorted(outcomes.items())) for kind, outcomes in sorted(found.items())}

    def history(self, table: str, id_: int) -> list[str]:
        return [work.told() for work in self.works if (table, id_) in work.touched]

    def may_prepare(self) -> bool:
        """Not too many, and in waves: between two of them the horizon rests on what is open alone."""
        wave = (time.monotonic() - self._began) // (2 * self.longest)
        with self._lock:
            return wave % 2 == 0 and len(self._prepared) < self.most_prepared

    def leave(self, name: str, seconds: float, *, commit: bool, work: Work) -> None:
        """Leave a prepared transaction to the notary."""
        with self._lock:
            self._prepared.append((time.monotonic() + seconds, name, commit, work))

    def _notary(self) -> None:
        try:
            with psycopg.connect(self.url, autocommit=True, application_name="notary") as db:
                while not self._ended.wait(0.02):
                    self._resolve(db, time.monotonic())
                self._resolve(db, float("inf"))
        except psycopg.Error as error:
            self.faults.append(f"the notary: {error}")

    def _resolve(self, db: Connection, now: float) -> None:
        with self._lock:
            due = [entry for entry in self._prepared if entry[0] <= now]
        for entry in due:
            _, name, commit, work = entry
            db.execute(f"{'commit' if commit else 'rollback'} prepared '{name}'".encode())
            work.end("committed" if commit else "rolled back")
            with self._lock:
                self._prepared.remove(entry)


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(moment)) + f"{moment % 1:.3f}"[1:]

"""How much of the past a store keeps: by age and by count. Marks and open slices are no part of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

#: the newest changes of a stream and the newest runs of a pipeline, which stay whatever their age: `state undo` and
#: the continuation of a run need them
NEWEST_KEPT = 20
#: old entries that are removed with one new one: more than one, so that a lower limit takes effect, and few, so that
#: no write takes long
REMOVED_AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """What is kept of a stream's changes and of a pipeline's runs."""

    #: older changes and runs are removed
    days: float = 90.0
    #: changes of one stream, at most
    changes: int = 2000
    #: runs of one pipeline, at most
    runs: int = 10_000

    def removes(self, *, at: datetime, newer: int, most: int, now: datetime) -> bool:
        """Whether an entry that has `newer` entries after it is removed."""
        if newer < NEWEST_KEPT:
            return False
        return newer >= max(most, NEWEST_KEPT) or at < now - timedelta(days=self.days)

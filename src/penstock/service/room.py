"""Room for batches: the budget of all logs together, and the backlog of each stream's readers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.config.receiver import ReceiverLog
from penstock.core.sizes import shown_size
from penstock.service.problems import Problem
from penstock.service.streams import Stream
from penstock.wal import segments
from penstock.wal.lag import ReaderLag, measure_lag

#: a measurement is good for this time
MEASURE_SECONDS = 1.0


@dataclass
class Room:
    """Measures at most once in a while. Used by the threads that check bodies."""

    limits: ReceiverLog
    now: Callable[[], int]
    _backlogs: dict[str, tuple[float, ReaderLag | None]] = field(default_factory=dict)
    _measured: tuple[float, int] = (0.0, 0)

    def require_room(self, streams: Mapping[str, Stream], stream: Stream | None, size: int) -> None:
        """Problem 429 or 507 if a batch of this size cannot be taken now."""
        if stream is not None and (slowest := self._slowest(stream)) is not None:
            raise Problem(
                429,
                f"{slowest.name} has {shown_size(slowest.bytes)} of this stream to read; the limit is "
                f"{shown_size(self.limits.backlog)}",
                "run the pipeline that reads it; the batch is to be sent again after `Retry-After`",
                headers={"Retry-After": "10"},
            )
        if self._total(streams) + size > self.limits.total_budget:
            raise Problem(
                507,
                f"all logs together have used their {shown_size(self.limits.total_budget)}",
                "run the pipelines that read them: what all readers have read is deleted. Or raise `total_budget`",
            )

    def _slowest(self, stream: Stream) -> ReaderLag | None:
        """The reader whose backlog is over the limit; None: there is none."""
        at, found = self._backlogs.get(stream.name, (0.0, None))
        if time.monotonic() - at > MEASURE_SECONDS:
            lag = measure_lag(stream.log.folder, self.now())
            # Without a batch to read, a reader waits for the rest of a slice: holding that back would be for ever.
            over = [each for each in lag.readers if each.batches and each.bytes > self.limits.backlog] if lag else []
            found = max(over, key=lambda each: each.bytes, default=None)
            self._backlogs[stream.name] = time.monotonic(), found
        return found

    def _total(self, streams: Mapping[str, Stream]) -> int:
        at, size = self._measured
        if time.monotonic() - at > MEASURE_SECONDS:
            # Readers in other processes delete segments.
            size = sum(
                segments.measure(each.log.folder, each.log.end[0]) + each.log.end[1] for each in streams.values()
            )
            self._measured = time.monotonic(), size
        return size

"""A receiver in one process: its streams, the group commit across them, and what limits them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.config.receiver import Receiver as Settings
from penstock.service.access import Access
from penstock.service.events import Say
from penstock.service.load import Load
from penstock.service.metrics import RequestCounts
from penstock.service.problems import Problem
from penstock.service.room import Room
from penstock.service.streams import Stream, Streams
from penstock.wal.group_commit import GroupCommit
from penstock.wal.log import Confirm, Failed, Full

T = TypeVar("T")

#: producers whose refusals are said
_MOST_REFUSED = 10_000

#: threads that decode and check bodies: more would not be faster, and each holds a decoded body
_WORKERS = 2


@dataclass
class Receiver:
    """What the routers share."""

    settings: Settings
    streams: Streams
    group: GroupCommit
    access: Access
    load: Load
    room: Room
    say: Say
    #: batches by stream and outcome, since the start
    requests: RequestCounts = field(default_factory=RequestCounts)
    #: bodies that are decoded at the same time
    decoding: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_WORKERS))
    _workers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_WORKERS, "penstock-body"))
    #: (stream, producer): what was last refused of it, so that a sender that insists fills no log
    _refused: dict[tuple[str, str], str] = field(default_factory=dict)

    async def work(self, task: Callable[[], T]) -> T:
        """Run what takes time, or waits for the disk, beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, task)

    async def require_certain(self, stream: Stream | None) -> None:
        """Problem 503 while a write to a stream's log has failed, and the log cannot be read again."""
        if stream is not None and stream.log.is_in_doubt:
            outcome = await asyncio.wrap_future(self.group.submit(stream.log, Confirm()))
            if isinstance(outcome, Full | Failed):
                raise Problem(503, outcome.reason, "look at the disk of the receiver; then send the request again")

    def say_refused(self, stream: str, producer: str, slice_: str, reason: str) -> None:
        """Say once that a producer's slice is refused."""
        if self._refused.get((stream, producer)) != slice_ and len(self._refused) < _MOST_REFUSED:
            self._refused[stream, producer] = slice_
            self.say(f"stream {stream}: refused slice {slice_[:12]} of producer {producer}: {reason}")

    def close(self) -> None:
        """Write what was taken, and close the logs."""
        self._workers.shutdown()
        self.group.close()
        self.streams.close()


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000

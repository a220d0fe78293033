"""A rate limit that holds where the server counts: within any window of time, no more requests arrive than allowed.

A request arrives between its sending and its answer. It therefore counts until a whole window after its answer. A slow
answer must not lower the rate: on a connection that is open, a request has arrived soon after it was sent.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass

#: seconds that a request takes at most to arrive on an open connection
ARRIVAL_SECONDS = 0.1
#: seconds without an answer after which a connection may have been closed, and is opened again
IDLE_SECONDS = 4.0


@dataclass(eq=False, slots=True)
class Permit:
    """One request that was allowed."""

    slot: int
    #: when it no longer counts; infinite while nobody knows when it arrives
    until: float


class RateLimit:
    """Allows requests, in the order in which they ask. Belongs to one event loop."""

    def __init__(self, rate: float) -> None:
        """`rate`: requests in a second. One that is not whole allows its whole part in as long as that takes."""
        self._most = max(1, math.floor(rate))
        self._window = self._most / rate
        self._permits: list[Permit] = []
        #: by slot, when its connection last brought an answer
        self._answered: dict[int, float] = {}
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    async def acquire(self, slot: int) -> Permit:
        """Wait until a request may be sent; `slot` tells its connection. `release` must follow."""
        async with self._turn:
            while True:
                now = time.monotonic()
                self._permits = [each for each in self._permits if each.until > now]
                if len(self._permits) < self._most:
                    break
                self._changed.clear()
                wait = min(each.until for each in self._permits) - now
                try:
                    await asyncio.wait_for(self._changed.wait(), None if math.isinf(wait) else wait)
                except TimeoutError:
                    continue
            is_open = now - self._answered.get(slot, -math.inf) < IDLE_SECONDS
            permit = Permit(slot, now + ARRIVAL_SECONDS + self._window if is_open else math.inf)
            self._permits.append(permit)
            return permit

    def release(self, permit: Permit, *, is_answered: bool) -> None:
        """The request has ended."""
        now = time.monotonic()
        permit.until = min(permit.until, now + self._window)
        if is_answered:
            self._answered[permit.slot] = now
        else:
            self._answered.pop(permit.slot, None)
        self._changed.set()

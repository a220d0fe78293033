"""Slots for requests: a bounded number at the same time, and the most urgent one goes first."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count


class Slots:
    """A semaphore whose waiters are served by urgency, then in the order in which they came. Belongs to one loop."""

    def __init__(self, most: int) -> None:
        self._free = [*range(most)]  # a heap
        self._numbers = count()
        self._waiting: list[tuple[int, int, asyncio.Future[int]]] = []

    @asynccontextmanager
    async def take(self, urgency: int) -> AsyncIterator[int]:
        """Hold a slot, which is known by its number; the lowest urgency is served first, with the lowest free slot."""
        if self._free:
            slot = heapq.heappop(self._free)
        else:
            turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (urgency, next(self._numbers), turn))
            try:
                slot = await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on(turn.result())  # it was given in the same moment
                raise
        try:
            yield slot
        finally:
            self._pass_on(slot)

    def _pass_on(self, slot: int) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(slot)
                return
        heapq.heappush(self._free, slot)

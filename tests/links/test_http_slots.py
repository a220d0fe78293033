"""Requests wait for a slot by urgency; a request that is cancelled gives its slot to the next one."""

from __future__ import annotations

import asyncio

from penstock.links.http.slots import Slots


async def _hold(slots: Slots, urgency: int, name: str, order: list[str], release: asyncio.Event) -> None:
    async with slots.take(urgency):
        order.append(name)
        await release.wait()


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_most_urgent_request_goes_first_and_equals_go_in_turn() -> None:
    async def run() -> list[str]:
        slots, order, release = Slots(1), list[str](), asyncio.Event()
        release.set()
        async with slots.take(0):
            waiting = [
                asyncio.create_task(_hold(slots, urgency, name, order, release))
                for urgency, name in [(2, "later"), (0, "first of two"), (0, "second of two"), (-1, "first page")]
            ]
            await _settle()
            assert order == []
        await asyncio.gather(*waiting)
        return order

    assert asyncio.run(run()) == ["first page", "first of two", "second of two", "later"]


def test_no_more_slots_than_agreed() -> None:
    async def run() -> None:
        slots, order, release = Slots(3), list[str](), asyncio.Event()
        tasks = [asyncio.create_task(_hold(slots, 0, str(n), order, release)) for n in range(7)]
        await _settle()
        assert order == ["0", "1", "2"]
        release.set()
        await asyncio.gather(*tasks)
        assert len(order) == 7
        async with slots.take(0) as slot:
            assert slot == 0

    asyncio.run(run())


def test_a_cancelled_request_leaves_its_slot_to_the_next() -> None:
    async def run() -> None:
        slots, order, release = Slots(1), list[str](), asyncio.Event()
        release.set()
        async with slots.take(0):
            cancelled = asyncio.create_task(_hold(slots, 0, "cancelled", order, release))
            given = asyncio.create_task(_hold(slots, 1, "given", order, release))
            last = asyncio.create_task(_hold(slots, 2, "last", order, release))
            await _settle()
            cancelled.cancel()
            await _settle()
        # The slot was passed on to `given` in this very moment; it is cancelled before it runs.
        given.cancel()
        await asyncio.wait_for(last, 5)
        assert order == ["last"]
        assert cancelled.cancelled()
        assert given.cancelled()
        async with slots.take(0):
            pass

    asyncio.run(run())

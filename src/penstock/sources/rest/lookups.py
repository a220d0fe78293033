"""Reads single objects of a list that can only be asked by time: pages that begin at the times of the objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing

from penstock.core.subdivision import Span
from penstock.sources.rest.gathering import Unfit
from penstock.sources.rest.lists import FetchedPage, ListApi
from penstock.sources.rest.sequence import read_in_sequence

TakePage = Callable[[FetchedPage], None]


async def read_at(api: ListApi, times: Iterable[int], workers: int, take: TakePage) -> None:
    """Read every object that has one of these times, and others that lie on the same pages.

    A page answers for all times down to its last object, so objects that lie close together cost one request.
    """
    is_newest = api.options.order == "newest"
    wanted = sorted(set(times), reverse=is_newest)
    size = max(1, -(-len(wanted) // max(1, workers)))
    chunks = [wanted[first : first + size] for first in range(0, len(wanted), size)]
    tasks = [asyncio.create_task(_read_chunk(api, chunk, take)) for chunk in chunks]
    try:
        for task in tasks:
            await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read_chunk(api: ListApi, wanted: Sequence[int], take: TakePage) -> None:
    """Read the times of one worker, in the order of the list."""
    is_newest, end = api.options.order == "newest", wanted[-1]
    place: int | None = 0
    while place is not None and place < len(wanted):
        at = wanted[place]
        span = Span(end, at + 1) if is_newest else Span(at, end + 1)
        last = await _read_down_to(api, span, at, take)
        later = None if last is None else last if is_newest else -last
        # Of the last time on the page, there may be more objects on the next one.
        place = (
            None
            if later is None
            else next(
                (n for n in range(place + 1, len(wanted)) if (wanted[n] if is_newest else -wanted[n]) <= later), None
            )
        )


async def _read_down_to(api: ListApi, span: Span, at: int, take: TakePage) -> int | None:
    """Read pages until one ends beyond a time; the time of its last object. None: the span is read."""
    async with aclosing(read_in_sequence(api, prefetch=False, gte=span.gte, lt=span.lt)) as pages:
        async for each in pages:
            check_page(api, each.page, span)
            take(each.page)
            if each.page.records and each.page.records[-1][0] != at:
                return each.page.records[-1][0]
    return None


async def read_after(api: ListApi, gte: int, take: TakePage) -> None:
    """Read every object from a time on."""
    async with aclosing(read_in_sequence(api, gte=gte)) as pages:
        async for each in pages:
            check_page(api, each.page, Span(gte, None))
            take(each.page)


def check_page(api: ListApi, page: FetchedPage, span: Span) -> None:
    """Refuse a page with objects that were not asked for, or that is out of order."""
    times = [at for at, _ in page.records]
    low, high = span.ends
    if any(not low <= at < high for at in times):
        raise _unfit(api, "the API gives objects outside of the times that were asked for: it ignores the filter")
    if times != sorted(times, reverse=api.options.order == "newest"):
        raise _unfit(api, "the objects of a page are out of order")


def _unfit(api: ListApi, what: str) -> Unfit:
    return Unfit(
        what,
        next_step="correct `time`, `order` and `paging` of the stream as the API lists its objects",
        stream=api.stream,
    )

"""Fetches lists that can only be paged in sequence. The next page is asked for while the one before it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from penstock.links.http.failures import RequestRefused, ResourceRefused
from penstock.links.http.loop import stopped
from penstock.sources.rest.gathering import Unfit, take_new
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.rest.spooling import SpoolWriter
from penstock.sources.rest.standstill import RESTARTS


@dataclass(frozen=True, slots=True)
class SequencePage:
    """A page of a list that is read from its beginning to its end."""

    page: FetchedPage
    #: places in the page of the records that have not come before
    fresh: list[int]
    #: records that the API listed a second time
    repeated: int


async def read_in_sequence(
    api: ListApi, *, prefetch: bool = True, gte: int | None = None, lt: int | None = None
) -> AsyncGenerator[SequencePage, None]:
    """Every page of a list. If a cursor's object is deleted, from the beginning again, without what came before."""
    ids: set[str] = set()
    cursors: set[str | None] = {None}
    cursor: str | None = None
    restarts = 0
    ahead: asyncio.Task[FetchedPage] | None = None
    try:
        while True:
            try:
                asked = Asked(gte, lt, cursor, api.options.paging.size)
                page = await (ahead if ahead is not None else api.fetch(asked))
            except (RequestRefused, ResourceRefused):
                if cursor is None or restarts >= RESTARTS:
                    raise
                # If the request itself is wrong, it fails without a cursor too.
                restarts += 1
                cursor, cursors, ahead = None, {None}, None
                continue
            fresh = take_new(page, range(len(page.records)), ids)
            if page.has_more and (page.cursor in cursors or (page.records and not fresh and not restarts)):
                raise Unfit(
                    "the API gives the same page again and again",
                    next_step="correct `paging` of the stream",
                    stream=api.stream,
                )
            cursor, ahead = page.cursor, None
            cursors.add(cursor)
            if page.has_more and prefetch:
                ahead = asyncio.create_task(api.fetch(Asked(gte, lt, cursor, api.options.paging.size)))
            yield SequencePage(page, fresh, 0 if restarts else len(page.records) - len(fresh))
            if not page.has_more:
                return
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)


async def gather_whole(
    api: ListApi,
    writer: SpoolWriter,
    is_cancelled: Callable[[], bool],
    report: Callable[[int], None],
    at_page: Callable[[int, int], None],
) -> int:
    """Fetch all pages of a list, one after the other; records that came twice were dropped, and their number."""
    repeated = 0
    try:
        async with aclosing(read_in_sequence(api)) as pages:
            async for each in pages:
                repeated += each.repeated
                writer.write([each.page.texts[number] for number in each.fresh])
                at_page(len(each.fresh), 0)
                report(writer.rows)
                if is_cancelled():
                    raise stopped()
        return repeated
    finally:
        writer.close()

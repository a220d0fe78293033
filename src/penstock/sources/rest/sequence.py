"""Fetches lists that can only be paged in sequence. The next page is asked for while the one before it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from penstock.links.http.failures import RequestRefused, ResourceRefused
from penstock.links.http.loop import stopped
from penstock.sources.rest.counted import SequencePage, read_counted
from penstock.sources.rest.gathering import Unfit
from penstock.sources.rest.known import KnownIds, Repeats
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.rest.spooling import SpoolWriter
from penstock.sources.rest.standstill import RESTARTS


async def read_in_sequence(
    api: ListApi,
    known: KnownIds | None = None,
    *,
    prefetch: bool = True,
    gte: int | None = None,
    lt: int | None = None,
) -> AsyncGenerator[SequencePage, None]:
    """Every page of a list. If a cursor's object is deleted, from the beginning again, without what came before.

    `known` are the records so far, which it adds to.
    """
    known = known or KnownIds()
    if api.counts_pages:
        async with aclosing(read_counted(api, known, prefetch=prefetch, gte=gte, lt=lt)) as counted:
            async for each in counted:
                yield each
        return
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
            fresh = known.take(page, range(len(page.records)), is_reread=restarts > 0)
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
            yield SequencePage(page, fresh)
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
) -> Repeats:
    """Fetch all pages of a list, one after the other; what came twice was written once."""
    known = KnownIds()
    try:
        async with aclosing(read_in_sequence(api, known)) as pages:
            async for each in pages:
                writer.write([each.page.texts[number] for number in each.fresh])
                at_page(len(each.fresh), 0)
                report(writer.rows)
                if is_cancelled():
                    raise stopped()
        return known.repeats
    finally:
        writer.close()

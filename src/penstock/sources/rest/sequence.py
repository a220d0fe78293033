"""Fetches lists that can only be paged in sequence. The next page is asked for while the one before it is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from penstock.links.http.failures import RequestRefused, ResourceRefused
from penstock.links.http.loop import stopped
from penstock.sources.rest.counted import SequencePage, read_counted
from penstock.sources.rest.gathering import Limits, Unfit, take_new
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.rest.marks import CursorPosition
from penstock.sources.rest.spooling import SpoolWriter

#: how often a list is read again from its beginning because an object that a cursor names was deleted
RESTARTS = 5


async def read_in_sequence(
    api: ListApi, *, prefetch: bool = True, gte: int | None = None, lt: int | None = None
) -> AsyncGenerator[SequencePage, None]:
    """Every page of a list. If a cursor's object is deleted, from the beginning again, without what came before."""
    if api.counts_pages:
        async with aclosing(read_counted(api, prefetch=prefetch, gte=gte, lt=lt)) as counted:
            async for each in counted:
                yield each
        return
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


async def gather_onward(
    api: ListApi,
    position: CursorPosition,
    writer: SpoolWriter,
    limits: Limits,
    report: Callable[[int], None],
    at_page: Callable[[int, int], None],
) -> CursorPosition:
    """Fetch pages from a cursor on, until the list ends or the budget is used; where the next page begins."""
    ids = set(position.seen)
    ahead: asyncio.Task[FetchedPage] | None = None
    try:
        while True:
            asked = Asked(None, None, position.cursor, api.options.paging.size)
            page = await (ahead if ahead is not None else api.fetch(asked))
            ahead = None
            fresh = take_new(page, range(len(page.records)), ids)
            texts = [page.texts[number] for number in fresh]
            # The last page may have no cursor to go on from: it is asked for again, and what it had is dropped.
            following = page.cursor or (page.records[-1][1] if api.cursor_is_id and page.records else None)
            if following is not None and following != position.cursor:
                position, ids = CursorPosition(following), set()
                if page.has_more and not _is_used(limits, writer, texts):
                    ahead = asyncio.create_task(api.fetch(Asked(None, None, following, asked.size)))
            else:
                position = CursorPosition(position.cursor, tuple(id_ for _, id_ in page.records))
            writer.write(texts)
            at_page(len(fresh), 0)
            report(writer.rows)
            if not page.has_more or _is_used(limits, writer, ()):
                return position
            if not fresh and not page.records and following is None:
                raise Unfit(
                    "the API says that more follow, and not where", next_step="correct `paging`", stream=api.stream
                )
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
        writer.close()


def _is_used(limits: Limits, writer: SpoolWriter, texts: list[bytes] | tuple[()]) -> bool:
    """Whether the budget is used, or the time is over, once these records are written."""
    budget = limits.budget
    return (
        writer.bytes + writer.size_of(texts) >= budget.bytes
        or (budget.rows is not None and writer.rows + len(texts) >= budget.rows)
        or limits.is_cancelled()
        or time.monotonic() > min(limits.deadline, limits.end)
    )

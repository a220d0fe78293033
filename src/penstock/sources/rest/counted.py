"""Reads lists whose pages are counted, from the beginning to the end: deletes meanwhile hide no other object.

When an object that was read is deleted, all that follow move up, and the next page begins one too late. By offset, each
page therefore begins with the last object of the page before it. By page number, the page before is asked for again
after each page. If a page does not continue what was read, the read goes back to one that does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from penstock.core.documents import canonical
from penstock.links.http.failures import RequestRefused, ResourceRefused
from penstock.sources.rest.gathering import Unfit
from penstock.sources.rest.known import KnownIds
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi

#: how often in a row a list is looked for a page that continues what was read
TRIES = 10
#: equal pages in a row after which an API is taken to ignore the count
EQUAL_PAGES = 3


@dataclass(frozen=True, slots=True)
class SequencePage:
    """A page of a list that is read from its beginning to its end."""

    page: FetchedPage
    #: places in the page of the records that have not come before
    fresh: list[int]


@dataclass
class CountedRead:
    """Where the read of a list stands."""

    api: ListApi
    gte: int | None
    lt: int | None
    #: the records so far
    known: KnownIds
    #: the cursors of the pages that were read, the last one at the end
    cursors: list[str | None] = field(default_factory=list)
    #: the records of the page that was read last
    last: list[tuple[int, str]] | None = None
    #: the next page begins with the last object of the one before
    is_overlapping: bool = False
    #: the page that is being read is one that was read before
    is_back: bool = False
    #: pages in a row that did not continue what was read
    tries: int = 0
    #: the list has moved up while it was read
    has_moved: bool = False
    #: whether pages are compared with what was read
    is_checked: bool = True

    async def fetch(self, cursor: str | None) -> FetchedPage:
        return await self.api.fetch(Asked(self.gte, self.lt, cursor, self.api.options.paging.size))

    def following(self, page: FetchedPage) -> tuple[str | None, bool]:
        """The cursor after a page, and whether its page begins with the last object of this one."""
        if page.cursor is None or self.api.options.paging.by == "page" or not self.is_checked or len(page.records) < 2:
            return page.cursor, False
        document = json.loads(page.cursor)
        return canonical({**document, "next": document["next"] - 1}), True

    async def continues(self, cursor: str | None, page: FetchedPage) -> bool:
        """Whether every object that lies before this page in the list has been read or was created since."""
        on_page = {id_ for _, id_ in page.records}
        if cursor is None or not self.is_checked or any(id_ in self.known for id_ in on_page):
            return True
        if self.is_back or self.is_overlapping:
            return False
        if self.api.options.paging.by == "offset":
            return True  # pages of one object cannot overlap
        try:
            again = await self.fetch(self.cursors[-1])
        except (RequestRefused, ResourceRefused):
            return False
        # What has moved up from this page is on the one before it, and was not read.
        return bool(again.records) and all(id_ in self.known or id_ in on_page for _, id_ in again.records)

    def go_back(self, cursor: str | None) -> str | None:
        """The cursor of a page further to the beginning."""
        self.tries, self.is_back, self.has_moved = self.tries + 1, True, True
        if self.tries > TRIES:
            # Each page may be one that an API rounds its count to: what it gives is taken as it is.
            self.is_checked, self.is_back, self.is_overlapping = False, False, False
            self.api.remarks.append(
                f"the pages of the list do not continue each other after {TRIES} tries: objects may be missed until "
                "the next run"
            )
            return cursor
        if self.api.options.paging.by == "page":
            return self.cursors.pop()
        document = json.loads(cursor or "{}")
        at = max(0, document.get("next", 0) - self.api.options.paging.size)
        return canonical({**document, "next": at}) if at else None

    def take(self, cursor: str | None, page: FetchedPage) -> SequencePage:
        """Count a page as read."""
        numbers = range(int(self.is_overlapping), len(page.records))
        fresh = self.known.take(page, numbers, is_reread=self.has_moved)
        self.tries = 0 if fresh else self.tries
        self.cursors.append(cursor)
        self.last, self.is_back = page.records, False
        return SequencePage(page, fresh)


async def read_counted(
    api: ListApi, known: KnownIds, *, prefetch: bool, gte: int | None, lt: int | None
) -> AsyncGenerator[SequencePage, None]:
    """Every page of a list; an object that was in it all the time is on one of them."""
    read = CountedRead(api, gte, lt, known)
    cursor: str | None = None
    ahead: asyncio.Task[FetchedPage] | None = None
    equal = 1
    try:
        while True:
            try:
                page = await (ahead if ahead is not None else read.fetch(cursor))
            except (RequestRefused, ResourceRefused):
                # The page may be gone, as all objects that were on it.
                if cursor is None or read.tries >= TRIES:
                    raise
                cursor, ahead = read.go_back(cursor), None
                continue
            equal = equal + 1 if page.records == read.last and not read.is_back else 1
            if equal >= EQUAL_PAGES and page.has_more:
                raise Unfit(
                    "the API gives the same page again and again",
                    next_step="correct `paging` of the stream",
                    stream=api.stream,
                )
            following, is_overlapping = read.following(page)
            ahead = asyncio.create_task(read.fetch(following)) if prefetch and page.has_more else None
            if not await read.continues(cursor, page):
                if ahead is not None:
                    await asyncio.gather(ahead, return_exceptions=True)  # what it gives is not needed
                cursor, ahead = read.go_back(cursor), None
                continue
            yield read.take(cursor, page)
            if not page.has_more:
                return
            cursor, read.is_overlapping = following, is_overlapping
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

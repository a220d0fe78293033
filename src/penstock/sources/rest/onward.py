"""Reads a list that grows at its end on from a cursor. The next page is asked for while one is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import PenstockError, StreamFailed
from penstock.links.http.failures import GONE, RequestRefused, ResourceRefused
from penstock.sources.rest.gathering import Limits, Unfit
from penstock.sources.rest.known import KnownIds, Repeats
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.rest.marks import TRAIL, CursorPosition
from penstock.sources.rest.spooling import SpoolWriter


class CursorGone(StreamFailed):
    """The API refuses the cursor that a list was read up to, and every place before it that is known."""


@dataclass(frozen=True, slots=True)
class OnwardPage:
    """A page of a list that is read onward."""

    #: where it begins: before the position that was asked for, if the API no longer knows that one
    position: CursorPosition
    page: FetchedPage

    @property
    def fresh(self) -> list[int]:
        """Places in the page of the records that were not delivered before."""
        seen = set(self.position.seen)
        return [number for number, (_, id_) in enumerate(self.page.records) if id_ not in seen]


async def fetch_onward(api: ListApi, at: CursorPosition, size: int | None = None) -> OnwardPage:
    """The page at a position, or at the latest one before it that the API still knows. CursorGone if it knows none."""
    size = size or api.options.paging.size
    try:
        return OnwardPage(at, await api.fetch(Asked(None, None, at.cursor, size)))
    except (RequestRefused, ResourceRefused) as refusal:
        if at.cursor is None or not _may_be_gone(refusal):
            raise
        refused = refusal
    # If the request itself is wrong, it fails without a cursor too.
    await api.fetch(Asked(None, None, None, 1))
    for earlier in at.earlier() if api.cursor_is_id else ():
        try:
            return OnwardPage(earlier, await api.fetch(Asked(None, None, earlier.cursor, size)))
        except (RequestRefused, ResourceRefused) as refusal:
            if not _may_be_gone(refusal):
                raise
    raise _gone(api, refused)


def _may_be_gone(refusal: PenstockError) -> bool:
    """Whether a refusal may mean that the cursor's object is deleted, rather than that the list is forbidden."""
    return not isinstance(refusal, ResourceRefused) or refusal.status in GONE


def _gone(api: ListApi, refused: PenstockError) -> CursorGone:
    known = "the objects before it that the mark names are gone too" if api.cursor_is_id else "no other place is known"
    return CursorGone(
        f"the API no longer knows the place that the list was read up to, and {known}: {refused.what}",
        safe="Nothing was lost: the mark has not moved. Objects that appeared since then are not delivered yet.",
        next_step=f"`penstock state reset FILE --stream {api.stream}`, then run again: the list is read from its "
        "beginning. A table with a key keeps each object once; files and logs get what it still lists a second time",
        stream=api.stream,
    )


async def gather_onward(
    api: ListApi,
    position: CursorPosition,
    writer: SpoolWriter,
    limits: Limits,
    report: Callable[[int], None],
    at_page: Callable[[int, int], None],
    repeats: Repeats,
) -> CursorPosition:
    """Fetch pages from a cursor on, until the list ends or the budget is used; where the next page begins.

    An object that the list has on two pages is delivered twice: it may have moved because it has changed.
    """
    ahead: asyncio.Task[OnwardPage] | None = None
    met = {position.cursor}
    try:
        while True:
            found = await (ahead if ahead is not None else fetch_onward(api, position))
            ahead = None
            page, fresh = found.page, KnownIds(repeats).take(found.page, found.fresh)
            _check_progress(api, found)
            position, is_last = _follow(api, found)
            texts = [page.texts[number] for number in fresh]
            if not is_last:
                if position.cursor in met:
                    raise _repeated(api)
                met.add(position.cursor)
                if page.has_more and not _is_used(limits, writer, texts):
                    ahead = asyncio.create_task(fetch_onward(api, position))
            writer.write(texts)
            at_page(len(fresh), 0)
            report(writer.rows)
            if is_last or not page.has_more or _is_used(limits, writer, ()):
                return position
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
        writer.close()


def _follow(api: ListApi, found: OnwardPage) -> tuple[CursorPosition, bool]:
    """The position after a page, and whether it stays at the page, because no other cursor follows.

    Such a page is asked for again by the next run, and what it had is dropped.
    """
    page, at = found.page, found.position
    ids = [id_ for _, id_ in page.records]
    following = page.cursor or (ids[-1] if api.cursor_is_id and ids else None)
    if following is None or following == at.cursor:
        if page.has_more and following is None:
            raise Unfit("the API says that more follow, and not where", next_step="correct `paging`", stream=api.stream)
        return CursorPosition(at.cursor, tuple(ids), at.trail), True
    # Of a list that is read again from an earlier place, more may come that was delivered: until something new does.
    left = () if found.fresh else set(at.seen) - set(ids)
    return at.move_on(following, ids, [id_ for id_ in at.seen if id_ in left]), False


def _check_progress(api: ListApi, found: OnwardPage) -> None:
    """Refuse a page that the cursor should have led past: it would be delivered twice."""
    ids = [id_ for _, id_ in found.page.records]
    at = found.position
    if api.cursor_is_id:
        is_repeated = at.cursor in ids
    else:
        is_repeated = len(ids) > 1 and not at.seen and ids[-TRAIL:] == list(at.trail[-len(ids) :])
    if is_repeated:
        raise _repeated(api)


def _repeated(api: ListApi) -> Unfit:
    return Unfit(
        "the API gives the same page again and again", next_step="correct `paging` of the stream", stream=api.stream
    )


def _is_used(limits: Limits, writer: SpoolWriter, texts: list[bytes] | tuple[()]) -> bool:
    """Whether the budget is used, or the time is over, once these records are written."""
    budget = limits.budget
    return (
        writer.bytes + writer.size_of(texts) >= budget.bytes
        or (budget.rows is not None and writer.rows + len(texts) >= budget.rows)
        or limits.is_cancelled()
        or time.monotonic() > min(limits.deadline, limits.end)
    )

"""The objects of a list as a comparison sees them: fetched by windows of time, and kept as keys and digests.

Only objects whose time was read before and is still configured take part. A look asks the API again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.comparing import Summary
from penstock.core.ranges import Key, Range
from penstock.core.subdivision import Order, Span, reconcile, start, subtract
from penstock.core.subdivision import Position as TimePosition
from penstock.links.http.loop import LoopThread
from penstock.ports import Budget, ComparedColumns
from penstock.sources.rest.gathering import Limits, RangeGather
from penstock.sources.rest.lists import FetchedPage, ListApi
from penstock.sources.rest.lookups import read_after, read_at
from penstock.sources.rest.row_digests import ComparedRow, RowDigests, step_of
from penstock.sources.rest.row_store import RowStore, RowWriter

#: whether a change is still to be delivered, by the object's time, the time of the change, and the server's second
IsAwaited = Callable[[int, int, int], bool]
#: objects that are compared at once
WINDOW_ROWS = 10_000
#: seconds by which an object that has moved may be listed late
MARGIN_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Listing:
    """How one list is asked."""

    api: ListApi
    order: Order
    loop: LoopThread
    #: requests that are under way at the same time
    workers: int
    is_cancelled: Callable[[], bool]


@dataclass
class LaterObjects:
    """Objects that are listed after everything that was read: one of them may have got its time by a change."""

    listing: Listing
    ids: set[str] = field(default_factory=set)
    #: the second of the last reading, by the server's clock
    _read_at: int | None = None

    def read(self, since: int) -> Collection[str]:
        """The ids of all objects that are listed from a time on, as of now; what was read before is not read again."""
        unit = self.listing.api.unit
        if self._read_at is not None:
            since = max(since, (self._read_at - MARGIN_SECONDS) * unit.ticks)
        seconds: list[int] = []

        def take(page: FetchedPage) -> None:
            seconds.append(page.second)
            self.ids.update(id_ for _, id_ in page.records)

        self.listing.loop.run(read_after(self.listing.api, since, take))
        self._read_at = min(seconds, default=None)
        return self.ids


@dataclass(frozen=True, slots=True)
class Delivery:
    """Which objects the stream has delivered, and which it is about to deliver."""

    #: times of which every object was delivered, and that are still configured
    spans: Sequence[Span]
    #: None: an object does not say when it was changed
    is_awaited: IsAwaited | None = None
    #: ids of objects whose changes are still to be delivered, as of now
    find_pending: Callable[[], Collection[str]] = frozenset
    #: objects that are listed later; None: the time of an object never changes
    later: LaterObjects | None = None


class ListRows:
    """See `ComparedRows` in ports."""

    def __init__(self, listing: Listing, digests: RowDigests, columns: ComparedColumns, delivery: Delivery) -> None:
        self._listing, self._digests, self._delivery = listing, digests, delivery
        self._types = [column.type for column in columns.key]
        self._store: RowStore | None = None
        # Times that were not delivered need not be fetched.
        gaps = subtract([Span(None, None)], delivery.spans)
        self._fetched = TimePosition((), gaps)
        self._end = delivery.spans[-1].ends[1]
        #: how much time the next window has: all of it, until it turns out to be too much
        self._width = self._end

    @property
    def window_rows(self) -> int | None:
        return WINDOW_ROWS

    # ------------------------------------------------------------ windows of time

    def find_end(self, after: Key | None, rows: int) -> Key | None:
        first = self._delivery.spans[0].gte or 0
        low = first if after is None else max(first, self._step(after) or 0)
        store = self._rows()
        #: a time before which there are more objects than wanted
        wide: int | None = None
        while low < self._end:
            high = min(low + self._width, self._end)
            # What is fetched of a window that is too wide is the end of it, which is needed later.
            if not self._fetch(Span(low, high), None if high == low + 1 else 2 * rows):
                wide, self._width = high, self._narrow(high - low)
                continue
            found = store.find_end(after, rows, high)
            if found is not None:
                return found
            low, self._width = high, self._width * 2
            if wide is not None and low < wide:
                self._width = max(1, min(self._width, (wide - low) // 2))
        return None

    def _narrow(self, width: int) -> int:
        """A smaller window, by how much of this one its last objects fill: they are twice as many as wanted."""
        left = sum(high - low for low, high in (each.span.ends for each in self._fetched.remaining))
        filled = width - left
        return max(1, width // 2 if filled < width // 8 else min(width // 2, filled * 5 // 8))

    def _fetch(self, span: Span, most: int | None) -> bool:
        """Fetch what is missing of a span, about `most` objects; whether all of it is there."""
        listing = self._listing
        wanted = reconcile(self._fetched, span, listing.order)
        if not wanted.remaining:
            return True
        writer = RowWriter(self._rows(), self._read)
        gathering = RangeGather(
            listing.api,
            start(wanted, listing.order, listing.api.options.paging.size),
            writer,
            Limits(Budget(bytes=1 << 60, rows=most), math.inf, listing.is_cancelled),
            workers=listing.workers,
            report=lambda _: None,
            at_page=lambda *_: None,
        )
        state = listing.loop.run(gathering.run())
        if gathering.failure is not None:
            raise gathering.failure
        self._fetched = state.position()
        return not self._fetched.remaining

    def _rows(self) -> RowStore:
        if self._store is None:
            self._store = RowStore(self._types)
        return self._store

    def _read(self, texts: Sequence[bytes]) -> list[tuple[ComparedRow, int]]:
        return [(row, self._step(row.key) or 0) for row in self._digests.read(texts)]

    def _step(self, key: Key) -> int | None:
        return step_of(key[0], self._types[0], self._listing.api.unit)

    def summarize(self, range_: Range) -> Summary:
        return self._rows().summarize(range_)

    def find_cuts(self, range_: Range, pieces: int) -> Sequence[Key]:
        return self._rows().find_cuts(range_, pieces)

    def list_digests(self, range_: Range) -> Mapping[Key, str]:
        return self._rows().list_digests(range_)

    # ------------------------------------------------------------ a second look

    def look(self, keys: Sequence[Key]) -> Mapping[Key, str | None]:
        found, asked = split_by_time(keys, self._step, self._delivery.spans)
        listed: dict[Key, str | None] = dict.fromkeys(found)
        wanted, times = set(asked), set(asked.values())

        def take(page: FetchedPage) -> None:
            places = [place for place, (at, _) in enumerate(page.records) if at in times]
            rows = self._digests.read([page.texts[place] for place in places])
            for row, place in zip(rows, places, strict=True):
                if row.key in wanted:
                    is_awaited = self._is_awaited(page, place)
                    if is_awaited or not row.is_deleted:
                        listed[row.key] = None if is_awaited else row.digest

        self._listing.loop.run(read_at(self._listing.api, times, self._listing.workers, take))
        return listed | dict.fromkeys(self._find_in_flight([key for key in asked if key not in listed], asked))

    def _is_awaited(self, page: FetchedPage, place: int) -> bool:
        if page.updated is None or self._delivery.is_awaited is None:
            return False
        return self._delivery.is_awaited(page.records[place][0], page.updated[place], page.second)

    def _find_in_flight(self, unlisted: Sequence[Key], asked: Collection[Key]) -> list[Key]:
        """Keys whose objects have another time by now, or a change that is still to be delivered. Asked last."""
        if not asked:
            return []
        later = self._delivery.later
        moved = later.read(self._end) if later is not None and unlisted else ()
        pending = self._delivery.find_pending()
        return [*(key for key in unlisted if key[1] in moved), *(key for key in asked if key[1] in pending)]

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


def split_by_time(
    keys: Sequence[Key], step: Callable[[Key], int | None], spans: Sequence[Span]
) -> tuple[list[Key], dict[Key, int]]:
    """The keys whose times were not delivered, and the others with their times."""
    outside: list[Key] = []
    inside: dict[Key, int] = {}
    for key in keys:
        at = step(key)
        if at is None or not any(span.ends[0] <= at < span.ends[1] for span in spans):
            outside.append(key)
        else:
            inside[key] = at
    return outside, inside

"""Reports what fetching one stream costs, and how far it is in its range of time, at most once a second."""

from __future__ import annotations

import time
from dataclasses import replace

from penstock.core.fetches import FetchCounts, shares_of
from penstock.core.subdivision import Position, Subdivision
from penstock.core.subdivision.spans import INFINITE
from penstock.ports import Context
from penstock.sources.rest.lists import ListApi

#: seconds between two reports of one stream
REPORT_SECONDS = 1.0


class FetchReporter:
    """Counts over all gathers of one stream in this process. Used by one thread at a time."""

    def __init__(self, context: Context, api: ListApi) -> None:
        self._context, self._api = context, api
        self._records = self._pages = 0
        self._begun: float | None = None
        self._next = 0.0
        #: the earliest time of a record so far
        self._earliest = INFINITE

    def begin(self) -> None:
        """A page is about to be asked for."""
        self._begun = self._begun or time.monotonic()

    def count(self, records: int, earliest: int) -> None:
        """A page brought this many new records, whose times begin at `earliest`."""
        self._earliest = min(self._earliest, earliest)
        self._records += records
        self._pages += bool(records)

    def report(self, rows: int, state: Subdivision | None = None, *, last: bool = False) -> None:
        """Report `rows` of the current slice, unless a report was made a moment ago; the `last` one always."""
        now = time.monotonic()
        if now < self._next and not last:
            return
        self._next = now + REPORT_SECONDS
        effort = self._api.effort
        counts = FetchCounts(
            records=self._records,
            pages=self._pages,
            requests=effort.requests,
            retries=effort.retries,
            waited=round(effort.waited, 3),
            seconds=round(now - (self._begun or now), 3),
        )
        if state is not None:
            counts = self._with_range(counts, state.position())
        self._context.report(self._api.stream, "fetching pages", done=rows, fetched=counts)

    def _with_range(self, counts: FetchCounts, position: Position) -> FetchCounts:
        remaining = [each.span.ends for each in position.remaining]
        covered = [span.ends for span in position.covered]
        if not (remaining or covered):
            return counts
        bounds = [bound for ends in (*remaining, *covered) for bound in ends]
        low, high = min(bounds), max(bounds)
        if low <= 0:
            low = self._guess_begin(high, is_open=any(begin <= 0 for begin, _ in remaining))
        if low >= high or high >= INFINITE:
            return counts
        unit = self._api.unit
        return replace(counts, begin=unit.show(low), end=unit.show(high), done=shares_of(covered, low, high))

    def _guess_begin(self, high: int, *, is_open: bool) -> int:
        """Where a range without a lower bound begins: nobody knows how old the oldest object is.

        While its lowest part is not read, as much is taken to lie before the earliest record so far as after it.
        """
        return max(0, 2 * self._earliest - high) if is_open else self._earliest

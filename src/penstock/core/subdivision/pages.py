"""Decides which records of a page count, and makes the event that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import ge

from penstock.core.subdivision.state import Order, PageFetched, Subdivision


class PageError(ValueError):
    """A page that no API of this kind may give: out of order, or with more to come and no way to ask for it."""


@dataclass(frozen=True, slots=True)
class PageVerdict:
    """What to do with a page: deliver the records at `keep`, and fold `event` in the same step."""

    #: places in the page of the records to deliver, ascending
    keep: tuple[int, ...]
    event: PageFetched
    #: records that the filter should have kept out, because they lie before the range: the API ignores it
    outside: int = 0


def judge_page(
    state: Subdivision, key: int, records: Sequence[tuple[int, str]], has_more: bool, cursor: str | None
) -> PageVerdict:
    """Judge a page that was asked for the range `key`; `records` are (time, id) in the order of the page.

    Records past the range's end are dropped: the range was split while the request was under way, and the worker that
    has the other part reads them. Records that the range delivered before are dropped: its cursor had vanished.
    """
    task = state.tasks[key]
    if has_more and cursor is None:
        raise PageError("the page says that more records follow, and has no cursor to ask for them")
    if has_more and not records and cursor == task.cursor:
        raise PageError("the page is empty, says that more records follow, and names the same cursor again")
    places = [time for time, _ in records]
    if state.order is Order.ASCENDING:
        places = [*map(state.place, places)]
    if not all(map(ge, places, places[1:])):
        number = next(number for number in range(1, len(places)) if places[number] > places[number - 1])
        raise PageError(f"record {number + 1} of the page is out of order: {records[number][0]}")
    outside = sum(place >= task.high for place in places) if places and places[0] >= task.high else 0
    if places and not outside and task.low <= places[-1] and places[0] != task.last:
        keep = tuple(range(len(places)))  # the usual page: nothing of it was split off or delivered before
    else:
        delivered = set(task.seen)
        keep = tuple(
            number
            for number, (place, (_, id_)) in enumerate(zip(places, records, strict=True))
            if task.low <= place < task.high and not (place == task.last and id_ in delivered)
        )
    last = records[-1][0] if records else None
    seen = tuple(
        reversed([records[number][1] for number in takewhile(lambda each: records[each][0] == last, reversed(keep))])
    )
    first = records[0][0] if records else None
    return PageVerdict(keep, PageFetched(key, first, last, len(keep), has_more, cursor, seen), outside)

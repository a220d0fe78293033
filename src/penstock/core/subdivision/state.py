"""The state of a subdivision while it runs, and the events that change it.

Inside, every API reads downwards: `low` and `high` are in reading order, and an ascending API has its times mirrored
(time t is at place -1 - t). Only `Subdivision.place` and the methods below translate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Union

from penstock.core.subdivision.position import Position, Range
from penstock.core.subdivision.spans import INFINITE, Span, span_of


class Order(Enum):
    """The order in which an API lists its records."""

    NEWEST_FIRST = "newest_first"
    ASCENDING = "ascending"


@dataclass(frozen=True, slots=True)
class Task:
    """A range while it is read, in reading order: from `high` down to `low`."""

    #: `high` when the range was made; no two ranges share it, in whatever order events come
    key: int
    #: included; moves up when a part is split off
    low: int
    #: excluded; moves down with every page
    high: int
    cursor: str | None = None
    #: place of the last record delivered; None: none was
    last: int | None = None
    seen: tuple[str, ...] = ()
    crowded: bool = False
    #: runs in a row that ended while its request was under way
    abandoned: int = 0
    #: whose request is under way; None: waiting for a worker
    worker: int | None = None
    #: where its first page began: `key`, or the first record of a range without an upper bound
    top: int = 0
    #: records delivered from this range since it was made
    records: int = 0
    #: records for each unit of time that it was expected to hold when it was split off; None: it was not split off
    density: float | None = None
    #: time that the last pages cover, as far back as their density is the same; 0: no page was fetched yet
    run: int = 0
    #: records of those pages
    run_records: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask the API for: a page of [gte, lt) that begins after the cursor."""

    #: the range, for `judge_page` and events
    key: int
    gte: int | None
    lt: int | None
    cursor: str | None


@dataclass(frozen=True, slots=True)
class WorkerIdle:
    """A worker has no request: it gets a waiting range, a part of another's, or nothing."""

    worker: int
    #: workers without a range now, this one included: a range is cut into as many parts as are wanted
    idle: int = 1


@dataclass(frozen=True, slots=True)
class PageFetched:
    """A page came, and its records were delivered. Made by `judge_page`."""

    #: the range that it was asked for
    key: int
    #: times of the page's first and last record; None: it has none
    first: int | None
    last: int | None
    #: records that were delivered
    count: int
    has_more: bool
    #: where the next page begins; None only if there is none
    cursor: str | None
    #: ids of the records of this page that were delivered at time `last`
    seen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestAbandoned:
    """A request failed for good or was given up: its range waits for a worker again, from the same cursor."""

    key: int
    #: the run ends, and the request had no answer yet
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class CursorVanished:
    """The API no longer knows the cursor of a range: it is read again from the last time seen, without doubles."""

    key: int
    #: the cursor is a record's id, so that an earlier record's id can stand in for it
    cursor_is_id: bool = False


Event = Union[WorkerIdle, PageFetched, RequestAbandoned, CursorVanished]  # noqa: UP007 (one type, many events)


@dataclass(frozen=True, slots=True)
class Subdivision:
    """The ranges under way, by key, and what is read. Changed by `fold` alone."""

    order: Order
    #: records that a full page has
    page_size: int
    tasks: Mapping[int, Task]
    #: what is read, in reading order: bounds merged, ascending
    covered: tuple[tuple[int, int], ...] = ()
    #: what the position keeps for another configured range; never changes
    partial: tuple[Range, ...] = ()
    #: pages fetched since the start
    pages: int = 0
    #: records by which the last pages of ranges fell short of a full page
    short: int = 0
    #: records of the largest page so far: an API may give fewer than it was asked for
    largest: int = 0

    @property
    def done(self) -> bool:
        return not self.tasks

    @property
    def full_page(self) -> int:
        """Records that a page brings."""
        return self.largest or self.page_size

    def position(self) -> Position:
        """What the mark keeps: true for exactly the pages folded so far, whatever is under way."""
        ranges = sorted((self._range(task) for task in self.tasks.values()), key=lambda each: each.span.ends)
        spans = sorted((self._span(low, high) for low, high in self.covered), key=lambda span: span.ends)
        return Position(tuple(ranges), tuple(spans), self.partial)

    def request_of(self, worker: int) -> Request | None:
        """The request that a worker has to send now; None: it has no range."""
        for task in self.tasks.values():
            if task.worker == worker:
                span = self._span(task.low, task.high)
                return Request(task.key, span.gte, span.lt, task.cursor)
        return None

    def place(self, time: int) -> int:
        """A time in reading order, and back: it is its own inverse."""
        return time if self.order is Order.NEWEST_FIRST else -1 - time

    def _span(self, low: int, high: int) -> Span:
        return span_of(low, high) if self.order is Order.NEWEST_FIRST else span_of(-high, -low)

    def _range(self, task: Task) -> Range:
        span = self._span(task.low, task.high)
        last = None if task.last is None else self.place(task.last)
        return Range(span.gte, span.lt, task.cursor, last, task.seen, task.crowded, task.abandoned)


def task_of(range_: Range, order: Order) -> Task:
    """A range as a task that waits for a worker."""
    low, high = range_.span.ends
    last = range_.last
    if order is Order.ASCENDING:
        low, high = -high, -low
        last = None if last is None else -1 - last
    return Task(high, low, high, range_.cursor, last, range_.seen, range_.crowded, range_.abandoned, top=high)


def is_open(place: int) -> bool:
    """Whether a bound in reading order is open."""
    return abs(place) >= INFINITE

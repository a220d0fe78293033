"""Subdivision: reads a list API that filters by time and pages by cursor with many workers, each record exactly once.

The state is a set of disjoint ranges of time that are still to be read. Every change is an event, and the state is a
fold over the events. A range is split only when a worker would otherwise be idle (`rule`). The caller sends the
requests.

    state = start(Position((Range(gte, lt),)), Order.NEWEST_FIRST, page_size=100)
    state = fold(state, WorkerIdle(worker=1))
    request = state.request_of(1)                   # None: nothing to do now; ask again after the next page
    verdict = judge_page(state, request.key, records, has_more, cursor)
    deliver(records[i] for i in verdict.keep)       # together with state.position() after the fold, or neither
    state = fold(state, verdict.event)              # the worker keeps its range until it is read
"""

from penstock.core.subdivision.fold import CursorLost, fold, start
from penstock.core.subdivision.pages import PageError, PageVerdict, judge_page
from penstock.core.subdivision.position import Position, Range
from penstock.core.subdivision.reconcile import reconcile
from penstock.core.subdivision.spans import Span, merge_ranges, subtract
from penstock.core.subdivision.state import (
    CursorVanished,
    Event,
    Order,
    PageFetched,
    Request,
    RequestAbandoned,
    Subdivision,
    WorkerIdle,
)

__all__ = [
    "CursorLost",
    "CursorVanished",
    "Event",
    "Order",
    "PageError",
    "PageFetched",
    "PageVerdict",
    "Position",
    "Range",
    "Request",
    "RequestAbandoned",
    "Span",
    "Subdivision",
    "WorkerIdle",
    "fold",
    "judge_page",
    "merge_ranges",
    "reconcile",
    "start",
    "subtract",
]

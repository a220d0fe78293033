"""Fits a position to a configured range of time that may have changed since the last run."""

from __future__ import annotations

from dataclasses import replace

from penstock.core.subdivision.position import Position, Range
from penstock.core.subdivision.spans import Span, intersect, subtract
from penstock.core.subdivision.state import Order


def reconcile(position: Position, configured: Span, order: Order) -> Position:
    """The position for another configured range: nothing delivered is read again, nothing configured is missed.

    Ranges are trimmed to the configured range or dropped; times that are neither covered nor in a range become new
    ranges. What is covered stays covered, even outside: a range that is narrowed and widened reads nothing twice.

    A range that was begun starts at a time of which some records are delivered. It keeps its cursor while that time is
    configured. Otherwise that time alone goes to `partial`, with the cursor and the ids, and comes back with it.
    """
    kept: list[Range] = []
    partial: list[Range] = []
    for range_ in (*position.remaining, *position.partial):
        span = intersect(range_.span, configured)
        begun = _begun(range_)
        if begun is not None and (span is None or intersect(begun, span) is None):
            partial.append(replace(range_, gte=begun.gte, lt=begun.lt))
            range_ = Range(range_.gte, range_.lt)
        if span is not None:
            same_beginning = span.lt == range_.lt if order is Order.NEWEST_FIRST else span.gte == range_.gte
            kept.append(replace(range_, gte=span.gte, lt=span.lt) if same_beginning else Range(span.gte, span.lt))
    missing = subtract([configured], [*(each.span for each in kept), *position.covered])
    kept += [Range(span.gte, span.lt) for span in missing]
    return Position(_in_order(kept), position.covered, _in_order(partial))


def _begun(range_: Range) -> Span | None:
    """The time of which some records are delivered."""
    return None if range_.last is None else Span(range_.last, range_.last + 1)


def _in_order(ranges: list[Range]) -> tuple[Range, ...]:
    return tuple(sorted(ranges, key=lambda each: each.span.ends))

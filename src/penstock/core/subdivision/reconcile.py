"""Fits a position to a configured range of time that may have changed since the last run."""

from __future__ import annotations

from dataclasses import replace

from penstock.core.subdivision.position import Position, Range
from penstock.core.subdivision.spans import Span, intersect, subtract
from penstock.core.subdivision.state import Order


def reconcile(position: Position, configured: Span, order: Order) -> Position:
    """The position for another configured range: nothing in `covered` is read again, nothing in `configured` is missed.

    Ranges are trimmed to the configured range or dropped; times that are neither covered nor in a range become new
    ranges. What is covered stays covered, even outside: a range that is narrowed and widened reads nothing twice.
    A trimmed range keeps its cursor if its beginning, in reading order, stays; otherwise the cursor lies outside.
    """
    kept = [trimmed for each in position.remaining if (trimmed := _trim(each, configured, order)) is not None]
    missing = subtract([configured], [*(each.span for each in kept), *position.covered])
    ranges = [*kept, *(Range(span.gte, span.lt) for span in missing)]
    return Position(tuple(sorted(ranges, key=lambda each: each.span.ends)), position.covered)


def _trim(range_: Range, configured: Span, order: Order) -> Range | None:
    span = intersect(range_.span, configured)
    if span is None:
        return None
    trimmed = replace(range_, gte=span.gte, lt=span.lt)
    begins_the_same = span.lt == range_.lt if order is Order.NEWEST_FIRST else span.gte == range_.gte
    return trimmed if begins_the_same else Range(span.gte, span.lt)

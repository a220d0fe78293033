"""Half-open spans of integer time, and sets of them: merge, subtract, intersect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: stands for an open bound inside computations; no API has such a time
INFINITE = 1 << 62


@dataclass(frozen=True, slots=True)
class Span:
    """The times t with gte <= t < lt; an open side is None."""

    #: included lower bound; None: open
    gte: int | None
    #: excluded upper bound; None: open
    lt: int | None

    @property
    def ends(self) -> tuple[int, int]:
        """Both bounds as numbers, so that they compare."""
        low = -INFINITE if self.gte is None else self.gte
        return low, INFINITE if self.lt is None else self.lt


def merge_ranges(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same times in the fewest spans, in order of time: spans that touch or overlap become one."""
    return tuple(span_of(*ends) for ends in merge_ends(span.ends for span in spans))


def subtract(whole: Iterable[Span], without: Iterable[Span]) -> tuple[Span, ...]:
    """The times of `whole` that are not in `without`, in the fewest spans."""
    holes = merge_ends(span.ends for span in without)
    pieces = []
    for low, high in merge_ends(span.ends for span in whole):
        for hole_low, hole_high in holes:
            if hole_high <= low or hole_low >= high:
                continue
            if low < hole_low:
                pieces.append((low, hole_low))
            low = hole_high
        if low < high:
            pieces.append((low, high))
    return tuple(span_of(*ends) for ends in pieces)


def intersect(span: Span, other: Span) -> Span | None:
    """The times that are in both; None if there are none."""
    (low, high), (other_low, other_high) = span.ends, other.ends
    low, high = max(low, other_low), min(high, other_high)
    return span_of(low, high) if low < high else None


def span_of(low: int, high: int) -> Span:
    """A span from bounds as numbers."""
    return Span(None if low <= -INFINITE else low, None if high >= INFINITE else high)


def merge_ends(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """`merge_ranges` on bounds as numbers; empty ones are left out."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if low >= high:
            continue
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return merged

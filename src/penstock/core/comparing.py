"""Compares two sets of rows by counts and checksums of key ranges, and narrows differences down to small ranges. Pure.

The two sides are asked through functions, so that the search itself needs neither a database nor a clock.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.ranges import Key, Range, cut

#: a differing range with at most this many rows on either side is compared row by row
LEAF_ROWS = 1000
#: pieces that a differing range is cut into
PIECES_PER_RANGE = 16

WHOLE = Range(None, None)


@dataclass(frozen=True, slots=True)
class Summary:
    """The rows of one range on one side."""

    rows: int
    #: the same for the same rows in any order
    checksum: str


Summarize = Callable[[Range], Summary]
#: keys that cut a range into about this number of pieces, in order
FindCuts = Callable[[Range, int], Sequence[Key]]


@dataclass(frozen=True, slots=True)
class Side:
    """How one side is asked."""

    summarize: Summarize
    find_cuts: FindCuts


@dataclass(frozen=True, slots=True)
class Compared:
    """A range that needs no further look, or whose rows must be compared one by one."""

    range: Range
    equal: bool
    #: rows on the source's side
    rows: int


def narrow(
    source: Side, sink: Side, whole: Range = WHOLE, *, leaf_rows: int = LEAF_ROWS, fanout: int = PIECES_PER_RANGE
) -> Iterator[Compared]:
    """Yield ranges that cover the whole: equal ones, and differing ones that are small or cannot be cut.

    The side with more rows in a range says where to cut it. Ranges come in the order of their keys. A piece that has as
    many rows as the range that it was cut from is not cut again: the sides do not agree about the order of keys.
    """
    waiting: list[tuple[Range, int | None]] = [(whole, None)]
    while waiting:
        range_, rows_before = waiting.pop()
        left, right = source.summarize(range_), sink.summarize(range_)
        if left == right:
            yield Compared(range_, True, left.rows)
            continue
        pieces, rows = [range_], left.rows + right.rows
        if max(left.rows, right.rows) > leaf_rows and (rows_before is None or rows < rows_before):
            larger = source if left.rows >= right.rows else sink
            pieces = cut(range_, larger.find_cuts(range_, fanout))
        if len(pieces) == 1:
            yield Compared(range_, False, left.rows)
        else:
            waiting += ((piece, rows) for piece in reversed(pieces))


class Difference(enum.StrEnum):
    """How a key differs between source and sink."""

    MISSING = "missing"  # the source has it, the sink does not
    STALE = "stale"  # the values differ
    EXTRA = "extra"  # the sink has it, the source does not: it was deleted there


def classify(source: str | None, sink: str | None) -> Difference | None:
    """How a key differs by the digests of its row on both sides; None: it does not."""
    if source == sink:
        return None
    if source is None:
        return Difference.EXTRA
    return Difference.MISSING if sink is None else Difference.STALE


def find_differences(source: Mapping[Key, str], sink: Mapping[Key, str]) -> list[Key]:
    """The keys that only one side has, or whose digests differ, in the order in which the sides list them."""
    keys = dict.fromkeys([*source, *sink])
    return [key for key in keys if source.get(key) != sink.get(key)]

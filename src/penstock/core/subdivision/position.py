"""What a mark keeps of a subdivision: the ranges that remain, and the spans that are read.

`to_document` and `from_document` are exact inverses. Equal positions have equal documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.documents import Json
from penstock.core.subdivision.spans import Span, merge_ranges


@dataclass(frozen=True, slots=True)
class Range:
    """A range of time that is still to be read: from its cursor on, or from its beginning."""

    #: included lower bound; None: open
    gte: int | None
    #: excluded upper bound; None: open
    lt: int | None
    #: where the next page begins, as the API named it; None: at the beginning of the range
    cursor: str | None = None
    #: time of the last record that was delivered from this range; None: none was
    last: int | None = None
    #: ids of the records delivered at that time, in reading order: dropped if they come again
    seen: tuple[str, ...] = ()
    #: more were delivered at that time than `seen` keeps: without a cursor, the range cannot tell them apart
    crowded: bool = False
    #: runs in a row that ended while they waited for an answer about this range
    abandoned: int = 0

    @property
    def span(self) -> Span:
        return Span(self.gte, self.lt)


@dataclass(frozen=True, slots=True)
class Position:
    """How far a stream is. Nothing remains when `remaining` is empty."""

    #: disjoint, in order of time
    remaining: tuple[Range, ...]
    #: spans in which every record was delivered, merged
    covered: tuple[Span, ...] = ()
    #: single times that are delivered in part and lie outside of the configured range (`reconcile`)
    partial: tuple[Range, ...] = ()

    def to_document(self) -> dict[str, Json]:
        """A document for the mark. Fields without a value are left out of a range, except its bounds and cursor."""
        document: dict[str, Json] = {
            "remaining": [_range_document(each) for each in self.remaining],
            "covered": [{"gte": span.gte, "lt": span.lt} for span in self.covered],
        }
        return document | ({"partial": [_range_document(each) for each in self.partial]} if self.partial else {})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Position:
        """Read what `to_document` wrote; ValueError for anything else."""
        try:
            ranges = _read_ranges(document["remaining"])
            partial = _read_ranges(document.get("partial", ()))
            spans = [Span(_time(each["gte"]), _time(each["lt"])) for each in document["covered"]]
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a position of a subdivision: {error!r}") from error
        position = cls(ranges, merge_ranges(spans), partial)
        position.check()
        return position

    def check(self) -> None:
        """Refuse ranges that are empty or overlap each other or what is covered: a record would come twice."""
        spans = [*(each.span for each in (*self.remaining, *self.partial)), *self.covered]
        end: int | None = None
        for low, high in sorted(span.ends for span in spans):
            if low >= high:
                raise ValueError(f"a range that is empty: [{low}, {high})")
            if end is not None and low < end:
                raise ValueError(f"ranges that overlap at {low}")
            end = high


def _range_document(range_: Range) -> dict[str, Json]:
    document: dict[str, Json] = {"gte": range_.gte, "lt": range_.lt, "cursor": range_.cursor}
    if range_.last is not None:
        document |= {"last": range_.last, "seen": list(range_.seen)}
    if range_.crowded:
        document["crowded"] = True
    if range_.abandoned:
        document["abandoned"] = range_.abandoned
    return document


def _read_ranges(documents: Iterable[Mapping[str, Any]]) -> tuple[Range, ...]:
    return tuple(sorted(map(_read_range, documents), key=lambda each: each.span.ends))


def _read_range(document: Mapping[str, Any]) -> Range:
    cursor = document["cursor"]
    if cursor is not None and not isinstance(cursor, str):
        raise TypeError("cursor")
    seen = tuple(document.get("seen", ()))
    if not all(isinstance(each, str) for each in seen):
        raise TypeError("seen")
    gte, lt, last = _time(document["gte"]), _time(document["lt"]), _time(document.get("last"))
    return Range(
        gte, lt, cursor, last, seen, bool(document.get("crowded", False)), _time(document.get("abandoned")) or 0
    )


def _time(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise TypeError(f"{value!r} is no time")
    return value

"""Pieces: what a worker must know of a data file, and of which rows it may read. Small, picklable, writable as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.core.documents import Document, canonical, parse
from penstock.core.slices import Part
from penstock.errors import StreamFailed

#: what to do where a data file is gone, or cannot be read: a retry is planned anew on the table as it is by then
RUN_AGAIN = "run again; the slice is planned anew on the table as it is then"


@dataclass(frozen=True, slots=True)
class Piece:
    """One data file of a table, with the delete files that apply to it."""

    path: str
    #: bytes
    size: int
    #: rows, those that position deletes name included
    rows: int
    #: the least and the greatest number in it; None: not known
    low: int | None
    high: int | None
    #: paths of its position delete files
    deletes: tuple[str, ...] = ()
    #: field id and JSON text of each identity partition's value, for files that leave such a column out
    constants: tuple[tuple[int, str], ...] = ()

    def document(self) -> Document:
        return {
            "path": self.path,
            "size": self.size,
            "rows": self.rows,
            "low": self.low,
            "high": self.high,
            "deletes": list(self.deletes),
            "constants": [list(constant) for constant in self.constants],
        }

    @classmethod
    def of(cls, document: Any) -> Piece:
        deletes, constants = document["deletes"], document["constants"]
        plain = {name: document[name] for name in ("path", "size", "rows", "low", "high")}
        return cls(**plain, deletes=tuple(deletes), constants=tuple((id_, text) for id_, text in constants))

    def within(self, after: int, upto: int) -> bool:
        """Whether it may hold rows of a range."""
        return (self.low is None or self.low <= upto) and (self.high is None or self.high > after)

    def rows_within(self, after: int, upto: int) -> int:
        """About how many of its rows lie in a range, as if its numbers were spread evenly."""
        if self.low is None or self.high is None:
            return self.rows
        shared = min(self.high, upto) - max(self.low - 1, after)
        return self.rows * max(0, shared) // (self.high - self.low + 1)


@dataclass(frozen=True, slots=True)
class Span:
    """A range of numbers, (after, upto], and the pieces that may hold its rows."""

    after: int
    upto: int
    pieces: tuple[Piece, ...]

    def part(self, index: int) -> Part:
        pieces = [piece.document() for piece in self.pieces]
        return Part(index, canonical({"after": self.after, "upto": self.upto, "pieces": pieces}))

    @classmethod
    def of(cls, part: Part) -> Span:
        terms = parse(part.terms)
        return cls(terms["after"], terms["upto"], tuple(Piece.of(piece) for piece in terms["pieces"]))


Item = TypeVar("Item")


def overlapping(items: Iterable[Item], bounds: Callable[[Item], tuple[int, int]]) -> Iterator[Sequence[Item]]:
    """Items in groups: within a group their ranges overlap, and each group lies wholly after the one before."""
    group: list[Item] = []
    end = 0
    for item in sorted(items, key=bounds):
        low, high = bounds(item)
        if group and low > end:
            yield group
            group = []
        end = max(end, high) if group else high
        group.append(item)
    if group:
        yield group


def grouped(pieces: Iterable[Piece], after: int, upto: int) -> Iterator[Sequence[Piece]]:
    """The pieces of a range in overlapping groups, in the order of their numbers."""

    def bounds(piece: Piece) -> tuple[int, int]:
        low = after + 1 if piece.low is None else max(piece.low, after + 1)
        return low, upto if piece.high is None else min(piece.high, upto)

    return overlapping((piece for piece in pieces if piece.within(after, upto)), bounds)


def gone(path: str) -> StreamFailed:
    return StreamFailed(
        f"{path} is not there any more: the table was compacted or expired meanwhile", next_step=RUN_AGAIN
    )


def unreadable(path: str, error: BaseException) -> StreamFailed:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return StreamFailed(f"{path} cannot be read: {reason}", next_step=RUN_AGAIN)

"""A slice of a first load, by keys or by blocks, and its document in the slice's plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.ranges import Key
from penstock.core.slices import Slice
from penstock.ports import Planned
from penstock.sources.postgres.keyset import uncovered_error
from penstock.sources.postgres.marks import KeysetMark, LoadMark, read, to_key, to_list


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a load that one part reads."""

    #: the partition's oid; None: the table has no partitions
    leaf: str | None
    after: Key | None
    #: None: to the end
    upto: Key | None

    def document(self) -> Document:
        return {"leaf": self.leaf, "after": to_list(self.after), "upto": to_list(self.upto)}


@dataclass(frozen=True, slots=True)
class LoadSlice:
    """A slice of a load."""

    start: LoadMark
    #: a later position of the load, or the keyset mark after it
    end: LoadMark | KeysetMark
    pieces: tuple[Piece, ...]

    def planned(self, rows: int, row_bytes: int) -> Planned:
        return Planned(
            upto=self.end.mark(),
            plan={
                "load": self.start.mark().document,
                "pieces": [piece.document() for piece in self.pieces],
                "rows": rows,
                "row_bytes": row_bytes,
            },
            rows=rows,
        )

    @classmethod
    def of(cls, slice_: Slice, plan: Any) -> LoadSlice:
        """From a slice's plan; StreamFailed if the plan does not lead from the one mark to the other."""
        start, end = read(Mark.of(plan["load"])), read(slice_.upto) if slice_.upto else None
        if not isinstance(start, LoadMark) or not isinstance(end, LoadMark | KeysetMark):
            raise uncovered_error(slice_)
        goal, then = end.then if isinstance(end, LoadMark) else end, start.then
        before = read(slice_.after) if slice_.after else None
        same_goal = (goal.key, goal.columns, goal.leaves) == (then.key, then.columns, then.leaves)
        if not same_goal or (isinstance(before, LoadMark) and before != start):
            raise uncovered_error(slice_)
        pieces = [Piece(piece["leaf"], to_key(piece["after"]), to_key(piece["upto"])) for piece in plan["pieces"]]
        return cls(start, end, tuple(pieces))

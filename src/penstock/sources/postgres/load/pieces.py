"""What loads by keys and by blocks have in common: the stream at hand, and a slice's pieces as a document."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.ranges import Key
from penstock.core.slices import Slice
from penstock.links.postgres.connection import Session
from penstock.ports import Planned
from penstock.sources.postgres import keyset
from penstock.sources.postgres.content import KeyColumn, TableContent
from penstock.sources.postgres.marks import KeysetMark, LoadMark, read
from penstock.sources.postgres.shape import Leaf


@dataclass(frozen=True, slots=True)
class Stream:
    """A keyset stream that is being planned or read."""

    session: Session
    name: str
    content: TableContent
    #: keys, blocks, cursor or auto
    first_load: str = "auto"
    #: most parts that may be read at the same time; None: as many as there are workers
    connections: int | None = None
    #: whether nothing is read that an open transaction could still come before
    waits: bool = True
    #: whether rows below the mark of a partition that may not be read are left out knowingly
    skips_hidden: bool = False

    def along(self, columns: tuple[KeyColumn, ...], leaf: Leaf | None) -> TableContent:
        """The content as if these columns were its key, of one partition if it is given."""
        return replace(self.content, key=columns, table=leaf.name if leaf else self.content.table)

    @property
    def reset(self) -> str:
        return f"`penstock state reset FILE --stream {self.name}`"


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a load that one part reads."""

    #: the partition's oid; None: the table has none
    leaf: str | None
    after: Key | None
    #: None: to the end
    upto: Key | None

    def document(self) -> Document:
        return {"leaf": self.leaf, "after": keyset.listed(self.after), "upto": keyset.listed(self.upto)}


@dataclass(frozen=True, slots=True)
class Batch:
    """A slice of a load: from where to where, in which pieces."""

    start: LoadMark
    #: a later place of the load, or what comes after it
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
    def of(cls, slice_: Slice, plan: Document) -> Batch:
        """As a slice was planned; StreamFailed if its plan does not lead from the one mark to the other."""
        said: Any = plan
        start, end = read(Mark.of(said["load"])), read(slice_.upto) if slice_.upto else None
        if not isinstance(start, LoadMark) or not isinstance(end, LoadMark | KeysetMark):
            raise keyset.uncovered(slice_)
        goal, then = end.then if isinstance(end, LoadMark) else end, start.then
        before = read(slice_.after) if slice_.after else None
        stays = (goal.key, goal.columns, goal.leaves) == (then.key, then.columns, then.leaves)
        if not stays or (isinstance(before, LoadMark) and before != start):
            raise keyset.uncovered(slice_)
        pieces = [Piece(piece["leaf"], _key(piece["after"]), _key(piece["upto"])) for piece in said["pieces"]]
        return cls(start, end, tuple(pieces))


def _key(texts: list[str] | None) -> Key | None:
    return None if texts is None else tuple(texts)

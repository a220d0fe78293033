"""What a table is made of, as its first load needs it: its file, its size and its partitions. Asks only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import TableName, load_statement
from penstock.sources.postgres.catalog import ROOM

BLOCK_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Leaf:
    """A partition that holds rows itself."""

    oid: str
    name: TableName
    #: whether it can be read by its own name, and then shows what its parent shows
    may_select: bool
    blocks: int
    #: of a new one, the condition that its rows meet, as SQL; None: nobody asked, or it has none
    bounds: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """A table as it is on the disk."""

    oid: str
    #: relkind: r, p, v, m or f
    kind: str
    #: on the whole table, not on columns alone
    may_select: bool
    #: row-level security hides rows from us
    row_security: bool
    #: the file that holds it: another one after a rewrite; None: it has none of its own
    file: str | None
    #: pages of a plain heap; None: it is not one
    blocks: int | None
    #: of the heap and its large values
    bytes: int
    #: of the partitions that were asked for, those that still exist
    known: tuple[str, ...]
    leaves: tuple[Leaf, ...]

    @property
    def told_apart(self) -> bool:
        """Whether a row says of which partition it is, and we see all: a system column tells, given the permission."""
        return self.kind == "p" and self.may_select and not self.row_security and bool(self.leaves)


def look(session: Session, name: TableName, *, stream: str, known: Sequence[str] = ()) -> Shape:
    """A table's shape now; one that is not there any more has none of anything."""
    query = load_statement(ROOM, "shape").format(
        schema=sql.Literal(name.schema), name=sql.Literal(name.name), known=sql.Literal(list(known))
    )
    rows = session.rows(query, table=str(name), stream=stream)
    if not rows:
        return Shape("0", "", False, False, None, None, 0, (), ())
    said = rows[0][0]
    leaves = tuple(
        Leaf(leaf["oid"], TableName(leaf["schema"], leaf["name"]), leaf["may_select"], leaf["blocks"], leaf["bounds"])
        for leaf in said["leaves"]
    )
    size = said["bytes"] if said["bytes"] is not None else sum(leaf.blocks for leaf in leaves) * BLOCK_BYTES
    return Shape(
        oid=said["oid"],
        kind=said["kind"],
        may_select=said["may_select"],
        row_security=said["row_security"],
        file=said["file"],
        blocks=said["blocks"],
        bytes=size,
        known=tuple(said["known"]),
        leaves=leaves,
    )

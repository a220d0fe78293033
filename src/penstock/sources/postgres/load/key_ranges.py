"""A first load by ranges of a key: of the table, or of one partition after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from penstock.core.documents import Document, canonical
from penstock.core.ranges import Key, Range, cut, tiles
from penstock.core.slices import Part
from penstock.errors import StreamRefused
from penstock.links.postgres.literals import TableName
from penstock.ports import Budget, Planned
from penstock.sources.postgres import keyset, spread
from penstock.sources.postgres.catalog import describe
from penstock.sources.postgres.content import KeyColumn, TableContent, names
from penstock.sources.postgres.load.pieces import Batch, Piece, Stream
from penstock.sources.postgres.marks import KeysetMark, LoadMark, alike
from penstock.sources.postgres.plan import LEAST_PART_BYTES, Reach, Walk, parts_for, walk_on
from penstock.sources.postgres.shape import BLOCK_BYTES, Leaf, Shape, look

#: partitions of one slice at most, where they are small
MOST_LEAVES = 64
#: a slice that is filled but for this share is not filled up with a piece of the next partition
FULL = 0.25


def next_slice(stream: Stream, load: LoadMark, shape: Shape, budget: Budget) -> Planned:
    """The next batch of ranges; the last one leads to where the keyset goes on, also if it is empty."""
    columns = _now(stream, load)
    todo = list(_todo(load, shape))
    row_bytes = _row_bytes(stream, columns, todo, budget)
    walk = Walk.of(budget, row_bytes, parts_for(budget.workers, stream.connections))
    # Along the cursor itself the range ends at H0: above it are rows that have none.
    end = load.then.key if names(columns) == names(stream.content.key) else None
    tour = _Tour(stream, columns, end, budget, walk)
    done = list(_done(load))
    for number, (leaf, after) in enumerate(todo):
        stopped = tour.visit(leaf, after)
        if stopped and leaf:
            terms: Document = {"done": done, "leaf": leaf.oid, "name": str(leaf.name)}
            return tour.batch(load, replace(load, after=stopped, terms=terms)).planned(tour.rows, row_bytes)
        if stopped:
            return tour.batch(load, replace(load, after=stopped)).planned(tour.rows, row_bytes)
        if leaf:
            done.append(leaf.oid)
        if tour.full and number + 1 < len(todo):
            between = replace(load, after=None, terms={"done": done})
            return tour.batch(load, between).planned(tour.rows, row_bytes)
    return tour.batch(load, load.then).planned(tour.rows, row_bytes)


def left(stream: Stream, load: LoadMark, shape: Shape) -> int:
    """Rows that the load has still before it, as the statistics have them."""
    columns, rows = _now(stream, load), 0.0
    blocks = sum(leaf.blocks for leaf in shape.leaves)
    whole = spread.expected(stream.session, stream.name, stream.content)
    for leaf, after in _todo(load, shape):
        if leaf and not after:
            rows += whole * leaf.blocks / max(1, blocks)
        else:
            rows += spread.left(stream.session, stream.name, stream.along(columns, leaf), Range(after, None))
    return round(rows)


def parts(stream: Stream, batch: Batch) -> list[Part] | None:
    """The parts of a slice; None: they would not cover it. A partition that is gone by now has no rows to read."""
    if not _covers(batch):
        return None
    tables: dict[str | None, TableName | None] = {None: None}
    if any(piece.leaf for piece in batch.pieces):
        shape = look(stream.session, stream.content.table, stream=stream.name)
        tables |= {leaf.oid: leaf.name for leaf in shape.leaves}
    columns = _now(stream, batch.start)
    common: Document = {
        "load": "keys",
        "columns": list(names(columns)),
        "types": [column.type for column in columns],
        "horizon": keyset.listed(batch.start.then.key),
    }
    there = [piece for piece in batch.pieces if piece.leaf in tables]
    return [
        Part(index, canonical({**common, **_ends(piece), **({"table": str(table)} if table else {})}))
        for index, piece in enumerate(there)
        for table in (tables[piece.leaf],)
    ]


def _ends(piece: Piece) -> Document:
    return {"after": keyset.listed(piece.after), "upto": keyset.listed(piece.upto)}


# ---------------------------------------------------------------- one slice


@dataclass
class _Tour:
    """A slice in the making, from partition to partition."""

    stream: Stream
    columns: tuple[KeyColumn, ...]
    end: Key | None
    budget: Budget
    walk: Walk
    rows: int = 0

    def __post_init__(self) -> None:
        self.long = keyset.long_walk(self.walk, self.budget)
        self.room = self.most = (self.long or self.walk).most
        self.pieces: list[Piece] = []
        few = self.stream.connections
        self.most_pieces = few if few is not None and few < self.budget.workers else MOST_LEAVES

    @property
    def full(self) -> bool:
        enough = 0 if self.budget.rows is not None else self.most * FULL
        return self.room <= enough or len(self.pieces) >= self.most_pieces

    def visit(self, leaf: Leaf | None, after: Key | None) -> Key | None:
        """Take in what there is room for; where it stops, or None: to the end."""
        content, whole = self.stream.along(self.columns, leaf), Range(after, self.end)
        found = self._small(leaf, after) or self._reach(content, whole) or Reach((), None, 0)
        self.pieces += [
            Piece(leaf.oid if leaf else None, piece.after, piece.upto)
            for piece in cut(Range(after, found.upto), found.cuts)
        ]
        self.rows += found.rows
        self.room -= found.rows
        return found.upto

    def _small(self, leaf: Leaf | None, after: Key | None) -> Reach | None:
        """All of a partition that is not worth to be asked about."""
        if leaf is None or after is not None or self.budget.rows is not None:
            return None
        size = leaf.blocks * BLOCK_BYTES
        rows = size // self.walk.row_bytes
        return Reach((), None, rows) if size <= LEAST_PART_BYTES and rows <= self.room else None

    def _reach(self, content: TableContent, whole: Range) -> Reach | None:
        session, name = self.stream.session, self.stream.name
        share = max(1, min(self.walk.parts * self.room // self.most, self.most_pieces - len(self.pieces)))
        if self.long:
            found = spread.reach(session, name, content, whole, replace(self.long, most=self.room, parts=share))
            if found:
                return found
        most = min(self.walk.most, self.room)
        step = min(most, self.walk.step)
        return walk_on(session, name, content, whole, replace(self.walk, most=most, step=step, parts=share))

    def batch(self, start: LoadMark, end: LoadMark | KeysetMark) -> Batch:
        return Batch(start, end, tuple(self.pieces))


def _now(stream: Stream, load: LoadMark) -> tuple[KeyColumn, ...]:
    """The load's columns with the types that they have now."""
    table = describe(stream.session, stream.content.table, (), stream=stream.name)
    found = []
    for old in load.columns:
        column = table.column(old.column) if table else None
        if column is None or not alike(old.type, column.type):
            now = f"is {column.type} now" if column else "is gone"
            raise StreamRefused(
                f"the first load goes by {old.column} of {stream.content.table}, which was {old.type} and {now}",
                next_step=f"change the column back, or run {stream.reset} to read the table from the beginning",
                stream=stream.name,
            )
        found.append(KeyColumn(column.name, column.type))
    return tuple(found)


def _row_bytes(
    stream: Stream, columns: tuple[KeyColumn, ...], todo: list[tuple[Leaf | None, Key | None]], budget: Budget
) -> int:
    for leaf, after in todo:
        content = stream.along(columns, leaf)
        found = keyset.bytes_of_a_row(stream.session, stream.name, content, Range(after, None), budget)
        if found:
            return found
    return 1


# ---------------------------------------------------------------- partitions


def _done(load: LoadMark) -> tuple[str, ...]:
    done = load.terms.get("done", [])
    return tuple(done) if isinstance(done, list) else ()


def _todo(load: LoadMark, shape: Shape) -> Iterator[tuple[Leaf | None, Key | None]]:
    """What is still to be read, each with where it begins; the table itself if it has no partitions.

    A partition without a block has had no row since H0 was taken that could be below it.
    """
    if "done" not in load.terms:
        yield None, load.after
        return
    wanted = set(load.then.leaves) - set(_done(load))
    current = load.terms.get("leaf")
    leaves = [leaf for leaf in shape.leaves if leaf.oid in wanted and leaf.blocks]
    for leaf in sorted(leaves, key=lambda leaf: leaf.oid != current):
        yield leaf, load.after if leaf.oid == current else None


def _covers(batch: Batch) -> bool:
    """Whether the pieces of each partition lead from where it stood to its end, or to where the slice ends."""
    start, end = batch.start, batch.end
    if not batch.pieces and "done" not in start.terms:
        return False
    for leaf, pieces in groupby(batch.pieces, key=lambda piece: piece.leaf):
        begins = start.after if leaf == start.terms.get("leaf") else None
        ends = end.after if isinstance(end, LoadMark) and leaf == end.terms.get("leaf") else None
        if not tiles([Range(piece.after, piece.upto) for piece in pieces], Range(begins, ends)):
            return False
    return True

"""A first load by ranges of a key, of the table or of one partition after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from penstock.core.documents import Document, canonical
from penstock.core.ranges import Key, Range, cut, tiles
from penstock.core.slices import Part
from penstock.errors import StreamRefused
from penstock.links.postgres.literals import TableName
from penstock.links.postgres.tables import BLOCK_BYTES, Partition, Table
from penstock.ports import Budget, Planned
from penstock.sources.postgres.content import KeyColumn, column_names
from penstock.sources.postgres.histogram import Extent, count_rows_after, estimate_extent
from penstock.sources.postgres.keyset import MIN_PART_BYTES, SliceLimits, estimate_row_bytes, parts_for, walk
from penstock.sources.postgres.load.pieces import LoadSlice, Piece
from penstock.sources.postgres.marks import KeysetMark, LoadMark, have_same_order, to_list
from penstock.sources.postgres.stream import TableStream

#: small partitions that one slice may have
MAX_SLICE_PARTITIONS = 64
#: a slice with less room than this share does not begin another partition
MIN_ROOM_SHARE = 0.25


def plan_slice(stream: TableStream, load: LoadMark, table: Table, budget: Budget) -> Planned:
    """Plan the next ranges; the last slice leads to the keyset mark, even if it is empty."""
    columns = _current_columns(stream, load)
    todo = list(_remaining_partitions(load, table))
    row_bytes = _estimate_row_bytes(stream, columns, todo, budget)
    limits = SliceLimits.of(budget, row_bytes, parts_for(budget.workers, stream.connections))
    # Along the cursor itself the range ends at H0: rows without a cursor are above it.
    end = load.then.key if column_names(columns) == stream.content.key_names else None
    slice_ = _SliceBuilder(stream, columns, end, budget, limits)
    done = list(_loaded_partitions(load))
    goal: LoadMark | KeysetMark = load.then
    for number, (partition, after) in enumerate(todo):
        upto = slice_.add(partition, after)
        if upto:
            here: Document = {"done": done, "leaf": partition.oid, "name": str(partition.name)} if partition else {}
            goal = replace(load, after=upto, terms=here or load.terms)
            break
        if partition:
            done.append(partition.oid)
        if slice_.full and number + 1 < len(todo):
            goal = replace(load, after=None, terms={"done": done})
            break
    return LoadSlice(load, goal, tuple(slice_.pieces)).planned(slice_.rows, row_bytes)


def estimate_rows(stream: TableStream, load: LoadMark, table: Table) -> int:
    """Rows that are not loaded yet, by the statistics."""
    columns, rows = _current_columns(stream, load), 0.0
    blocks = sum(partition.blocks for partition in table.partitions)
    whole = stream.expected_rows()
    for partition, after in _remaining_partitions(load, table):
        if partition and not after:
            rows += whole * partition.blocks / max(1, blocks)
        else:
            rows += count_rows_after(stream.along(columns, partition), after)
    return round(rows)


def make_parts(stream: TableStream, slice_: LoadSlice) -> list[Part] | None:
    """The parts of a slice; None: they would not cover it. A partition that was dropped has no rows to read."""
    if not _covers(slice_):
        return None
    tables: dict[str | None, TableName | None] = {None: None}
    if any(piece.leaf for piece in slice_.pieces):
        table = stream.describe(storage=True)
        tables |= {partition.oid: partition.name for partition in (table.partitions if table else ())}
    columns = _current_columns(stream, slice_.start)
    common: Document = {
        "load": "keys",
        "columns": list(column_names(columns)),
        "types": [column.type for column in columns],
        "horizon": to_list(slice_.start.then.key),
    }
    terms: list[Document] = []
    for piece in slice_.pieces:
        if piece.leaf in tables:
            name = tables[piece.leaf]
            at: Document = {"table": str(name)} if name else {}
            terms.append({**common, "after": to_list(piece.after), "upto": to_list(piece.upto), **at})
    return [Part(index, canonical(each)) for index, each in enumerate(terms)]


# ---------------------------------------------------------------- one slice


@dataclass
class _SliceBuilder:
    """A slice that is filled from partition to partition."""

    stream: TableStream
    columns: tuple[KeyColumn, ...]
    end: Key | None
    budget: Budget
    limits: SliceLimits
    rows: int = 0

    def __post_init__(self) -> None:
        self.estimated = self.limits.for_estimates(self.budget)
        self.room = self.most = (self.estimated or self.limits).most
        self.pieces: list[Piece] = []
        few = self.stream.connections
        self.max_pieces = few if few is not None and few < self.budget.workers else MAX_SLICE_PARTITIONS

    @property
    def full(self) -> bool:
        enough = 0 if self.budget.rows is not None else self.most * MIN_ROOM_SHARE
        return self.room <= enough or len(self.pieces) >= self.max_pieces

    def add(self, partition: Partition | None, after: Key | None) -> Key | None:
        """Add the rows that there is room for; the key at which they stop, or None: at the end."""
        stream, whole = self.stream.along(self.columns, partition), Range(after, self.end)
        extent = self._take_small(partition, after) or self._find_extent(stream, whole) or Extent((), None, 0)
        self.pieces += [
            Piece(partition.oid if partition else None, piece.after, piece.upto)
            for piece in cut(Range(after, extent.upto), extent.cuts)
        ]
        self.rows += extent.rows
        self.room -= extent.rows
        return extent.upto

    def _take_small(self, partition: Partition | None, after: Key | None) -> Extent | None:
        """The whole of a partition that is too small to be worth a query."""
        if partition is None or after is not None or self.budget.rows is not None:
            return None
        size = partition.blocks * BLOCK_BYTES
        rows = size // self.limits.row_bytes
        return Extent((), None, rows) if size <= MIN_PART_BYTES and rows <= self.room else None

    def _find_extent(self, stream: TableStream, whole: Range) -> Extent | None:
        share = max(1, min(self.limits.parts * self.room // self.most, self.max_pieces - len(self.pieces)))
        if self.estimated:
            extent = estimate_extent(stream, whole, replace(self.estimated, most=self.room, parts=share))
            if extent:
                return extent
        most = min(self.limits.most, self.room)
        step = min(most, self.limits.step)
        return walk(stream, whole, replace(self.limits, most=most, step=step, parts=share))


def _current_columns(stream: TableStream, load: LoadMark) -> tuple[KeyColumn, ...]:
    """The load's columns with their current types."""
    table = stream.describe()
    columns = []
    for old in load.columns:
        column = table.column(old.column) if table else None
        if column is None or not have_same_order(old.type, column.type):
            now = f"is {column.type} now" if column else "was dropped"
            raise StreamRefused(
                f"the first load reads by {old.column} of {stream.content.table}, which was {old.type} and {now}",
                next_step=f"change the column back, or run {stream.reset_command} to read the table from the beginning",
                stream=stream.name,
            )
        columns.append(KeyColumn(column.name, column.type))
    return tuple(columns)


def _estimate_row_bytes(
    stream: TableStream,
    columns: tuple[KeyColumn, ...],
    todo: list[tuple[Partition | None, Key | None]],
    budget: Budget,
) -> int:
    for partition, after in todo:
        size = estimate_row_bytes(stream.along(columns, partition), Range(after, None), budget)
        if size:
            return size
    return 1


# ---------------------------------------------------------------- partitions


def _loaded_partitions(load: LoadMark) -> tuple[str, ...]:
    done = load.terms.get("done", [])
    return tuple(done) if isinstance(done, list) else ()


def _remaining_partitions(load: LoadMark, table: Table) -> Iterator[tuple[Partition | None, Key | None]]:
    """The partitions that are not loaded yet, each with its start; None for a table without partitions.

    A partition without blocks has no row below H0.
    """
    if "done" not in load.terms:
        yield None, load.after
        return
    wanted = set(load.then.leaves) - set(_loaded_partitions(load))
    current = load.terms.get("leaf")
    left = [partition for partition in table.partitions if partition.oid in wanted and partition.blocks]
    for partition in sorted(left, key=lambda partition: partition.oid != current):
        yield partition, load.after if partition.oid == current else None


def _covers(slice_: LoadSlice) -> bool:
    """Whether the pieces of each partition lead from its start to its end, or to the end of the slice."""
    start, end = slice_.start, slice_.end
    if not slice_.pieces and "done" not in start.terms:
        return False
    for leaf, pieces in groupby(slice_.pieces, key=lambda piece: piece.leaf):
        begins = start.after if leaf == start.terms.get("leaf") else None
        ends = end.after if isinstance(end, LoadMark) and leaf == end.terms.get("leaf") else None
        if not tiles([Range(piece.after, piece.upto) for piece in pieces], Range(begins, ends)):
            return False
    return True

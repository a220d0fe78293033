"""Reads a slice's rows from the lake, in a worker: the rows of a range of numbers, in the order of their numbers.

Row groups that lie outside the range are skipped by their statistics. Those whose numbers overlap are loaded together
and sorted, so memory is bounded by their rows inside the range; all others are streamed. Rows without a number are not
read: they have no place in the order yet.

A filter never holds back a delete. A tombstone has its key and nothing else, so a filter on any other column would not
let it pass, and a copy downstream would keep the row for good. For the same reason a row of a keyed table that does not
match goes out as a delete of its key: the version before may have matched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from penstock.core.slices import Part
from penstock.errors import StreamRefused
from penstock.lake import names
from penstock.lake.data_files import (
    Int64s,
    Mask,
    NumberRange,
    OpenDataFiles,
    RowGroup,
    ScanFile,
    explain_read_errors,
    group_overlapping,
    group_scan_files,
    in_order,
)
from penstock.lake.filtering import Filter, read_filter
from penstock.lake.projection import Projection, arrow_type, parse_name_mapping

#: bytes and rows of a batch, at most; bytes about
BATCH_BYTES = 16 << 20
BATCH_ROWS = 1 << 16
#: the column with each row's change, and its values
CHANGE = "_change"
UPSERT, DELETE = "upsert", "delete"


@dataclass(frozen=True)
class LakeReader:
    """Reads parts of one slice; picklable, and small but for a wide schema."""

    #: PyIceberg's own; may hold credentials
    io: FileIO = field(repr=False)
    #: the table's current schema
    schema: Schema = field(repr=False)
    #: columns to ship, in this order; never internal ones
    columns: tuple[str, ...]
    #: a filter in PyIceberg's language, which may name columns that are not shipped
    where: str | None = None
    #: add a column `_change`; without it tombstones are left out, and every row is an upsert
    changes: bool = False
    #: a keyed table's key; () for a log
    key: tuple[str, ...] = ()
    #: the table property `schema.name-mapping.default`
    name_mapping: str | None = field(default=None, repr=False)

    def open(self, part: Part) -> pa.RecordBatchReader:
        """Read the part's rows. Its files are closed when the rows end or fail, or the reader is discarded."""
        plan = _Plan(self)
        return pa.RecordBatchReader.from_batches(plan.schema, plan.batches(NumberRange.of(part)))


class _Plan:
    """The columns to read, to keep and to ship, determined once for a part."""

    def __init__(self, reader: LakeReader) -> None:
        self._reader = reader
        self._known = parse_name_mapping(reader.name_mapping)
        self._filter: Filter | None = read_filter(reader.where, reader.schema) if reader.where is not None else None
        self._shipped = [self._field(name) for name in reader.columns]
        fields = [pa.field(column.name, arrow_type(column.field_type)) for column in self._shipped]
        self.schema = pa.schema([*fields, pa.field(CHANGE, pa.string())] if reader.changes else fields)

    def _field(self, name: str) -> NestedField:
        found = next((each for each in self._reader.schema.fields if each.name == name), None)
        if found is None or name in names.INTERNAL:
            raise StreamRefused(
                f"the table has no column {name!r}"
                if found is None
                else f"{name} is the lake's own column and never leaves",
                next_step="correct `columns`",
            )
        return found

    @cached_property
    def _needed(self) -> list[NestedField]:
        """The columns to read: the shipped ones, those that the filter looks at, and the mark of a tombstone."""
        also = {*(self._filter.columns if self._filter else ()), names.DELETED}
        chosen = {column.name for column in self._shipped}
        rest = [each for each in self._reader.schema.fields if each.name in also - chosen]
        return [*self._shipped, *rest]

    def batches(self, span: NumberRange) -> Iterator[pa.RecordBatch]:
        for scan_files in group_scan_files(span.scan_files, span.after, span.upto):
            # A shelf for each group: nothing of it is needed again.
            with OpenDataFiles(self._reader.io, self._reader.schema, self._known) as files:
                row_groups = [
                    row_group
                    for scan_file in scan_files
                    for row_group in files.row_groups(scan_file, span.after, span.upto)
                ]
                for group in group_overlapping(row_groups, lambda row_group: row_group.bounds(span.after, span.upto)):
                    for batch in self._group(files, group, span):
                        yield from split_batch(self._outgoing(batch))

    def _group(
        self, files: OpenDataFiles, row_groups: Sequence[RowGroup], span: NumberRange
    ) -> Iterator[pa.RecordBatch]:
        """The rows of units that overlap, in order: streamed if there is one and it is in order, else sorted."""
        if len(row_groups) == 1:
            numbers, mask = files.select(row_groups[0], span.after, span.upto)
            rows = self._rows(files, row_groups[0], numbers, mask)
            yield from rows if in_order(numbers[mask]) else merge_batches(list(rows))
            return
        loaded: list[pa.RecordBatch] = []
        for row_group in row_groups:
            loaded += self._rows(files, row_group, *files.select(row_group, span.after, span.upto))
        yield from merge_batches(loaded)

    def _rows(self, files: OpenDataFiles, row_group: RowGroup, numbers: Int64s, mask: Mask) -> Iterator[pa.RecordBatch]:
        """A unit's rows that are chosen and let through, with their numbers as the last column."""
        if not mask.any():
            return
        at = 0
        projection = self._projection(files, row_group.scan_file)
        for batch in self._raw(files, row_group, projection):
            here = slice(at, at + batch.num_rows)
            at = here.stop
            if not mask[here].any():
                continue
            chosen = projection.applied(batch.filter(pa.array(mask[here])))
            kept = self._kept(chosen.append_column(names.SEQ, pa.array(numbers[here][mask[here]])))
            if kept.num_rows:
                yield kept

    def _raw(self, files: OpenDataFiles, row_group: RowGroup, projection: Projection) -> Iterator[pa.RecordBatch]:
        """A unit's rows as they are in the file."""
        file = files.file(row_group.scan_file.path)
        numbers = files.column(row_group.scan_file.path)
        assert numbers is not None, "a unit has numbers"
        # Without any column Arrow would give no rows.
        columns = projection.read or [numbers]
        about = file.metadata.row_group(row_group.group)
        leaves = [about.column(index) for index in range(about.num_columns)]
        bytes_ = sum(leaf.total_uncompressed_size for leaf in leaves if leaf.path_in_schema.split(".")[0] in columns)
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES * row_group.rows // max(bytes_, 1)))
        batches = file.iter_batches(batch_size=rows, row_groups=[row_group.group], columns=columns)
        while True:
            with explain_read_errors(row_group.scan_file.path):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _projection(self, files: OpenDataFiles, scan_file: ScanFile) -> Projection:
        return Projection.onto(
            self._needed,
            files.file(scan_file.path).schema_arrow,
            names=self._known,
            constants=scan_file.constants,
            path=scan_file.path,
        )

    def _kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that pass the filter; deletes always pass, or never if changes are not wanted."""
        deleted = None
        if names.DELETED in rows.schema.names:
            deleted = pc.fill_null(rows.column(names.DELETED), False)
        passing = self._filter.mask(rows) if self._filter else None
        if deleted is not None and not self._reader.changes:
            live = pc.invert(deleted)
            passing = live if passing is None else pc.and_kleene(passing, live)
        elif deleted is not None and passing is not None:
            passing = pc.or_kleene(passing, deleted)
            if self._reader.key:
                return self._without_values(rows, pc.fill_null(passing, False))
        return rows if passing is None else rows.filter(passing)

    def _without_values(self, rows: pa.RecordBatch, passing: pa.Array) -> pa.RecordBatch:
        """All rows; those that do not pass are deletes of their key, without any other value."""
        if pc.all(passing, min_count=0).as_py():
            return rows
        for index, each in enumerate(rows.schema):
            if each.name == names.DELETED:
                rows = rows.set_column(index, each.name, pc.if_else(passing, rows.column(index), True))
            elif each.name not in (*self._reader.key, names.SEQ):
                nothing = pa.scalar(None, each.type)
                rows = rows.set_column(index, each.name, pc.if_else(passing, rows.column(index), nothing))
        return rows

    def _outgoing(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [rows.column(column.name) for column in self._shipped]
        if self._reader.changes:
            arrays.append(read_changes(rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def read_changes(rows: pa.RecordBatch) -> pa.Array:
    if names.DELETED not in rows.schema.names:
        return pa.repeat(pa.scalar(UPSERT), rows.num_rows)
    return pc.if_else(pc.fill_null(rows.column(names.DELETED), False), DELETE, UPSERT)


def merge_batches(loaded: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches with numbers as one ordered run, in windows of bounded size: no column is ever put together whole."""
    if not loaded:
        return
    numbers = np.concatenate([batch.column(names.SEQ).to_numpy() for batch in loaded])
    order = np.argsort(numbers, kind="stable")
    starts = np.cumsum([0, *(batch.num_rows for batch in loaded)])
    bytes_ = sum(batch.nbytes for batch in loaded)
    step = max(1, min(BATCH_ROWS, BATCH_BYTES * len(order) // max(bytes_, 1)))
    for begin in range(0, len(order), step):
        yield _gathered(loaded, starts, order[begin : begin + step])


def _gathered(loaded: Sequence[pa.RecordBatch], starts: Int64s, places: Int64s) -> pa.RecordBatch:
    """Rows by their place in all batches together: taken batch by batch, then put in order."""
    batch_of = np.searchsorted(starts, places, side="right") - 1
    by_batch = np.argsort(batch_of, kind="stable")
    involved, begins = np.unique(batch_of[by_batch], return_index=True)
    taken = []
    for batch, rows in zip(involved, np.split(by_batch, begins[1:]), strict=True):
        taken.append(loaded[batch].take(pa.array(places[rows] - starts[batch])))
    back = np.empty_like(by_batch)
    back[by_batch] = np.arange(len(by_batch))
    return pa.concat_batches(taken).take(pa.array(back))


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of about the size that the seam allows; nothing of an empty one."""
    rows = max(1, min(BATCH_ROWS, BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1)))
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)

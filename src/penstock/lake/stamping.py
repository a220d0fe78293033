"""Inside a worker: one data file's rows written anew, with numbers for those that have no place in the order.

Reader and Writer of this module are two ends of the same pipe; each part is one file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from penstock.core.documents import canonical, parse
from penstock.core.slices import Part, Receipt
from penstock.lake import names
from penstock.lake.parquet import OpenFile, Shape, columns_of, local_path, make_folder, remove, sync
from penstock.lake.pieces import Piece
from penstock.lake.projection import Projection, arrow_type, names_of
from penstock.lake.shelf import Shelf, reading
from penstock.lake.writing import packed, writing
from penstock.ports import Mover, Reader, Writer

#: how often it is said how far a rewrite is
STEPS = 10


@dataclass(frozen=True)
class WholeFiles:
    """Reads data files whole, internal columns too, without the rows that are deleted."""

    io: FileIO = field(repr=False)
    schema: Schema = field(repr=False)
    name_mapping: str | None = None

    def open(self, part: Part) -> pa.RecordBatchReader:
        piece = Piece.of(parse(part.terms)["piece"])
        schema = pa.schema([pa.field(each.name, arrow_type(each.field_type)) for each in self.schema.fields])
        return pa.RecordBatchReader.from_batches(schema, self._batches(piece))

    def _batches(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        known = names_of(self.name_mapping)
        with Shelf(self.io, self.schema, known) as shelf:
            file = shelf.file(piece.path)
            projection = Projection.onto(
                self.schema.fields, file.schema_arrow, names=known, constants=piece.constants, path=piece.path
            )
            dead, at = shelf.dead(piece), 0
            for batch in file.iter_batches(columns=projection.read):
                begin, end = np.searchsorted(dead, (at, at + batch.num_rows))
                alive = np.ones(batch.num_rows, np.bool_)
                alive[dead[begin:end] - at] = False
                at += batch.num_rows
                with reading(piece.path):
                    kept = batch.filter(pa.array(alive))
                yield projection.applied(kept)


@dataclass(frozen=True)
class Stamper:
    """Writes one file for each part; what must be numbered is in the part's terms."""

    pipeline: str
    stream: str
    shape: Shape
    name: str
    #: by part: partition values and spec of the file that is replaced
    places: Mapping[int, tuple[Record, int]]

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        terms = parse(part.terms)
        own = uuid.uuid4().hex[:8]
        columns = columns_of(self.shape)
        partition, spec = self.places[part.index]
        io, rows, used = self.shape.file_io(), 0, 0
        folder = local_path(self.shape.location)
        if folder is not None:
            make_folder(folder)
        name = f"{self.name}-{part.index}-{own}.parquet"
        with writing(self.pipeline, self.stream, self.shape):
            file = OpenFile(self.shape, io, name, partition, spec, columns)
            try:
                for batch in batches:
                    stamped, count = _stamped(batch, terms, terms["start"] + used, at=rows)
                    used += count
                    rows += batch.num_rows
                    file.write(pa.Table.from_batches([_stored(stamped, columns)], columns))
                made = file.close()
            except BaseException:
                file.abandon()
                remove(file.uri, io)
                raise
            if folder is not None:
                sync(folder)
        if not rows:
            remove(file.uri, io)
        last = terms["start"] + used - 1 if used else None
        pieces = canonical({"files": [packed(made)] if rows else [], "last": last, "stamped": used})
        return Receipt(part.index, own, rows, rows, 0, "", pieces)


def _stamped(batch: pa.RecordBatch, terms: Mapping[str, Any], start: int, *, at: int) -> tuple[pa.RecordBatch, int]:
    """The batch with numbers from `start` where they are wanted; `at`: how many rows of the file came before it.

    They are wanted everywhere, or where a number was not handed out by this table: none, at most 0, above the head,
    or another table's.
    """
    column = batch.schema.get_field_index(names.SEQ)
    numbers = batch.column(column).fill_null(0).to_numpy().copy()
    new = np.full(len(numbers), terms["all"]) | (numbers <= 0) | (numbers > terms["head"])
    for begin, end in terms["strange"]:
        new[max(begin - at, 0) : max(end - at, 0)] = True
    count = int(new.sum())
    numbers[new] = np.arange(start, start + count)
    return batch.set_column(column, names.SEQ, pa.array(numbers, pa.int64())), count


def _stored(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Columns as they travel, as the table's files hold them."""
    arrays = [_as_stored(batch.column(index), each.type) for index, each in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _as_stored(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == type_:
        return array
    plain = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    if pa.types.is_fixed_size_binary(plain) and pa.types.is_string(array.type):
        return _uuid_bytes(array, plain).cast(type_)
    return array.cast(type_)


def _uuid_bytes(texts: pa.Array, plain: pa.DataType) -> pa.Array:
    """Uuids as their sixteen bytes, from the text that they travel as; one parse for all of them."""
    nothing = "0" * 32
    digits = pc.fill_null(pc.replace_substring(texts, "-", ""), nothing)
    raw = bytes.fromhex("".join(digits.to_pylist()))
    made = pa.FixedSizeBinaryArray.from_buffers(plain, len(texts), [None, pa.py_buffer(raw)])
    return pc.if_else(texts.is_valid(), made, pa.scalar(None, plain))


def move_in_steps(
    mover: Mover, reader: Reader, writer: Writer, parts: Sequence[Part], progress: Callable[[int, int], None]
) -> list[Receipt]:
    """Move the parts, at most ten times one group after the other, so that it can be said how far it is."""
    step = max(mover.workers, -(-len(parts) // STEPS))
    receipts: list[Receipt] = []
    for begin in range(0, len(parts), step):
        receipts += mover.move(reader, writer, parts[begin : begin + step])
        if len(parts) > step:
            progress(min(begin + step, len(parts)), len(parts))
    return receipts


def tally(receipts: Sequence[Receipt]) -> tuple[int, int]:
    """How many rows were numbered, and the highest number used; 0: none."""
    found = [parse(receipt.pieces) for receipt in receipts]
    return sum(each["stamped"] for each in found), max((each["last"] or 0 for each in found), default=0)


def remove_files(io: FileIO, files: Sequence[DataFile]) -> None:
    """Remove data files of our own that no table names."""
    for file in files:
        remove(file.file_path, io)

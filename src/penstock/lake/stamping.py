"""Rewrites data files with other numbers: in workers, numbers for foreign rows; on the driver, later numbers for staged
rows after a lost race.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from penstock.core.documents import canonical, parse
from penstock.core.slices import Part, Receipt
from penstock.lake import names
from penstock.lake.data_files import OpenDataFiles, ScanFile, explain_read_errors
from penstock.lake.names import SEQ
from penstock.lake.parquet import DataFileWriter, FileLayout, local_path, remove
from penstock.lake.projection import Projection, arrow_type, parse_name_mapping
from penstock.lake.writing import PartFiles, encode_file, explain_write_errors
from penstock.links.durable import sync


@dataclass(frozen=True)
class WholeFiles:
    """Reads data files whole, internal columns too, without the rows that are deleted."""

    io: FileIO = field(repr=False)
    schema: Schema = field(repr=False)
    name_mapping: str | None = None

    def open(self, part: Part) -> pa.RecordBatchReader:
        scan_file = ScanFile.of(parse(part.terms)["scan_file"])
        schema = pa.schema([pa.field(each.name, arrow_type(each.field_type)) for each in self.schema.fields])
        return pa.RecordBatchReader.from_batches(schema, self._batches(scan_file))

    def _batches(self, scan_file: ScanFile) -> Iterator[pa.RecordBatch]:
        known = parse_name_mapping(self.name_mapping)
        with OpenDataFiles(self.io, self.schema, known) as files:
            file = files.file(scan_file.path)
            projection = Projection.onto(
                self.schema.fields, file.schema_arrow, names=known, constants=scan_file.constants, path=scan_file.path
            )
            dead, at = files.find_deleted(scan_file), 0
            for batch in file.iter_batches(columns=projection.read):
                begin, end = np.searchsorted(dead, (at, at + batch.num_rows))
                alive = np.ones(batch.num_rows, np.bool_)
                alive[dead[begin:end] - at] = False
                at += batch.num_rows
                with explain_read_errors(scan_file.path):
                    kept = batch.filter(pa.array(alive))
                yield projection.applied(kept)


@dataclass(frozen=True)
class Stamper:
    """Writes one file for each part; what must be numbered is in the part's terms."""

    pipeline: str
    stream: str
    layout: FileLayout
    name: str
    #: by part: partition values of the file that is replaced
    partitions: Mapping[int, Record]

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        terms = parse(part.terms)
        own, rows, used = uuid.uuid4().hex[:8], 0, 0
        with (
            explain_write_errors(self.pipeline, self.stream, self.layout),
            PartFiles(
                self.layout, lambda k: f"{self.name}-{part.index}-{k}-{own}.parquet", self.partitions[part.index]
            ) as files,
        ):
            for batch in batches:
                stamped, count = _stamp(batch, terms, terms["start"] + used, at=rows)
                used += count
                rows += batch.num_rows
                if batch.num_rows:
                    files.add(_store(stamped, files.columns))
            written = [encode_file(file) for file in files.finish()]
        last = terms["start"] + used - 1 if used else None
        return Receipt(part.index, own, rows, rows, 0, "", canonical({"files": written, "last": last, "stamped": used}))


def _stamp(batch: pa.RecordBatch, terms: Mapping[str, Any], start: int, *, at: int) -> tuple[pa.RecordBatch, int]:
    """The batch with numbers from `start` where they are wanted; `at`: how many rows of the file came before it.

    They are wanted everywhere, or where a number was not handed out by this table: none, at most 0, above the head,
    or another table's.
    """
    column = batch.schema.get_field_index(names.SEQ)
    numbers = batch.column(column).fill_null(0).to_numpy().copy()
    new = np.full(len(numbers), terms["all"]) | (numbers <= 0) | (numbers > terms["head"])
    for begin, end in terms["foreign"]:
        new[max(begin - at, 0) : max(end - at, 0)] = True
    count = int(new.sum())
    numbers[new] = np.arange(start, start + count)
    return batch.set_column(column, names.SEQ, pa.array(numbers, pa.int64())), count


def _store(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Columns as they travel, as the table's files hold them."""
    arrays = [_store_column(batch.column(index), each.type) for index, each in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _store_column(array: pa.Array, type_: pa.DataType) -> pa.Array:
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


def count_stamped(receipts: Sequence[Receipt]) -> tuple[int, int]:
    """How many rows were numbered, and the highest number used; 0: none."""
    found = [parse(receipt.pieces) for receipt in receipts]
    return sum(each["stamped"] for each in found), max((each["last"] or 0 for each in found), default=0)


#: files that are rewritten at the same time
STAMPING_THREADS = 4


def restamp(
    files: Sequence[DataFile],
    layout: FileLayout,
    *,
    old_start: int,
    new_start: int,
    name: str,
    threads: int = STAMPING_THREADS,
) -> list[DataFile]:
    """The same rows in new files, each number shifted from `old_start` to `new_start`; order and gaps stay.

    `shape` is the one that the files were written with, `name` the beginning of the new files' names. The old files
    stay: only the caller learns whether they are needed. On a failure the new ones are removed.
    """
    io, own = layout.file_io(), uuid.uuid4().hex[:8]
    names = [f"{name}-r{k}-{own}.parquet" for k in range(len(files))]
    with ThreadPoolExecutor(max(1, min(threads, len(files)))) as pool:
        futures = [
            pool.submit(_rewritten, file, layout, io, new, new_start - old_start)
            for file, new in zip(files, names, strict=True)
        ]
        try:
            done = [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            for new in names:
                remove(f"{layout.location.rstrip('/')}/{new}", io)
            raise
    folder = local_path(layout.location)
    if folder is not None and files:
        sync(folder)
    return done


def _rewritten(old: DataFile, layout: FileLayout, io: FileIO, name: str, shift: int) -> DataFile:
    path = local_path(old.file_path)
    with pa.OSFile(path) if path is not None else io.new_input(old.file_path).open() as stream:
        source = pq.ParquetFile(stream)
        # The file's own columns and field ids: the table may have grown since.
        columns = source.schema_arrow
        place = columns.get_field_index(SEQ)
        new = DataFileWriter(layout, io, name, old.partition, old.spec_id, columns)
        try:
            for group in range(source.num_row_groups):
                rows = source.read_row_group(group)
                numbers = pc.add_checked(rows.column(place), shift)
                new.write(rows.set_column(place, columns.field(place), numbers))
            return new.close()
        except BaseException:
            new.abandon()
            raise

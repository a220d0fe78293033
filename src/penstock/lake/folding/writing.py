"""Writes the rows of a fold in Spark's workers: the table's as numbered data files, and those of the side data."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from penstock.errors import StreamFailed
from penstock.lake.fitting import make_fitting
from penstock.lake.folding.side_data import SCHEMA, write_side
from penstock.lake.parquet import FileLayout
from penstock.lake.writing import NUMBERS_PER_PART, PartFiles

#: the schema of what a worker answers
RECEIPTS = "receipt binary"
#: how the names of columns begin that go into the side data
PREFIX = "__side_"


@dataclass(frozen=True)
class FoldWriter:
    """Writes one partition of a fold's rows. Small and picklable."""

    layout: FileLayout
    #: beginning of every file's name: stream, slice number, attempt
    name: str
    #: the first number of the first partition
    start: int
    #: the slice's number, which tells later rows of the side data from earlier ones
    number: int

    def write(self, batches: Iterable[pa.RecordBatch], partition: int) -> WrittenPart:
        own, rows, first = uuid.uuid4().hex[:8], 0, self.start + partition * NUMBERS_PER_PART
        side: list[pa.RecordBatch] = []
        fit = None
        with PartFiles(self.layout, lambda k: f"{self.name}-{partition}-{k}-{own}.parquet") as files:
            for batch in batches:
                mine, beside = _split(batch)
                if beside.num_rows:
                    side.append(beside)
                if not mine.num_rows:
                    continue
                fit = fit or make_fitting(mine.schema, self.layout.schema, self.layout.key)
                if rows + mine.num_rows > NUMBERS_PER_PART:
                    raise StreamFailed(
                        f"one part of a fold changes more than {NUMBERS_PER_PART} entities",
                        next_step="raise spark.sql.shuffle.partitions",
                    )
                files.add(fit(mine, first + rows))
                rows += mine.num_rows
            written = files.finish()
            beside_files = self._write_side(side, f"{self.name}-{partition}-{{kind}}-{own}.parquet")
        return WrittenPart(written, beside_files, first, first + rows - 1 if rows else None)

    def _write_side(self, batches: list[pa.RecordBatch], name: str) -> list[DataFile]:
        if not batches:
            return []
        rows = pa.Table.from_batches(batches)
        numbers = pc.fill_null(rows.column("number"), self.number)
        rows = rows.set_column(rows.schema.get_field_index("number"), "number", numbers)
        return write_side(self.layout, name, rows.cast(SCHEMA))


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """What one partition has written."""

    files: list[DataFile]
    side: list[DataFile]
    #: its first and its last number; None: it has no row
    first: int
    last: int | None


def _split(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows of the table, and those of the side data."""
    is_side = pc.is_valid(batch.column(f"{PREFIX}kind"))
    mine = batch.filter(pc.invert(is_side))
    names = [name for name in batch.schema.names if not name.startswith(PREFIX)]
    beside = batch.filter(is_side).select([f"{PREFIX}{name}" for name in SCHEMA.names])
    return mine.select(names), beside.rename_columns(list(SCHEMA.names))


def write_with(writer: FoldWriter) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a worker runs."""
    payload = pickle.dumps(writer)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.lake.folding.writing import write_partition

        return write_partition(payload, batches)

    return write


def write_partition(payload: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    found = pickle.loads(payload).write(batches, context.partitionId())
    yield pa.RecordBatch.from_pydict({"receipt": [pickle.dumps(found)]}, pa.schema([("receipt", pa.binary())]))

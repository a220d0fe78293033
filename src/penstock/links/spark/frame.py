"""Parts as a DataFrame on anybody's session: each is read in a Python worker when an action asks for it.

Here rows do enter the JVM: they are the user's own from now on. Moving parts into a sink is the Mover's job.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.slices import Part
from penstock.ports import Reader, Reading

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: the column in which batches carry what a row is, and its words
CHANGE, UPSERT, DELETE = "_change", "upsert", "delete"
#: rows of a batch that goes into the JVM, at most
BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Job:
    """What a worker needs; small and picklable."""

    readers: Sequence[Reader]
    #: which reader, and which of its parts
    parts: Sequence[tuple[int, Part]]
    #: what the frame has, as Arrow
    schema: pa.Schema
    #: keep deletes, and say of every row what it is
    changes: bool


def job(readings: Sequence[Reading], schema: pa.Schema, *, changes: bool) -> Job:
    """The parts of several slices as one job; readers that are equal are sent once."""
    readers: dict[bytes, int] = {}
    parts = []
    for reading in readings:
        which = readers.setdefault(pickle.dumps(reading.reader), len(readers))
        parts += [(which, part) for part in reading.parts]
    return Job([pickle.loads(reader) for reader in readers], parts, schema, changes)


def frame(spark: SparkSession, work: Job) -> DataFrame:
    """The rows of all parts; nothing is read before an action."""
    schema = spark_schema(work.schema)
    if not work.parts:
        return spark.createDataFrame([], schema)
    count = len(work.parts)
    return spark.range(0, count, 1, count).mapInArrow(rows_of(pickle.dumps(work)), schema)


def frame_schema(schema: pa.Schema, *, changes: bool) -> pa.Schema:
    """The columns of a frame. Those whose type Spark does not have are strings: times of day, JSON, UUIDs."""
    import pyarrow as pa

    def has_no_type(type_: pa.DataType) -> bool:
        return bool(pa.types.is_time(type_) or isinstance(type_, pa.BaseExtensionType))

    fields = [pa.field(f.name, pa.string() if has_no_type(f.type) else f.type) for f in schema]
    return pa.schema([*fields, pa.field(CHANGE, pa.string())] if changes else fields)


def spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    # A timestamp without a zone stays without one.
    made: StructType = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return made


def rows_of(payload: bytes) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """What a worker runs: its row's id says which part is its own."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        from penstock.links.spark.frame import read_parts

        return read_parts(payload, batches)

    return rows


def read_parts(payload: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    work: Job = pickle.loads(payload)
    for batch in batches:
        for index in batch.column(0).to_pylist():
            which, part = work.parts[index]
            with work.readers[which].open(part) as read:
                for found in read:
                    yield from _pieces(_shaped(found, work))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def _shaped(batch: pa.RecordBatch, work: Job) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    carries = CHANGE in batch.schema.names
    if carries and not work.changes:
        batch = batch.filter(pc.not_equal(batch.column(CHANGE), DELETE))
    columns: list[Any] = []
    for wanted in work.schema:
        if wanted.name == CHANGE and not carries:
            columns.append(pa.array([UPSERT] * batch.num_rows, pa.string()))
        elif batch.column(wanted.name).type == pa.uuid():
            # Its cast gives the bytes.
            ids = batch.column(wanted.name).to_pylist()
            columns.append(pa.array([None if each is None else str(each) for each in ids], wanted.type))
        else:
            columns.append(batch.column(wanted.name).cast(wanted.type))
    return pa.RecordBatch.from_arrays(columns, schema=work.schema)

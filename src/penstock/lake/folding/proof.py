"""Proves that entities written without a fold are new, and that no other document of their slice concerns them.

Cheap proofs come first: bounds of keys, which the manifests have of every data file. A load goes by ranges of keys, so
they nearly always suffice. Otherwise Spark compares the keys.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes

from penstock.lake.fitting import make_file_schema
from penstock.lake.folding.new_entities import Written
from penstock.lake.folding.staging import BATCH_ROWS
from penstock.lake.folding.summary import Summary
from penstock.lake.parquet import FileLayout

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyspark.sql import DataFrame

#: entities that may have the same key: those of the table, and those of the slice's other documents
Doubt = Literal["table", "slice"]
#: the least and the greatest value
Bounds = tuple[Any, Any]


def find_doubts(
    written: Sequence[Written], summary: Summary, files: Callable[[], Iterable[DataFile]], schema: Schema, key: str
) -> frozenset[Doubt] | None:
    """What the keys of new entities must still be compared with; None: they may not be new, whatever the keys are.

    `summary`: of the slice's other documents. `files`: the table's. `key`: the first column of the key.
    """
    if summary.counts.keys() & {"f", "q"}:
        # Values of a fan-out also belong to entities that come later in the slice, or before.
        return None
    cleared = max((place for place, _, _ in summary.cleared), default=-1)
    if any(each.first_place < cleared for each in written):
        return None
    doubts: set[Doubt] = set()
    if not are_apart(written) or not are_new(written, files(), schema, key):
        doubts.add("table")
    if summary.counts.keys() & {"b", "s", "a", "r", "d"}:
        doubts.add("slice")
    return frozenset(doubts)


def are_apart(written: Sequence[Written]) -> bool:
    """Whether no two parts can have a key in common."""
    ordered = sorted((each.low, each.high) for each in written)
    return all(one[1] < other[0] for one, other in pairwise(ordered))


def are_new(written: Sequence[Written], files: Iterable[DataFile], schema: Schema, key: str) -> bool:
    """Whether no data file can have a key of theirs; `key`: the first column of the key."""
    column = schema.find_field(key)
    for file in files:
        bounds = _bounds_of(file, column.field_id, column.field_type)
        if bounds is None or any(each.low <= bounds[1] and bounds[0] <= each.high for each in written):
            return False
    return True


def _bounds_of(file: DataFile, field: int, type_: Any) -> Bounds | None:
    """Those of a long string are cut, and still hold."""
    low, high = (bounds.get(field) if bounds else None for bounds in (file.lower_bounds, file.upper_bounds))
    if low is None or high is None:
        return None
    return from_bytes(type_, low), from_bytes(type_, high)


# ------------------------------------------------------------ by comparing keys


def keys_with(
    files: FileLayout, paths: Sequence[str], columns: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a worker runs: its row's id says which data file's keys it reads."""
    payload = pickle.dumps((files, paths, columns))

    def keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.lake.folding.proof import read_keys

        files, paths, columns = pickle.loads(payload)
        for batch in batches:
            yield from read_keys(files, [paths[place] for place in batch.column(0).to_pylist()], columns)

    return keys


def read_keys(files: FileLayout, paths: Iterable[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    io, written = files.file_io(), [make_file_schema(files.schema).find_field(_id(files, name)) for name in columns]
    for path in paths:
        with io.new_input(path).open() as stream:
            for batch in pq.ParquetFile(stream).iter_batches(BATCH_ROWS, columns=[field.name for field in written]):
                arrays = [batch.column(field.name) for field in written]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _id(files: FileLayout, name: str) -> int:
    return files.schema.find_field(name).field_id


def clash(keys: DataFrame, others: Sequence[DataFrame]) -> bool:
    """Whether one of the keys is there twice, or is a key of another frame; all have the column `ek`."""
    rows = keys.selectExpr("ek", "1 as mine")
    for other in others:
        rows = rows.unionByName(other.selectExpr("ek", "0 as mine"))
    grouped = rows.groupBy("ek").agg({"mine": "sum", "*": "count"})
    return bool(grouped.where("`sum(mine)` > 0 and `count(1)` > 1").limit(1).count())

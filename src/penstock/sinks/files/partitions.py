"""Folders by date, month or year of a column, in Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StreamRefused
from penstock.sinks.files.layout import safe
from penstock.sinks.files.options import PartitionBy

_UNITS = {"date": "day", "month": "month", "year": "year"}
_LENGTHS = {"date": 10, "month": 7, "year": 4}
_NULL = "__HIVE_DEFAULT_PARTITION__"

Splitter = Callable[[pa.RecordBatch], Iterator[tuple[str, pa.RecordBatch]]]


def splitter(schema: pa.Schema, partition: PartitionBy) -> Splitter:
    """A function that cuts batches by folder; StreamRefused if the column has no date."""
    index = schema.get_field_index(partition.column)
    kind = schema.field(index).type if index >= 0 else None
    if kind is None or not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise StreamRefused(
            f"partition_by needs a date or timestamp column; {partition.column!r} is {kind or 'not there'}",
            next_step="choose another column for partition_by",
        )
    # A column's name is anybody's: it must neither climb out of the folder nor hide in it.
    prefix = safe(f"{partition.column}_{partition.by}").replace("=", "%3D") + "="
    length = _LENGTHS[partition.by]

    def split(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        floors = pc.floor_temporal(_naive(batch.column(index)), unit=_UNITS[partition.by])
        floors = floors.cast(pa.timestamp("s"))  # exact: floors are whole days
        order = pc.sort_indices(floors)
        encoded = pc.run_end_encode(floors.take(order).view(pa.int64()))
        begin = 0
        for end, value in zip(encoded.run_ends.to_pylist(), encoded.values.to_pylist(), strict=True):
            day = pa.scalar(value, pa.int64()).cast(pa.timestamp("s")) if value is not None else None
            text = str(day.cast(pa.string()))[:length] if day is not None else _NULL
            # Copied, not cut out: a few rows that wait for their file must not keep the whole batch in memory.
            rows = batch.take(order.slice(begin, end - begin)) if len(encoded.values) > 1 else batch
            yield prefix + text, rows
            begin = end

    return split


def _naive(column: pa.Array) -> pa.Array:
    """The column without its zone (it is UTC underneath), so that no zone data base is asked."""
    if pa.types.is_date(column.type):
        return column.cast(pa.timestamp("s"))
    return column.view(pa.int64()).view(pa.timestamp(column.type.unit))

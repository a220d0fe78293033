"""A batch cut by partition, in Arrow; the rows of a partition keep their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField, StructType

#: a partition's values, in the form that a manifest holds
Values = tuple[Any, ...]
Splitter = Callable[[pa.RecordBatch], Iterator[tuple[Values, pa.RecordBatch]]]


def splitter(spec: PartitionSpec, schema: Schema) -> Splitter:
    """A function that cuts batches with the columns of `schema`, in their order."""
    takes = [_taker(field, schema) for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    places = [place for place, field in enumerate(spec.fields) if not isinstance(field.transform, VoidTransform)]

    def split(batch: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        encoded = [take(batch).dictionary_encode(null_encoding="encode") for take in takes]
        codes = _codes(encoded, batch.num_rows)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes)).tolist()
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            values: list[Any] = [None] * len(spec.fields)
            for place, column in zip(places, encoded, strict=True):
                values[place] = column[int(order[begin])].as_py()
            # Copied, not cut out: a few rows that wait for their file must not keep the whole batch in memory.
            yield tuple(values), batch if len(ends) == 1 else batch.take(pa.array(order[begin:end]))

    return split


def _codes(encoded: list[pa.DictionaryArray], rows: int) -> Any:
    """One small number for each combination of values."""
    codes: Any = np.zeros(rows, np.int64)
    for place, column in enumerate(encoded):
        indices = column.indices.to_numpy()
        if place == 0:
            codes = indices
        else:
            # Made dense after each column, so that no number of columns can overflow.
            codes = np.unique(codes.astype(np.int64) * len(column.dictionary) + indices, return_inverse=True)[1]
    # numpy sorts 16 bits by radix, many times faster.
    return codes.astype(np.int16) if codes.max(initial=0) < 1 << 15 else codes


def _taker(field: PartitionField, schema: Schema) -> Callable[[pa.RecordBatch], pa.Array]:
    path = _path(schema.fields, field.source_id)
    assert path is not None, f"partition {field.name} has a source that the table lacks"
    transform = field.transform.pyarrow_transform(schema.find_type(field.source_id))

    def take(batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(path[0])
        return _physical(transform(pc.struct_field(column, path[1:]) if path[1:] else column))

    return take


def _path(fields: tuple[NestedField, ...], wanted: int) -> list[int] | None:
    """Where a field lies: its column's place, then the places within structs."""
    for place, field in enumerate(fields):
        if field.field_id == wanted:
            return [place]
        if isinstance(field.field_type, StructType):
            deeper = _path(field.field_type.fields, wanted)
            if deeper is not None:
                return [place, *deeper]
    return None


def _physical(array: pa.Array) -> pa.Array:
    """Times as numbers and uuids as bytes, as manifests hold them."""
    if isinstance(array, pa.ExtensionArray):
        return array.storage
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    if pa.types.is_timestamp(array.type) or pa.types.is_time64(array.type):
        return array.view(pa.int64())
    return array

"""Parses partitions and sort orders (`day(created_at)`, `created_at desc`), and splits batches by partition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import NestedField, StructType

from penstock.core.names import did_you_mean
from penstock.errors import StreamRefused
from penstock.lake.iceberg_types import describe_type
from penstock.lake.names import INTERNAL

_CALL = re.compile(r"(\w+)\s*\(\s*(.*?)\s*\)")
_NUMBERED = re.compile(r"(\d+)\s*,\s*(.+)")
_SORTED = re.compile(r"(.+?)\s+(asc|desc)", re.IGNORECASE)

#: transforms without a number, and the suffix that Iceberg adds to the column's name
_PLAIN: dict[str, tuple[Transform[Any, Any], str]] = {
    "identity": (IdentityTransform(), ""),
    "year": (YearTransform(), "_year"),
    "month": (MonthTransform(), "_month"),
    "day": (DayTransform(), "_day"),
    "hour": (HourTransform(), "_hour"),
}
_WITH_NUMBER: dict[str, tuple[type[BucketTransform[Any]] | type[TruncateTransform[Any]], str]] = {
    "bucket": (BucketTransform, "_bucket"),
    "truncate": (TruncateTransform, "_trunc"),
}
_EXAMPLES = "write for instance: day(created_at), bucket(16, id), truncate(4, code), or a column's name"


def make_partition_spec(texts: Sequence[str], schema: Schema) -> PartitionSpec:
    """Make the spec of a new table; StreamRefused for a partition that its columns do not allow."""
    fields: list[PartitionField] = []
    for text in texts:
        transform, ending, column = _partition(text.strip(), schema)
        if not transform.can_transform(column.field_type):
            raise StreamRefused(
                f"partition {text!r}: column {column.name!r} is {describe_type(column.field_type)}, "
                f"which {str(transform).split('[')[0]} cannot take",
                next_step=_EXAMPLES,
            )
        _refuse_repeated(text, column, transform, fields)
        taken = {*schema.column_names, *(field.name for field in fields)} - ({column.name} if not ending else set())
        name = _free(column.name + ending, taken)
        fields.append(PartitionField(column.field_id, PARTITION_FIELD_ID_START + len(fields), transform, name))
    return PartitionSpec(*fields) if fields else UNPARTITIONED_PARTITION_SPEC


def make_sort_order(texts: Sequence[str], schema: Schema) -> SortOrder:
    """Make the order in which upkeep sorts the table, from `column`, `column asc`, `column desc`."""
    fields = []
    for text in texts:
        named = _SORTED.fullmatch(text.strip())
        column = _column(named[1] if named else text.strip(), schema, f"sort_by {text!r}")
        down = named is not None and named[2].lower() == "desc"
        transform: Transform[Any, Any] = IdentityTransform()
        if not transform.can_transform(column.field_type):
            raise StreamRefused(
                f"sort_by {text!r}: column {column.name!r} is {describe_type(column.field_type)}, which has no order",
                next_step="choose a column that is not nested",
            )
        direction, nulls = (
            (SortDirection.DESC, NullOrder.NULLS_LAST) if down else (SortDirection.ASC, NullOrder.NULLS_FIRST)
        )
        fields.append(SortField(column.field_id, transform, direction, nulls))
    return SortOrder(*fields) if fields else UNSORTED_SORT_ORDER


def _partition(text: str, schema: Schema) -> tuple[Transform[Any, Any], str, NestedField]:
    """The transform, its suffix to the column's name, and the column."""
    where = f"partition {text!r}"
    call = _CALL.fullmatch(text)
    if call is None or any(field.name == text for field in schema.fields):
        return IdentityTransform(), "", _column(text, schema, where)
    name, inside = call[1].lower(), call[2]
    if name in _PLAIN:
        transform, ending = _PLAIN[name]
        return transform, ending, _column(inside, schema, where)
    if name not in _WITH_NUMBER:
        raise StreamRefused(
            f"{where}: there is no transform {call[1]!r}{did_you_mean(name, [*_PLAIN, *_WITH_NUMBER])}",
            next_step=_EXAMPLES,
        )
    numbered = _NUMBERED.fullmatch(inside)
    if numbered is None or int(numbered[1]) == 0:
        raise StreamRefused(
            f"{where}: {name} takes a number above 0 and a column, in this order", next_step=f"write {name}(16, column)"
        )
    with_number, ending = _WITH_NUMBER[name]
    return with_number(int(numbered[1])), ending, _column(numbered[2], schema, where)


def _column(name: str, schema: Schema, where: str) -> NestedField:
    fields = {field.name: field for field in schema.fields if field.name not in INTERNAL}
    if name in INTERNAL:
        raise StreamRefused(f"{where}: {name} is a column that the lake itself keeps", next_step=_EXAMPLES)
    if name not in fields:
        raise StreamRefused(
            f"{where}: the table has no column {name!r}{did_you_mean(name, fields)}",
            next_step=f"choose among: {', '.join(fields)}",
        )
    return fields[name]


def _refuse_repeated(
    text: str, column: NestedField, transform: Transform[Any, Any], before: Sequence[PartitionField]
) -> None:
    for field in before:
        both_times = isinstance(field.transform, TimeTransform) and isinstance(transform, TimeTransform)
        if field.source_id == column.field_id and (field.transform == transform or both_times):
            raise StreamRefused(
                f"partition {text!r}: the table is already partitioned by {field.transform} of {column.name!r}",
                next_step="keep the finer of the two",
            )


def _free(name: str, taken: set[str]) -> str:
    # A column of the table may have the very name that Iceberg would give the partition.
    return name if name not in taken else _free(f"{name}_part", taken)


#: a partition's values, in the form that a manifest holds
Values = tuple[Any, ...]
Splitter = Callable[[pa.RecordBatch], Iterator[tuple[Values, pa.RecordBatch]]]


def make_splitter(spec: PartitionSpec, schema: Schema) -> Splitter:
    """Make a function that splits batches with the columns of `schema`, in their order."""
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

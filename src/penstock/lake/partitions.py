"""Partitions and sort orders as users write them: `day(created_at)`, `bucket(16, id)`, `created_at desc`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

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
    YearTransform,
)
from pyiceberg.types import NestedField

from penstock.core.names import did_you_mean
from penstock.errors import StreamRefused
from penstock.lake.forms import described
from penstock.lake.names import INTERNAL

_CALL = re.compile(r"(\w+)\s*\(\s*(.*?)\s*\)")
_NUMBERED = re.compile(r"(\d+)\s*,\s*(.+)")
_SORTED = re.compile(r"(.+?)\s+(asc|desc)", re.IGNORECASE)

#: transforms without a number, and what Iceberg puts behind the column's name
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


def partition_spec(texts: Sequence[str], schema: Schema) -> PartitionSpec:
    """The spec for a new table; StreamRefused for what the table's columns do not allow."""
    fields: list[PartitionField] = []
    for text in texts:
        transform, ending, column = _partition(text.strip(), schema)
        if not transform.can_transform(column.field_type):
            raise StreamRefused(
                f"partition {text!r}: column {column.name!r} is {described(column.field_type)}, "
                f"which {str(transform).split('[')[0]} cannot take",
                next_step=_EXAMPLES,
            )
        _refuse_repeated(text, column, transform, fields)
        taken = {*schema.column_names, *(field.name for field in fields)} - ({column.name} if not ending else set())
        name = _free(column.name + ending, taken)
        fields.append(PartitionField(column.field_id, PARTITION_FIELD_ID_START + len(fields), transform, name))
    return PartitionSpec(*fields) if fields else UNPARTITIONED_PARTITION_SPEC


def sort_order(texts: Sequence[str], schema: Schema) -> SortOrder:
    """The order in which upkeep sorts the table, from `column`, `column asc`, `column desc`."""
    fields = []
    for text in texts:
        named = _SORTED.fullmatch(text.strip())
        column = _column(named[1] if named else text.strip(), schema, f"sort_by {text!r}")
        down = named is not None and named[2].lower() == "desc"
        transform: Transform[Any, Any] = IdentityTransform()
        if not transform.can_transform(column.field_type):
            raise StreamRefused(
                f"sort_by {text!r}: column {column.name!r} is {described(column.field_type)}, which has no order",
                next_step="choose a column that is not nested",
            )
        direction, nulls = (
            (SortDirection.DESC, NullOrder.NULLS_LAST) if down else (SortDirection.ASC, NullOrder.NULLS_FIRST)
        )
        fields.append(SortField(column.field_id, transform, direction, nulls))
    return SortOrder(*fields) if fields else UNSORTED_SORT_ORDER


def _partition(text: str, schema: Schema) -> tuple[Transform[Any, Any], str, NestedField]:
    """The transform, what it adds to the column's name, and the column."""
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

"""Cut batches by folder, in the lake's language: `month(created_at)`, `bucket(16, id)`, or a column's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, StructType, TimestampType, TimestamptzType

from penstock.core.types import Decimal, Plain, Type
from penstock.lake.iceberg_types import iceberg_type
from penstock.lake.partitions import make_partition_spec, make_splitter
from penstock.links.arrow_types import NoType, type_of
from penstock.sinks.files.layout import safe

#: the folder of rows whose value is NULL, as Hive names it
_NULL = "__HIVE_DEFAULT_PARTITION__"
#: types whose values Arrow and Iceberg hold in the same form
_SAME = (Plain.BOOL, Plain.INT16, Plain.INT32, Plain.INT64, Plain.STRING, Plain.JSON, Plain.DATE)
_FORMS: Mapping[Type, IcebergType] = {
    **{type_: iceberg_type(type_) for type_ in _SAME},
    Plain.TIMESTAMP: TimestampType(),
    Plain.TIMESTAMP_NS: TimestampType(),
    Plain.TIMESTAMPTZ: TimestamptzType(),
    Plain.TIMESTAMPTZ_NS: TimestamptzType(),
}

Splitter = Callable[[pa.RecordBatch], Iterator[tuple[str, pa.RecordBatch]]]


def make_folder_splitter(schema: pa.Schema, partition: Sequence[str]) -> Splitter:
    """A function that cuts batches by folder, such as `created_at_month=2024-05`."""
    iceberg, spec = make_spec({field.name: _type_of(field) for field in schema}, partition)
    split = make_splitter(spec, iceberg)
    # Transforms accept timestamps in microseconds or nanoseconds only.
    fine = pa.schema([_refine(field) for field in schema])
    types = [iceberg.find_type(field.source_id) for field in spec.fields]
    names = [_encode(field.name) for field in spec.fields]

    def cut(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        for values, rows in split(batch.cast(fine)):
            texts = [
                _NULL if value is None else _encode(field.transform.to_human_string(type_, value))
                for field, type_, value in zip(spec.fields, types, values, strict=True)
            ]
            yield "/".join(map("=".join, zip(names, texts, strict=True))), rows.cast(schema)

    return cut


def make_spec(columns: Mapping[str, Type | None], partition: Sequence[str]) -> tuple[Schema, PartitionSpec]:
    """The columns as Iceberg has them, and their partitions; StreamRefused if a column does not allow one."""
    fields = [NestedField(place, name, _form(type_)) for place, (name, type_) in enumerate(columns.items(), start=1)]
    schema = Schema(*fields)
    return schema, make_partition_spec(partition, schema)


def _form(type_: Type | None) -> IcebergType:
    """The Iceberg type; a struct, which no partition accepts, where Arrow holds the values in another form."""
    if isinstance(type_, Decimal):
        return iceberg_type(type_)
    return _FORMS.get(type_, StructType()) if type_ is not None else StructType()


def _type_of(field: pa.Field) -> Type | None:
    try:
        return type_of(field.type)
    except NoType:
        return None


def _refine(field: pa.Field) -> pa.Field:
    is_coarse = pa.types.is_timestamp(field.type) and field.type.unit in ("s", "ms")
    return field.with_type(pa.timestamp("us", field.type.tz)) if is_coarse else field


def _encode(text: str) -> str:
    # A column's name and its values are arbitrary: they must neither lead out of the folder nor hide in it.
    return safe(text).replace("=", "%3D")

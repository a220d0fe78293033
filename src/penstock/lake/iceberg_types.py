"""Which Iceberg type each type of the vocabulary becomes, which types a column can grow into, and how files spell them.

    vocabulary                            Iceberg (format v2)
    bool                                  boolean
    int8, int16, int32, uint8, uint16     int
    int64, uint32                         long
    uint64                                decimal(20, 0)
    float16, float32                      float
    float64                               double
    decimal, up to 38 digits              decimal
    string, json, null                    string
    binary                                binary
    fixed(n)                              fixed[n]
    uuid                                  uuid
    date                                  date
    time, time_ns                         string, as 23:59:59.999999: Spark cannot open a table with a time column
    timestamp                             timestamp
    timestamptz                           timestamptz (the instant; the zone's name is not kept)
    list                                  list
    struct, with at least one field       struct
    map                                   map
    everything else                       refused: there is no exact form

A form never depends on the values, so that no slice fails where the one before passed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from penstock.core.types import Decimal, Fixed, List, Map, Plain, Struct, Type
from penstock.lake.metadata_types import format_type

#: the most digits that an Iceberg decimal holds
MOST_DIGITS = 38
#: what to do about a type without an exact form
NO_FORM_CHOICE = "cast it at the source to a type that has one, for instance text, or leave the column out"

_PLAIN: Mapping[Type, IcebergType] = {
    Plain.BOOL: BooleanType(),
    **dict.fromkeys((Plain.INT8, Plain.INT16, Plain.INT32, Plain.UINT8, Plain.UINT16), IntegerType()),
    **dict.fromkeys((Plain.INT64, Plain.UINT32), LongType()),
    Plain.UINT64: DecimalType(20, 0),
    **dict.fromkeys((Plain.FLOAT16, Plain.FLOAT32), FloatType()),
    Plain.FLOAT64: DoubleType(),
    **dict.fromkeys((Plain.STRING, Plain.JSON, Plain.NULL, Plain.TIME, Plain.TIME_NS), StringType()),
    Plain.BINARY: BinaryType(),
    Plain.UUID: UUIDType(),
    Plain.DATE: DateType(),
    Plain.TIMESTAMP: TimestampType(),
    Plain.TIMESTAMPTZ: TimestamptzType(),
}


class NoForm(Exception):
    """A type that Iceberg v2 cannot hold exactly, with the choice to make."""

    def __init__(self, type_: Type, choice: str) -> None:
        super().__init__(f"{type_} has no exact form in an Iceberg table")
        self.choice = choice


def iceberg_type(type_: Type, ids: Iterator[int] | None = None) -> IcebergType:
    """The Iceberg type of a type; nested fields are optional and take their ids from `ids`."""
    ids = ids if ids is not None else itertools.count(1)
    match type_:
        case Decimal():
            return _decimal(type_)
        case Fixed():
            return FixedType(type_.length)
        case List():
            return ListType(next(ids), iceberg_type(type_.item, ids), element_required=False)
        case Map():
            key, value = iceberg_type(type_.key, ids), iceberg_type(type_.value, ids)
            return MapType(next(ids), key, next(ids), value, value_required=False)
        case Struct() if type_.fields:  # Parquet has no struct without fields
            fields = (
                NestedField(next(ids), name, iceberg_type(inner, ids), required=False) for name, inner in type_.fields
            )
            return StructType(*fields)
        case _ if type_ in _PLAIN:
            return _PLAIN[type_]
        case Plain.TIMESTAMP_NS | Plain.TIMESTAMPTZ_NS:
            raise NoForm(type_, "round it to microseconds at the source, or cast it to a bigint of nanoseconds")
        case _:
            raise NoForm(type_, NO_FORM_CHOICE)


def _decimal(type_: Decimal) -> DecimalType:
    digits = max(type_.precision, type_.scale)  # the scale may be above the precision
    if type_.scale < 0 or digits > MOST_DIGITS:
        raise NoForm(type_, f"cast it at the source to a decimal of at most {MOST_DIGITS} digits, or to text")
    return DecimalType(digits, type_.scale)


def is_same(one: IcebergType, other: IcebergType) -> bool:
    """Whether two types hold the same values; ids and which nested fields are required do not count."""
    if isinstance(one, ListType) and isinstance(other, ListType):
        return is_same(one.element_type, other.element_type)
    if isinstance(one, MapType) and isinstance(other, MapType):
        return is_same(one.key_type, other.key_type) and is_same(one.value_type, other.value_type)
    if isinstance(one, StructType) and isinstance(other, StructType):
        left, right = ({f.name: f.field_type for f in each.fields} for each in (one, other))
        return left.keys() == right.keys() and all(is_same(left[name], right[name]) for name in left)
    return one == other


def widens(narrow: IcebergType, wide: IcebergType) -> bool:
    """Whether every value of `narrow` is exactly a value of `wide`, by Iceberg's own promotions."""
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return narrow.scale == wide.scale and narrow.precision < wide.precision
    pairs = ((IntegerType(), LongType()), (FloatType(), DoubleType()))
    return (narrow, wide) in pairs


def fits(given: IcebergType, column: IcebergType) -> bool:
    """Whether a column of type `column` takes every value of type `given` exactly."""
    return is_same(given, column) or widens(given, column)


def spell_type(type_: IcebergType) -> Any:
    """A type as a table's metadata spells it: a name, or a document."""
    return str(type_) if isinstance(type_, PrimitiveType) else type_.model_dump()


def describe_type(type_: IcebergType) -> str:
    """A type in one line; nested types without their ids."""
    return format_type(spell_type(type_))


def make_arrow_columns(schema: Schema) -> pa.Schema:
    """The Arrow schema that data files are written with: field ids, and 32-bit offsets as batches have them."""
    return pa.schema([_small(field) for field in schema_to_pyarrow(schema, include_field_ids=True)])


def _small(field: pa.Field) -> pa.Field:
    # PyIceberg names the large forms, into which every batch would have to be copied for no gain.
    type_ = field.type
    if pa.types.is_large_string(type_):
        return field.with_type(pa.string())
    if pa.types.is_large_binary(type_):
        return field.with_type(pa.binary())
    if pa.types.is_large_list(type_):
        return field.with_type(pa.list_(_small(type_.value_field)))
    if pa.types.is_map(type_):
        return field.with_type(pa.map_(_small(type_.key_field), _small(type_.item_field)))
    if pa.types.is_struct(type_):
        return field.with_type(pa.struct([_small(inner) for inner in type_]))
    return field

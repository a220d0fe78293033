"""Which Iceberg type each Arrow type becomes, which types a column can grow into, and how files spell them.

    Arrow                                   Iceberg (format v2)
    bool                                    boolean
    int8, int16, int32, uint8, uint16       int
    int64, uint32                           long
    uint64                                  decimal(20, 0)
    halffloat, float                        float
    double                                  double
    decimal32/64/128/256, up to 38 digits   decimal
    string, large_string, string_view       string
    arrow.json                              string
    null                                    string
    binary, large_binary, binary_view       binary
    fixed_size_binary[n]                    fixed[n]
    arrow.uuid                              uuid
    date32, date64                          date
    time32, time64                          string, as 23:59:59.999999: Spark cannot open a table with a time column
    timestamp[s, ms, us]                    timestamp
    timestamp[s, ms, us, tz]                timestamptz (the instant; the zone's name is not kept)
    list, large_list, fixed_size_list       list
    struct                                  struct
    map                                     map
    dictionary                              the type of its values
    everything else                         refused: there is no exact form

A form never depends on the values, so that no slice fails where the one before passed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

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
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

#: the most digits that an Iceberg decimal holds
MOST_DIGITS = 38

_PLAIN: dict[pa.DataType, IcebergType] = {
    pa.null(): StringType(),
    pa.bool_(): BooleanType(),
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), IntegerType()),
    **dict.fromkeys((pa.int64(), pa.uint32()), LongType()),
    pa.uint64(): DecimalType(20, 0),
    **dict.fromkeys((pa.float16(), pa.float32()), FloatType()),
    pa.float64(): DoubleType(),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view(), pa.json_()), StringType()),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), BinaryType()),
    pa.uuid(): UUIDType(),
    **dict.fromkeys((pa.date32(), pa.date64()), DateType()),
    **dict.fromkeys((pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")), StringType()),
}


class NoForm(Exception):
    """An Arrow type that Iceberg v2 cannot hold exactly, with the choice to make."""

    def __init__(self, type_: pa.DataType, choice: str) -> None:
        super().__init__(f"{type_} has no exact form in an Iceberg table")
        self.choice = choice


def iceberg_type(type_: pa.DataType, ids: Iterator[int] | None = None) -> IcebergType:
    """The Iceberg type of an Arrow type; nested fields are optional and take their ids from `ids`."""
    ids = ids if ids is not None else itertools.count(1)
    if type_ in _PLAIN:
        return _PLAIN[type_]
    if pa.types.is_timestamp(type_) and type_.unit != "ns":
        return TimestamptzType() if type_.tz else TimestampType()
    if pa.types.is_decimal(type_):
        return _decimal(type_)
    if pa.types.is_fixed_size_binary(type_):
        return FixedType(type_.byte_width)
    if pa.types.is_dictionary(type_):
        return iceberg_type(type_.value_type, ids)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return ListType(next(ids), iceberg_type(type_.value_type, ids), element_required=False)
    if pa.types.is_map(type_):
        key, value = iceberg_type(type_.key_type, ids), iceberg_type(type_.item_type, ids)
        return MapType(next(ids), key, next(ids), value, value_required=False)
    if pa.types.is_struct(type_) and type_.num_fields:  # Parquet has no struct without fields
        fields = (NestedField(next(ids), f.name, iceberg_type(f.type, ids), required=False) for f in type_)
        return StructType(*fields)
    raise NoForm(type_, _choice(type_))


def _decimal(type_: pa.DataType) -> DecimalType:
    digits = max(type_.precision, type_.scale)  # Arrow allows a scale above the precision
    if type_.scale < 0 or digits > MOST_DIGITS:
        raise NoForm(type_, f"cast it at the source to a decimal of at most {MOST_DIGITS} digits, or to text")
    return DecimalType(digits, type_.scale)


def _choice(type_: pa.DataType) -> str:
    if pa.types.is_timestamp(type_):
        return "round it to microseconds at the source, or cast it to a bigint of nanoseconds"
    return "cast it at the source to a type that has one, for instance text, or leave the column out"


def same(one: IcebergType, other: IcebergType) -> bool:
    """Whether two types hold the same values; ids and which nested fields are required do not count."""
    if isinstance(one, ListType) and isinstance(other, ListType):
        return same(one.element_type, other.element_type)
    if isinstance(one, MapType) and isinstance(other, MapType):
        return same(one.key_type, other.key_type) and same(one.value_type, other.value_type)
    if isinstance(one, StructType) and isinstance(other, StructType):
        left, right = ({f.name: f.field_type for f in each.fields} for each in (one, other))
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    return one == other


def widens(narrow: IcebergType, wide: IcebergType) -> bool:
    """Whether every value of `narrow` is exactly a value of `wide`, by Iceberg's own promotions."""
    if isinstance(narrow, DecimalType) and isinstance(wide, DecimalType):
        return narrow.scale == wide.scale and narrow.precision < wide.precision
    pairs = ((IntegerType(), LongType()), (FloatType(), DoubleType()))
    return (narrow, wide) in pairs


def fits(given: IcebergType, column: IcebergType) -> bool:
    """Whether a column of type `column` takes every value of type `given` exactly."""
    return same(given, column) or widens(given, column)


def described(type_: IcebergType) -> str:
    """A type in words; nested ones without their ids."""
    if isinstance(type_, ListType):
        return f"list<{described(type_.element_type)}>"
    if isinstance(type_, MapType):
        return f"map<{described(type_.key_type)}, {described(type_.value_type)}>"
    if isinstance(type_, StructType):
        inner = ", ".join(f"{field.name}: {described(field.field_type)}" for field in type_.fields)
        return f"struct<{inner}>"
    return str(type_)


def arrow_columns(schema: Schema) -> pa.Schema:
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

"""Arrow's types and the vocabulary of `core`, one function each way. Imports pyarrow.

Each type of the vocabulary has one Arrow type, in which batches carry it. Other Arrow types with the same values
(longer offsets, coarser units, dictionaries) are the same type of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.core.content import Column
from penstock.core.types import Decimal, Fixed, List, Map, Plain, Struct, Type

_ARROW: dict[Plain, pa.DataType] = {
    Plain.NULL: pa.null(),
    Plain.BOOL: pa.bool_(),
    Plain.INT8: pa.int8(),
    Plain.INT16: pa.int16(),
    Plain.INT32: pa.int32(),
    Plain.INT64: pa.int64(),
    Plain.UINT8: pa.uint8(),
    Plain.UINT16: pa.uint16(),
    Plain.UINT32: pa.uint32(),
    Plain.UINT64: pa.uint64(),
    Plain.FLOAT16: pa.float16(),
    Plain.FLOAT32: pa.float32(),
    Plain.FLOAT64: pa.float64(),
    Plain.STRING: pa.string(),
    Plain.JSON: pa.json_(),
    Plain.UUID: pa.uuid(),
    Plain.BINARY: pa.binary(),
    Plain.DATE: pa.date32(),
    Plain.TIME: pa.time64("us"),
    Plain.TIMESTAMP: pa.timestamp("us"),
    Plain.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    Plain.TIME_NS: pa.time64("ns"),
    Plain.TIMESTAMP_NS: pa.timestamp("ns"),
    Plain.TIMESTAMPTZ_NS: pa.timestamp("ns", "UTC"),
}
_PLAIN: dict[pa.DataType, Plain] = {
    **{arrow: plain for plain, arrow in _ARROW.items()},
    **dict.fromkeys((pa.large_string(), pa.string_view()), Plain.STRING),
    **dict.fromkeys((pa.large_binary(), pa.binary_view()), Plain.BINARY),
    pa.date64(): Plain.DATE,
    **dict.fromkeys((pa.time32("s"), pa.time32("ms")), Plain.TIME),
}
#: digits of a decimal of 128 bits
_DIGITS_OF_128_BITS = 38


class NoType(ValueError):
    """An Arrow type that the vocabulary does not have."""

    def __init__(self, type_: pa.DataType) -> None:
        super().__init__(f"there is no type for Arrow's {type_}")


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type in which batches carry a type."""
    match type_:
        case Plain():
            return _ARROW[type_]
        case Decimal():
            wide = type_.precision > _DIGITS_OF_128_BITS
            return (pa.decimal256 if wide else pa.decimal128)(type_.precision, type_.scale)
        case Fixed():
            return pa.binary(type_.length)
        case List():
            return pa.list_(arrow_type(type_.item))
        case Map():
            return pa.map_(arrow_type(type_.key), arrow_type(type_.value))
        case Struct():
            return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in type_.fields])


def type_of(arrow: pa.DataType) -> Type:
    """The type that an Arrow type's values have; NoType if there is none."""
    if arrow in _PLAIN:
        return _PLAIN[arrow]
    if pa.types.is_timestamp(arrow):
        if arrow.unit == "ns":
            return Plain.TIMESTAMPTZ_NS if arrow.tz else Plain.TIMESTAMP_NS
        return Plain.TIMESTAMPTZ if arrow.tz else Plain.TIMESTAMP
    if pa.types.is_decimal(arrow):
        return Decimal(arrow.precision, arrow.scale)
    if pa.types.is_fixed_size_binary(arrow):
        return Fixed(arrow.byte_width)
    if pa.types.is_dictionary(arrow):
        return type_of(arrow.value_type)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return List(type_of(arrow.value_type))
    if pa.types.is_map(arrow):
        return Map(type_of(arrow.key_type), type_of(arrow.item_type))
    if pa.types.is_struct(arrow):
        return Struct(tuple((field.name, type_of(field.type)) for field in arrow))
    raise NoType(arrow)


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The schema in which batches carry columns."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def carried(schema: pa.Schema) -> pa.Schema:
    """A schema with the one Arrow type of each type; NoType if a column has none."""
    return pa.schema([field.with_type(arrow_type(type_of(field.type))) for field in schema])

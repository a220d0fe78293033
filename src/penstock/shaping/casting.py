"""Exact casts of whole columns, by Arrow's own kernels: a value without an exact form in the new type becomes NULL.

Arrow's casts alone are not exact: they round 1.239 to a decimal, 0.1 to a 32-bit float, a timestamp to its day, and
accept 2 as true. Where they fail, they do not count the values.
"""

from __future__ import annotations

import decimal
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.types import Decimal, Plain, Type
from penstock.links import arrow_types
from penstock.links.arrow_types import arrow_type
from penstock.shaping.text_form import decode, to_text, without_zone
from penstock.shaping.types import MAX_DECIMAL_DIGITS, family

_INTEGERS = (Plain.INT16, Plain.INT32, Plain.INT64)
_FLOATS = (Plain.FLOAT32, Plain.FLOAT64)
_US, _UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")

_YEAR = r"(000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})"
_LEAP = r"(\d\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_MONTH_AND_DAY = r"((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))"
_DATE = rf"({_YEAR}-{_MONTH_AND_DAY}|{_LEAP}-02-29)"
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?"
_ZONE = r"(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)"
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?"
_NOT_A_NUMBER = r"(?i:[+-]?(nan|inf|infinity))"
_TRUE, _FALSE = ["true", "t", "1"], ["false", "f", "0"]


def cast(array: pa.Array, type_: Type) -> pa.Array:
    """Cast a column to one of the types of `cast`; a value without an exact form becomes NULL."""
    array = decode(array)
    kind = family(arrow_types.type_of(array.type))
    if kind == "nothing":
        return pa.nulls(len(array), arrow_type(type_))
    if type_ is Plain.STRING:
        return to_text(array)
    if kind == "text":
        return _from_text(array.cast(pa.string()), type_)
    if kind == "decimal":
        return _from_decimal(array, type_)
    if kind == "integer":
        return _from_integer(array, type_)
    if kind == "float":
        return _from_float(array, type_)
    if kind in ("date", "timestamp"):
        return _from_time(array, type_)
    return array.cast(arrow_type(type_))  # booleans and bytes always have an exact form


def _digits(type_: Type, most: int) -> tuple[int, int]:
    """The precision and scale of a decimal; for an integer, `most` digits."""
    return (type_.precision, type_.scale) if isinstance(type_, Decimal) else (most, 0)


def _only(array: pa.Array, *fits: pa.Array) -> pa.Array:
    """The values for which all conditions hold; NULL elsewhere."""
    return pc.if_else(pc.fill_null(reduce(pc.and_kleene, fits), False), array, pa.scalar(None, array.type))


# ---------------------------------------------------------------- from text


def _from_text(array: pa.Array, type_: Type) -> pa.Array:
    if type_ in _INTEGERS:
        # Without leading zeros and plus sign the string is as long as the number.
        short = pc.replace_substring_regex(array, r"^\+?(-?)0*(\d+)$", r"\1\2")
        return _from_decimal(_matching(short, r"-?\d{1,38}").cast(pa.decimal128(38, 0)), type_)
    if type_ in _FLOATS:
        return _float_of(array, arrow_type(type_))
    if type_ is Plain.BOOL:
        lower = pc.utf8_lower(array)
        true, false = (pc.is_in(lower, value_set=pa.array(words)) for words in (_TRUE, _FALSE))
        return _only(true, pc.or_(true, false))
    if type_ is Plain.DATE:
        return _matching(array, _DATE).cast(pa.date32())
    if type_ is Plain.TIMESTAMP:
        return _matching(array, rf"{_DATE}([ T]{_CLOCK})?").cast(_US)
    if type_ is Plain.TIMESTAMPTZ:
        return _matching(array, rf"{_DATE}[ T]{_CLOCK}{_ZONE}").cast(_UTC)
    if type_ is Plain.BINARY:
        return array.cast(pa.binary())
    return _decimal_of(array, arrow_type(type_))


def _matching(array: pa.Array, pattern: str) -> pa.Array:
    return _only(array, pc.match_substring_regex(array, rf"^(?:{pattern})\z"))


def _decimal_of(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Digits and at most one point, and no more digits than fit, apart from leading and trailing zeros."""
    before, after = type_.precision - type_.scale, type_.scale
    fits = _matching(array, rf"[+-]?0*\d{{0,{before}}}(\.\d{{0,{after}}}0*)?")
    fits = _only(fits, pc.match_substring_regex(fits, r"\d"))
    short = pc.replace_substring_regex(fits, r"^\+?(-?)0*(\d)", r"\1\2")
    return pc.replace_substring_regex(short, r"(\.\d*?)0+$", r"\1").cast(type_)


def _float_of(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The nearest float, if its text form has the same digits."""
    numbers = _matching(array, f"{_NUMBER}|{_NOT_A_NUMBER}")
    found = pc.replace_substring_regex(numbers, r"^\+", "").cast(type_)
    return _only(found, pc.equal(_significant(numbers), _significant(found.cast(pa.string()))))


def _significant(numbers: pa.Array) -> pa.Array:
    """The significant digits: without sign, point, exponent and the zeros at both ends."""
    digits = pc.replace_substring_regex(pc.replace_substring_regex(numbers, r"[eE].*$", ""), r"\D", "")
    return pc.utf8_trim(digits, "0")


# ---------------------------------------------------------------- from numbers


def _from_decimal(array: pa.Array, type_: Type) -> pa.Array:
    if array.type.bit_width < 128:
        array = array.cast(
            pa.decimal128(array.type.precision, array.type.scale)
        )  # Arrow has few kernels for smaller decimals
    if type_ in _INTEGERS:
        return _limit_range(_rescale(array, MAX_DECIMAL_DIGITS, 0), type_).cast(arrow_type(type_))
    if type_ in _FLOATS:
        return _float_of(to_text(array), arrow_type(type_))
    return _rescale(array, *_digits(type_, MAX_DECIMAL_DIGITS))


def _rescale(array: pa.Array, precision: int, scale: int) -> pa.Array:
    """Change precision and scale of a decimal; NULL where a digit would be lost."""
    if array.type.precision - array.type.scale > precision - scale:
        limit = pa.scalar(decimal.Decimal(10) ** (precision - scale), array.type)
        array = _only(array, pc.less(pc.abs(array), limit))
    # Wide enough for every digit added after the point, and for the cast back.
    wide = array.cast(pa.decimal256(76 - max(scale - array.type.scale, 0), array.type.scale))
    there = wide.cast(pa.decimal256(76, scale), safe=False)
    if scale < array.type.scale:
        there = _only(there, pc.equal(there.cast(wide.type, safe=False), wide))
    return there.cast(pa.decimal128(precision, scale))


def _limit_range(array: pa.Array, type_: Type) -> pa.Array:
    bits = arrow_type(type_).bit_width - 1
    low, high = (pa.scalar(decimal.Decimal(bound), pa.decimal128(20, 0)) for bound in (-(1 << bits), (1 << bits) - 1))
    return _only(array, pc.greater_equal(array, low), pc.less_equal(array, high))


def _from_integer(array: pa.Array, type_: Type) -> pa.Array:
    if type_ is Plain.BOOL:
        return _only(array, pc.is_in(array, value_set=pa.array([0, 1], array.type))).cast(pa.bool_())
    if type_ in _FLOATS:
        # Every integer up to here is exact as a float.
        most = pa.scalar(decimal.Decimal(2) ** (53 if type_ is Plain.FLOAT64 else 24), pa.decimal128(20, 0))
        known = pc.abs(array.cast(pa.decimal128(20, 0)))
        return _only(array, pc.less_equal(known, most)).cast(arrow_type(type_))
    if type_ in _INTEGERS and arrow_type(type_) == array.type:
        return array
    return _from_decimal(array.cast(pa.decimal128(20, 0)), type_)


def _from_float(array: pa.Array, type_: Type) -> pa.Array:
    array = array.cast(pa.float32()) if pa.types.is_float16(array.type) else array
    if type_ in _FLOATS:
        found = array.cast(arrow_type(type_), safe=False)
        return _only(found, pc.or_(pc.equal(found.cast(array.type), array), pc.is_nan(array)))
    precision, scale = _digits(type_, 19)
    # Strictly within, so that rounding stays in range; a rounded value differs after the cast back.
    within = _only(array, pc.less(pc.abs(array), float(10 ** (precision - scale))))
    found = within.cast(pa.decimal256(precision + 1, scale))
    found = _only(found, pc.equal(found.cast(array.type), within))
    return _from_decimal(found, type_)


# ---------------------------------------------------------------- from times


def _from_time(array: pa.Array, type_: Type) -> pa.Array:
    """A timestamp without a zone counts as UTC."""
    array = without_zone(array) if pa.types.is_timestamp(array.type) else array
    if type_ is Plain.DATE:
        days = array.cast(pa.date32())
        return _only(days, pc.equal(days.cast(array.type), array)) if pa.types.is_timestamp(array.type) else days
    found = array.cast(_US, safe=False)
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        found = _only(found, pc.equal(found.cast(array.type, safe=False), array))
    return found.cast(_UTC) if type_ is Plain.TIMESTAMPTZ else found

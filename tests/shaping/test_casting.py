"""Casts are exact or they give NULL, whatever Arrow's own would do."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.types import List, Map, Plain, Struct
from penstock.links import arrow_types
from penstock.links.arrow_types import arrow_type
from penstock.shaping import casting
from penstock.shaping.types import CASTS, family, is_castable, normalize_type, type_of


def cast(array: pa.Array, name: str) -> pa.Array:
    return casting.cast(array, type_of(name))


def at(text: str) -> datetime:
    """A moment without a zone."""
    return datetime.fromisoformat(text)


def one(value: Any, type_: str, arrow: pa.DataType | None = None) -> Any:
    """A value once it has been cast, among others; None: it has no exact form."""
    array = pa.array([None, value, None], arrow).slice(1, 2)
    found = cast(array, type_)
    found.validate(full=True)
    assert found.type == arrow_type(type_of(type_))
    assert len(found) == 2
    assert found[1].as_py() is None
    return found[0].as_py()


@pytest.mark.parametrize(
    ("text", "type_", "meant"),
    [
        ("1.239", "decimal(10,2)", None),
        ("1.230", "decimal(10,2)", Decimal("1.23")),
        ("99999999.99", "decimal(10,2)", Decimal("99999999.99")),
        ("100000000", "decimal(10,2)", None),
        ("-0.00", "decimal(10,2)", Decimal(0)),
        ("+1.5", "decimal(10,2)", Decimal("1.5")),
        (".5", "decimal(10,2)", Decimal("0.5")),
        ("+.5", "decimal(10,2)", Decimal("0.5")),
        ("5.", "decimal(10,2)", Decimal(5)),
        ("0" * 50 + "1." + "5" + "0" * 50, "decimal(10,2)", Decimal("1.5")),
        ("0.5", "decimal(2,2)", Decimal("0.5")),
        ("1", "decimal(2,2)", None),
        ("9" * 38, "decimal(38,0)", Decimal("9" * 38)),
        ("", "decimal(10,2)", None),
        (".", "decimal(10,2)", None),
        ("-", "decimal(10,2)", None),
        ("NaN", "decimal(10,2)", None),
        ("1e2", "decimal(10,2)", None),
        (" 1", "decimal(10,2)", None),
        ("1\n", "decimal(10,2)", None),
        ("32767", "int16", 32767),
        ("-32768", "int16", -32768),
        ("32768", "int16", None),
        ("+0007", "int16", 7),
        ("-0", "int32", 0),
        ("1.0", "int32", None),
        ("0x1F", "int32", None),
        ("٣", "int32", None),
        ("9" * 60, "int64", None),
        (str(2**63 - 1), "int64", 2**63 - 1),
        (str(-(2**63)), "int64", -(2**63)),
        (str(2**63), "int64", None),
        ("0.1", "double", 0.1),
        ("0.1", "float", struct.unpack("f", struct.pack("f", 0.1))[0]),
        ("0.30000000000000004", "double", 0.30000000000000004),
        ("0.3000000000000000044", "double", None),
        ("16777217", "float", None),
        ("16777216", "float", 16777216.0),
        ("1e999", "double", None),
        ("1e-999", "double", None),
        ("1e39", "float", None),
        ("100000000000000000000", "double", 1e20),
        ("-Infinity", "double", float("-inf")),
        ("+1.5", "double", 1.5),
        ("0.00", "double", 0.0),
        ("1_0", "double", None),
        ("true", "bool", True),
        ("F", "bool", False),
        ("1", "bool", True),
        ("2", "bool", None),
        ("yes", "bool", None),
        ("2024-02-29", "date", date(2024, 2, 29)),
        ("2023-02-29", "date", None),
        ("1900-02-29", "date", None),
        ("2000-02-29", "date", date(2000, 2, 29)),
        ("2024-04-31", "date", None),
        ("0000-01-01", "date", None),
        ("9999-12-31", "date", date(9999, 12, 31)),
        ("2024-01-01T00:00:00", "date", None),
        ("2024-01-01", "timestamp", at("2024-01-01T00:00:00")),
        ("2024-01-01 23:59:59.999999", "timestamp", at("2024-01-01T23:59:59.999999")),
        ("2024-01-01T12:30", "timestamp", at("2024-01-01T12:30:00")),
        ("2024-01-01 24:00:00", "timestamp", None),
        ("2024-01-01 00:00:00.1234567", "timestamp", None),
        ("2024-01-01 00:00:00Z", "timestamp", None),
        ("2024-01-01 00:00:00+02", "timestamptz", datetime(2023, 12, 31, 22, tzinfo=UTC)),
        ("2024-01-01T00:00:00-05:30", "timestamptz", datetime(2024, 1, 1, 5, 30, tzinfo=UTC)),
        ("2024-01-01T00:00:00Z", "timestamptz", datetime(2024, 1, 1, tzinfo=UTC)),
        ("2024-01-01T00:00:00", "timestamptz", None),
        ("Grüße", "binary", "Grüße".encode()),
        ("as it is", "text", "as it is"),
    ],
)
def test_from_text(text: str, type_: str, meant: Any) -> None:
    assert one(text, type_) == meant
    assert one(text, type_, pa.large_string()) == meant


@pytest.mark.parametrize(
    ("value", "arrow", "type_", "meant"),
    [
        (1 << 40, pa.int64(), "int32", None),
        (-(1 << 31), pa.int64(), "int32", -(1 << 31)),
        (2**64 - 1, pa.uint64(), "int64", None),
        (2**64 - 1, pa.uint64(), "decimal(20,0)", Decimal(2**64 - 1)),
        (2**63 - 1, pa.int64(), "decimal(19,0)", Decimal(2**63 - 1)),
        (-(2**63), pa.int64(), "double", None),
        (2**53, pa.int64(), "double", float(2**53)),
        (2**53 + 1, pa.int64(), "double", None),
        (2**24 + 1, pa.int32(), "float", None),
        (12345678, pa.int64(), "decimal(10,2)", Decimal("12345678.00")),
        (123456789, pa.int64(), "decimal(10,2)", None),
        (1, pa.int8(), "bool", True),
        (2, pa.int8(), "bool", None),
        (-5, pa.int64(), "text", "-5"),
        (True, pa.bool_(), "int16", 1),
        (False, pa.bool_(), "text", "false"),
        (1.0, pa.float64(), "int32", 1),
        (1.5, pa.float64(), "int32", None),
        (2.0**31, pa.float64(), "int32", None),
        (2.0**63, pa.float64(), "int64", None),
        (-(2.0**63), pa.float64(), "int64", -(2**63)),
        (1e30, pa.float64(), "int64", None),
        (float("nan"), pa.float64(), "int64", None),
        (float("inf"), pa.float64(), "decimal(10,2)", None),
        (1.239, pa.float64(), "decimal(10,2)", None),
        (0.1, pa.float64(), "decimal(10,2)", Decimal("0.10")),
        (99999999.995, pa.float64(), "decimal(10,2)", None),
        (0.1, pa.float64(), "float", None),
        (0.5, pa.float64(), "float", 0.5),
        (1e300, pa.float64(), "float", None),
        (0.5, pa.float16(), "double", 0.5),
        (1e20, pa.float64(), "text", "1e+20"),
        (0.1, pa.float64(), "text", "0.1"),
        (Decimal("1.239"), pa.decimal128(10, 3), "decimal(10,2)", None),
        (Decimal("1.230"), pa.decimal128(10, 3), "decimal(10,2)", Decimal("1.23")),
        (Decimal("1.5"), pa.decimal128(10, 3), "int32", None),
        (Decimal("1e20"), pa.decimal128(38, 3), "int64", None),
        (Decimal("1e37"), pa.decimal128(38, 0), "decimal(38,38)", None),
        (Decimal("0.5"), pa.decimal256(76, 40), "decimal(38,38)", Decimal("0.5")),
        (Decimal("1e70"), pa.decimal256(76, 0), "decimal(38,38)", None),
        (Decimal("0.1"), pa.decimal128(10, 1), "double", 0.1),
        (Decimal("0.12345678901234567891"), pa.decimal128(38, 20), "double", None),
        (Decimal("1.5"), pa.decimal64(10, 1), "decimal(5,2)", Decimal("1.50")),
        (Decimal("0.00000001"), pa.decimal128(20, 8), "text", "0.00000001"),
        (Decimal("-0.00000001"), pa.decimal128(20, 8), "text", "-0.00000001"),
        (Decimal("0"), pa.decimal128(20, 8), "text", "0.00000000"),
        (Decimal("-1234.5"), pa.decimal128(20, 8), "text", "-1234.50000000"),
        (date(2024, 1, 1), pa.date32(), "timestamptz", datetime(2024, 1, 1, tzinfo=UTC)),
        (date(2024, 1, 1), pa.date64(), "text", "2024-01-01"),
        (at("2024-01-01T00:00:00"), pa.timestamp("us"), "date", date(2024, 1, 1)),
        (at("2024-01-01T00:00:01"), pa.timestamp("us"), "date", None),
        (at("1960-01-01T12:00:00"), pa.timestamp("s"), "date", None),
        (datetime(2024, 1, 1, 23, 30, tzinfo=UTC), pa.timestamp("us", "Asia/Tokyo"), "date", None),
        (datetime(2024, 1, 1, tzinfo=UTC), pa.timestamp("us", "Asia/Tokyo"), "date", date(2024, 1, 1)),
        (datetime(2024, 1, 1, 5, tzinfo=UTC), pa.timestamp("us", "Asia/Tokyo"), "timestamp", at("2024-01-01T05:00:00")),
        (at("2024-01-01T05:00:00"), pa.timestamp("ms"), "timestamptz", datetime(2024, 1, 1, 5, tzinfo=UTC)),
        (1_000, pa.timestamp("ns"), "timestamp", at("1970-01-01T00:00:00.000001")),
        (1_001, pa.timestamp("ns"), "timestamp", None),
        (datetime(2024, 1, 1, 5, tzinfo=UTC), pa.timestamp("us", "UTC"), "text", "2024-01-01T05:00:00.000000Z"),
        (time(1, 2, 3), pa.time64("us"), "text", "01:02:03.000000"),
        (b"\xff", pa.binary(), "binary", b"\xff"),
        (b"\xff", pa.binary(1), "binary", b"\xff"),
        (None, pa.null(), "int32", None),
    ],
)
def test_from_other_types(value: Any, arrow: pa.DataType, type_: str, meant: Any) -> None:
    assert is_castable(arrow_types.type_of(arrow), type_)
    assert one(value, type_, arrow) == meant


def test_from_a_dictionary_and_from_json() -> None:
    coded = pa.array(["1", "2", None, "1"]).dictionary_encode()
    assert is_castable(arrow_types.type_of(coded.type), "int32")
    assert cast(coded, "int32").to_pylist() == [1, 2, None, 1]
    assert is_castable(Plain.JSON, "text")
    assert cast(pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])), "text").to_pylist() == ["{}"]


def test_a_float_that_is_no_number_stays_one() -> None:
    found = cast(pa.array([float("nan"), float("inf")]), "float").to_pylist()
    assert str(found) == "[nan, inf]"
    assert str(cast(pa.array(["nan"]), "double").to_pylist()) == "[nan]"


EXAMPLES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "integer": pa.uint32(),
    "float": pa.float32(),
    "decimal": pa.decimal128(10, 2),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("s", "Europe/Berlin"),
    "time": pa.time32("s"),
    "binary": pa.large_binary(),
    "nothing": pa.null(),
}


@pytest.mark.parametrize("kind", CASTS)
def test_every_cast_that_is_offered_is_there_also_for_no_rows(kind: str) -> None:
    arrow = EXAMPLES[kind]
    assert family(arrow_types.type_of(arrow)) == kind
    for type_ in CASTS[kind]:
        plain = normalize_type(type_.replace("p,s", "12,2"))
        for rows in (0, 2):
            found = cast(pa.nulls(rows, arrow), plain)
            assert (found.type, len(found), found.null_count) == (arrow_type(type_of(plain)), rows, rows)


def test_lists_and_the_like_have_no_family() -> None:
    for type_ in (List(Plain.INT32), Struct((("a", Plain.INT8),)), Map(Plain.STRING, Plain.INT8), Plain.UUID):
        assert family(type_) is None


# ---------------------------------------------------------------- against Python's own decimals

DIGITS = st.integers(1, 38).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**8), max_value=10**8), DIGITS)
def test_a_text_is_a_decimal_exactly_or_not_at_all(value: Decimal, digits: tuple[int, int]) -> None:
    precision, scale = digits
    with localcontext(prec=100):
        exact = value == round(value, scale) and abs(value) < Decimal(10) ** (precision - scale)
    type_ = f"decimal({precision},{scale})"
    for found in (one(f"{value:f}", type_), one(value, type_, pa.decimal128(38, 6))):
        assert found == (value if exact else None)


@settings(deadline=None)
@given(st.floats(width=64), DIGITS)
def test_a_float_is_a_decimal_exactly_or_not_at_all(value: float, digits: tuple[int, int]) -> None:
    found = one(value, f"decimal({digits[0]},{digits[1]})", pa.float64())
    assert found is None or float(found) == value


@settings(deadline=None)
@given(st.floats(width=64, allow_nan=False))
def test_a_float_is_its_text_and_back(value: float) -> None:
    assert one(one(value, "text", pa.float64()), "double") == value


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False))
def test_a_short_float_is_its_text_and_back(value: float) -> None:
    assert one(one(value, "text", pa.float32()), "float") == value


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["int16", "int32", "int64"]))
def test_a_whole_number_is_narrowed_exactly_or_not_at_all(value: int, type_: str) -> None:
    bits = int(type_[3:]) - 1
    meant = value if -(1 << bits) <= value < 1 << bits else None
    assert one(value, type_, pa.int64()) == one(str(value), type_) == meant


@settings(deadline=None)
@given(st.datetimes(), st.sampled_from(["us", "ms", "s"]))
def test_a_moment_is_its_text_and_back(value: datetime, unit: str) -> None:
    cut = {"us": value, "ms": value.replace(microsecond=value.microsecond // 1000 * 1000)}.get(
        unit, value.replace(microsecond=0)
    )
    assert one(one(cut, "text", pa.timestamp(unit)), "timestamp") == cut
    zoned = cut.replace(tzinfo=UTC)
    assert one(one(zoned, "text", pa.timestamp(unit, "UTC")), "timestamptz") == zoned

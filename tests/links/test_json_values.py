"""Columns that are made at once equal those whose values are converted one by one."""

from __future__ import annotations

from decimal import Decimal as Exact
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.types import Plain, parse_type
from penstock.links.arrow_types import arrow_type
from penstock.links.json_values import converter, decoder_of, make_array

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-(10**11), 4 * 10**11)
    | st.floats(allow_nan=False)
    | st.text()
)
ZONES = st.sampled_from(["", "Z", "z", "+02:00", "-00:30", "+0200", "+23:59", " "])
TIMES = st.builds(
    "{}{}{}".format,
    st.datetimes().map(lambda each: each.isoformat(sep="T" if each.second % 2 else " ")) | st.dates().map(str),
    st.sampled_from(["", "", ".5", "7", ":60"]),
    ZONES,
)
ODD_TIMES = st.sampled_from(
    ["0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-02-30", "20260501", "24"]
)
NUMBERS = st.decimals(allow_nan=False, allow_infinity=False) | st.decimals(-(10**6), 10**6, places=2)
STRINGS = st.lists(st.none() | TIMES | ODD_TIMES, max_size=4) | st.lists(
    st.none() | NUMBERS.map(str) | st.sampled_from(["+1.5", ".5", "5.", " 1", "1e2", "1_0", "", "٣"]), max_size=4
)
EXACT = st.lists(st.none() | NUMBERS | st.integers(-(2**70), 2**70), max_size=4)
TYPES = (
    "int16",
    "int32",
    "int64",
    "float64",
    "bool",
    "string",
    "timestamptz",
    "timestamp",
    "date",
    "decimal(12,2)",
    "decimal(38,0)",
)


def convert_one_by_one(values: list[Any], name: str, steps: int) -> pa.Array | None:
    """None: a value has no exact form."""
    type_ = parse_type(name)
    convert = converter(type_, steps)
    try:
        return pa.array([None if value is None else convert(value) for value in values], arrow_type(type_))
    except (ValueError, TypeError, ArithmeticError):
        return None


@pytest.mark.parametrize("steps", [1, 1000])
@pytest.mark.parametrize("name", TYPES)
@settings(deadline=None)  # the first call imports
@given(
    values=st.lists(VALUES, max_size=5)
    | st.lists(st.integers(-(10**11), 4 * 10**11) | st.none(), max_size=5)
    | STRINGS
    | EXACT
)
def test_both_ways_give_the_same(name: str, steps: int, values: list[Any]) -> None:
    type_ = parse_type(name)
    made = make_array(values, type_, arrow_type(type_), steps)
    if made is not None:
        expected = convert_one_by_one(values, name, steps)
        assert expected is not None, "a value without an exact form was taken"
        assert made.equals(expected)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("int64", [1, None, -5]),
        ("float64", [1.5, None]),
        ("bool", [True, None, False]),
        ("string", ["a", None, "ü"]),
        ("timestamptz", [0, None, 1_700_000_000]),
        ("timestamptz", ["2026-05-01T10:00:00.000000Z", None, "2026-05-01 10:00:00+02:00"]),
        ("timestamp", ["2026-05-01T10:00:00.5", None]),
        ("date", ["2026-05-01", None]),
        ("decimal(12,2)", ["12.50", None, "-1"]),
        ("decimal(12,2)", [Exact("12.50"), None, 7]),
    ],
)
def test_usual_values_are_made_at_once(name: str, values: list[Any]) -> None:
    type_ = parse_type(name)
    made = make_array(values, type_, arrow_type(type_), 1)
    assert made is not None
    assert made.equals(convert_one_by_one(values, name, 1))


@pytest.mark.parametrize(("name", "values"), [("int16", [70000]), ("int64", ["7"]), ("timestamptz", [10**15])])
def test_others_are_left_to_the_conversion_of_each(name: str, values: list[Any]) -> None:
    type_ = parse_type(name)
    assert make_array(values, type_, arrow_type(type_), 1) is None


JSON = ['{"a": 1.10,\t"b": [1e400, -0.0]}', "null", "0.1234567890123456789012345", "[]", '"ü"', "1E5"]


def test_json_keeps_its_own_text() -> None:
    """With every digit, also of numbers that no float has."""
    decode = decoder_of(("id", "more"), texts=frozenset({"more"})).decode
    values = [decode(f'{{"id": 1, "more": {text}}}'.encode()).get("more") for text in JSON]
    made = make_array([*values, None], Plain.JSON, pa.string(), 1)
    assert made is not None
    assert made.to_pylist() == [None if text == "null" else text for text in [*JSON, "null"]]
    convert = converter(Plain.JSON, 1)
    assert [convert(value) for value in values] == made.to_pylist()[:-1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [Exact("0.1234567890123456789012345"), Exact("1.10")]}, '{"a":[0.1234567890123456789012345,1.10]}'),
        ([None, True, "ü", 2**70, 1.5], f'[null,true,"ü",{2**70},1.5]'),
    ],
)
def test_json_of_values_has_all_digits(value: Any, text: str) -> None:
    assert make_array([value], Plain.JSON, pa.string(), 1) is None
    assert converter(Plain.JSON, 1)(value) == text


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")]}, {"a": {"b": -float("inf")}}])
def test_json_has_no_number_that_is_none(value: Any) -> None:
    with pytest.raises(ValueError, match=r"nan|inf"):
        converter(Plain.JSON, 1)(value)

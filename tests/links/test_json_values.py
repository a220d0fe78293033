"""Columns that are made at once equal those whose values are converted one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.types import parse_type
from penstock.links.arrow_types import arrow_type
from penstock.links.json_values import converter, make_array

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-(10**11), 4 * 10**11)
    | st.floats(allow_nan=False)
    | st.text()
)
TYPES = ("int16", "int32", "int64", "float64", "bool", "string", "timestamptz", "timestamp")


def convert_one_by_one(values: list[Any], name: str, steps: int) -> pa.Array | None:
    """None: a value has no exact form."""
    type_ = parse_type(name)
    convert = converter(type_, steps)
    try:
        return pa.array([None if value is None else convert(value) for value in values], arrow_type(type_))
    except (ValueError, TypeError, OverflowError):
        return None


@pytest.mark.parametrize("steps", [1, 1000])
@pytest.mark.parametrize("name", TYPES)
@settings(deadline=None)  # the first call imports
@given(values=st.lists(VALUES, max_size=5) | st.lists(st.integers(-(10**11), 4 * 10**11) | st.none(), max_size=5))
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

"""Values that do not fit: none is lost and none is changed, on whichever side it ends."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from penstock.shaping.misfits import json_objects, split_misfits

INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**31) - 2, 2**31 + 2) | st.integers(-300, 300)
DOUBLES = st.floats() | st.floats(width=32) | st.integers(-(2**33), 2**33).map(float)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=4)
#: a narrow type, a wide one, values of the wide one
PAIRS: list[tuple[pa.DataType, pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int32(), pa.int64(), INT64),
    (pa.int16(), pa.int64(), INT64),
    (pa.uint8(), pa.int16(), st.integers(-300, 300)),
    (pa.int32(), pa.float64(), DOUBLES),
    (pa.float32(), pa.float64(), DOUBLES),
    (pa.int32(), pa.decimal128(20, 4), DECIMALS),
    (pa.decimal128(6, 2), pa.decimal128(20, 4), DECIMALS),
    (pa.decimal128(8, 4), pa.decimal128(20, 4), DECIMALS),
]


@pytest.mark.parametrize(("narrow", "wide", "values"), PAIRS, ids=lambda each: str(each)[:30])
def test_each_value_is_kept_exactly_or_put_aside(
    narrow: pa.DataType, wide: pa.DataType, values: st.SearchStrategy[Any]
) -> None:
    @hypothesis.settings(deadline=None, max_examples=80)
    @hypothesis.given(st.lists(st.none() | values, max_size=8))
    def check(given: list[Any]) -> None:
        array = pa.array(given, wide)
        fits, rest = split_misfits(array, narrow)
        assert (fits.type, rest.type) == (narrow, wide)
        fits.validate(full=True)
        for value, kept, aside in zip(array.to_pylist(), fits.to_pylist(), rest.to_pylist(), strict=True):
            assert value is None or (kept is None) != (aside is None), "on exactly one side"
            assert same(value, kept if aside is None else aside)
            if aside is not None:
                with pytest.raises((pa.ArrowException, Unlike)):
                    exactly(value, narrow, wide)

    check()


class Unlike(Exception):
    """A value that a cast has changed."""


def exactly(value: Any, narrow: pa.DataType, wide: pa.DataType) -> None:
    there = pa.array([value], wide).cast(narrow)
    there.validate(full=True)
    if not same(there.cast(wide)[0].as_py(), value):
        raise Unlike


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return bool(one == other)


@pytest.mark.parametrize(
    ("given", "narrow"),
    [
        (pa.array(["1", "2"]), pa.int32()),
        (pa.array([1, 2]), pa.string()),
        (pa.array([1, None]), pa.float64()),
        (pa.array([0], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([1, 2]), pa.null()),
    ],
)
def test_between_types_that_do_not_widen_nothing_fits(given: pa.Array, narrow: pa.DataType) -> None:
    fits, rest = split_misfits(given, narrow)
    assert fits.null_count == len(fits)
    assert rest == given


def test_values_are_spelt_as_people_write_them() -> None:
    columns = {
        "int": pa.array([-5]),
        "amount": pa.array([Decimal("1.50")]),
        "yes": pa.array([True]),
        "real": pa.array([0.1]),
        "day": pa.array([date(2026, 2, 3)]),
        "time": pa.array([time(1, 2, 3, 4)]),
        "at": pa.array([datetime(2026, 2, 3, 4, 5, 6, 7, UTC)], pa.timestamp("us", "UTC")),
        "local": pa.array([1], pa.timestamp("us")),
        "bytes": pa.array([b"\x00\xff"]),
        "list": pa.array([[1, None]]),
        "struct": pa.array([{"a": Decimal("1.5"), "b": b"\x01"}]),
        'a "name"': pa.array(["x"]),
    }
    (text,) = json_objects(columns, 1).to_pylist()
    assert json.loads(text) == {
        "int": "-5",
        "amount": "1.50",
        "yes": "true",
        "real": "0.1",
        "day": "2026-02-03",
        "time": "01:02:03.000004",
        "at": "2026-02-03T04:05:06.000007Z",
        "local": "1970-01-01T00:00:00.000001",
        "bytes": "00ff",
        "list": "[1, null]",
        "struct": '{"a": "1.5", "b": "01"}',
        'a "name"': "x",
    }


@hypothesis.settings(deadline=None, max_examples=80)
@hypothesis.given(st.lists(st.tuples(*[st.none() | st.text(st.characters(exclude_categories=["Cs"]))] * 2), max_size=6))
def test_any_text_comes_back_and_a_row_without_values_is_null(rows: list[tuple[str | None, str | None]]) -> None:
    columns = {name: pa.array([row[place] for row in rows], pa.string()) for place, name in enumerate("ab")}
    found = json_objects(columns, len(rows)).to_pylist()
    for row, text in zip(rows, found, strict=True):
        wanted = {name: value for name, value in zip("ab", row, strict=True) if value is not None}
        assert (None if text is None else json.loads(text)) == (wanted or None)


def test_without_columns_nothing_is_put_aside() -> None:
    assert json_objects({}, 2).to_pylist() == [None, None]

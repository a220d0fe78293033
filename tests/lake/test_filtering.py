"""Filters compare what they say: a literal is the column's own, or the filter is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from penstock.errors import StreamRefused
from penstock.lake.filtering import read_filter

SCHEMA = Schema(
    NestedField(1, "small", IntegerType()),
    NestedField(2, "large", LongType()),
    NestedField(3, "price", DecimalType(6, 2)),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "moment", TimestamptzType()),
    NestedField(6, "name", StringType()),
)
ROWS = pa.RecordBatch.from_pydict(
    {
        "small": pa.array([1, 2, 2147483647, None], pa.int32()),
        "large": pa.array([1, 2, 9223372036854775807, None], pa.int64()),
        "price": pa.array([Decimal("1.50"), Decimal("9999.99"), Decimal("-1.00"), None], pa.decimal128(6, 2)),
        "at": pa.array([0, 86_400_000_000, 90_000_000_000, None], pa.timestamp("us")),
        "moment": pa.array([0, 86_400_000_000, 90_000_000_000, None], pa.timestamp("us", "UTC")),
        "name": pa.array(["a", "b", "c", None], pa.string()),
    }
)


def kept(where: str) -> list[int]:
    """The rows that pass, counted from 0."""
    mask: list[Any] = read_filter(where, SCHEMA).mask(ROWS).to_pylist()
    return [place for place, passes in enumerate(mask) if passes]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("small in (1, 99999999999)", [0]),
        ("small not in (1, 99999999999)", [1, 2]),
        ("small in (99999999998, 99999999999)", []),
        ("small not in (99999999998, 99999999999)", [0, 1, 2]),
        ("small < 99999999999", [0, 1, 2]),
        ("small > 99999999999", []),
        ("2 <= small", [1, 2]),
        ("small = 2.0", [1]),
        ("large in (2, 99999999999999999999)", [1]),
        ("price > 1.5", [1]),
        ("price = 1.5", [0]),
        ("price >= 1.500", [0, 1]),
        ("price < 1", [2]),
        ("price < 1000000", [0, 1, 2]),
        ("price in (1.5, 1000000.0)", [0]),
        ("price not in (1.5, 1000000.0)", [1, 2]),
        ("at >= '1970-01-02'", [1, 2]),
        ("at > '1970-01-02 00:00:00'", [2]),
        ("at = '1970-01-02T01:00:00'", [2]),
        ("moment > '1970-01-02 00:00:00+00:00'", [2]),
        ("name like 'a%' or name is null", [0, 3]),
    ],
)
def test_what_passes(where: str, rows: list[int]) -> None:
    assert kept(where) == rows


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("small = 1.5", "1.5 is not a whole number, and the column has whole numbers"),
        ("large in (1.5, 2.5)", "is not a whole number, and the column has whole numbers"),
        ("price = 1.555", "1.555 has more decimal places than decimal(6, 2)"),
        ("moment > '1970-01-02'", "Missing zone offset"),
    ],
)
def test_a_literal_that_is_not_the_column_s_is_refused(where: str, reason: str) -> None:
    with pytest.raises(StreamRefused) as refused:
        read_filter(where, SCHEMA)
    assert reason in refused.value.what
    assert refused.value.next_step

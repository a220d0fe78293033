"""What the receiver takes, readers of the log can read: a row that stops them would stop everything behind it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.core.types import parse_type
from penstock.service import bodies
from penstock.service.problems import Problem
from penstock.service.rows import MOST_DEPTH, RowCheck, RowLimits
from penstock.sources.wal.reader import LogReader
from penstock.sources.wal.records import Lines, Records
from penstock.wal.batches import Head

COLUMNS = {
    "i": "int64",
    "f": "float64",
    "s": "string",
    "b": "bool",
    "d": "decimal(10,2)",
    "day": "date",
    "t": "timestamp",
    "z": "timestamptz",
    "j": "json",
}
CHECK = RowCheck("rows", tuple(COLUMNS.items()), (), False, RowLimits(rows=1000, row_bytes=1 << 16, fields=20))
FREE = RowCheck(limits=CHECK.limits)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["2026-01-01", "2026-01-01T00:00:00Z", "0001-01-01", "1.50", "12", "9999-12-31T23:59:59.999999"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner), max_leaves=5
)
ROWS = st.dictionaries(st.sampled_from([*COLUMNS, "other"]), VALUES, max_size=6).map(json.dumps)
#: tokens that JSON is made of, and things that only look like it
TOKENS = st.sampled_from(
    [
        *(
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            '"i"',
            '"j"',
            '"a\\ud800"',
            "1",
            "-0",
            "1e5",
            "1e-99999999999",
            "NaN",
            "null",
            "tru",
        ),
        *(
            "\r",
            " ",
            "\t",
            '"\\u0000"',
            "1" * 5000,
            "\u2028",
            "\x0b",
            "\x1c",
            "1.5",
            "1e400",
            '{"f":1e400}',
            '{"j":{}}',
        ),
    ]
)
TEXTS = ROWS | st.lists(TOKENS, max_size=8).map("".join)


def read(rows: list[str], columns: dict[str, str]) -> int:
    """Decode rows as a reader of the log does, every column of them; how many there are."""
    reader = LogReader(Records("orders", "", False), tuple(columns.items()), False)
    types = [parse_type(type_) for type_ in columns.values()]
    packed = bodies.compress(rows)
    import pyarrow as pa

    stored = pa.input_stream(pa.py_buffer(packed), compression="zstd").read().splitlines() if rows else []
    assert len(stored) == len(rows)
    from penstock.links.arrow_types import arrow_type

    schema = pa.schema([(name, arrow_type(type_)) for name, type_ in zip(columns, types, strict=True)])
    lines = Lines(1, 0, 0, 1, Head(None, len(stored), 1, "rows", 0, (), 0, (1, len(stored))), stored)
    return sum(batch.num_rows for batch in reader._convert([lines], schema, types))


def taken(check: RowCheck, text: str) -> list[str] | None:
    try:
        body = bodies.decode(text.encode(), bodies.Form(False, "identity"), 1 << 20)
        check.check(body.rows)
    except Problem as problem:
        return None if problem.status in (400, 422) else [problem.detail]
    return body.rows


@settings(max_examples=400, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4).map("\n".join))
@example('{"d": 1e-99999999999}')
@example('{"i":\r1}')
@example('{"f": 1e400}')
def test_what_fits_is_read(text: str) -> None:
    rows = taken(CHECK, text)
    if rows:
        assert read(rows, COLUMNS) == len(rows)


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4).map("\n".join))
@example('{"x": 1e-99999999999}')
def test_what_is_taken_by_an_undeclared_stream_is_read_as_json(text: str) -> None:
    rows = taken(FREE, text)
    if rows:
        assert read(rows, {"j": "json", "d": "decimal(38,10)"} if '"d"' not in text else {"j": "json"}) == len(rows)


def test_a_row_that_fits_is_taken() -> None:
    row = {
        "i": 1,
        "f": 1.5,
        "s": "x",
        "b": True,
        "d": "12.50",
        "day": "2026-01-01",
        "t": "2026-01-01T00:00:00",
        "z": "2026-01-01T00:00:00+02:00",
        "j": {"a": [1]},
    }
    rows = taken(CHECK, json.dumps(row))
    assert rows == [json.dumps(row)]
    assert read(rows, COLUMNS) == 1


@pytest.mark.parametrize("depth", [MOST_DEPTH - 1, MOST_DEPTH])
def test_depth_is_counted_exactly(depth: int) -> None:
    assert (taken(FREE, '{"a":' + "[" * depth + "]" * depth + "}") is not None) == (depth < MOST_DEPTH)


def test_rows_beyond_the_first_group_have_their_numbers() -> None:
    rows: list[dict[str, Any]] = [{"i": n, "s": "x" * 60_000} for n in range(200)]
    rows[150]["i"] = "x"
    with pytest.raises(Problem) as caught:
        CHECK.check([json.dumps(row) for row in rows])
    assert caught.value.more["row"] == 151

"""Rows as JSON: every type comes back exactly, and what has no exact form is refused."""

from __future__ import annotations

import base64
import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import Plain, parse_type
from penstock.errors import StreamFailed
from penstock.links import json_values
from penstock.links.arrow_types import arrow_type
from penstock.sinks.http.encode import Encoding, encode_rows

UUID = uuid.UUID("0123456789abcdef0123456789abcdef")


EXACT = Encoding()


def encode(array: pa.Array, encoding: Encoding = EXACT) -> list[Any]:
    rows = encode_rows(pa.record_batch([array], ["v"]), encoding, "\n")
    text = bytes(rows.data).decode()
    lines = text.split("\n")[:-1]
    assert [len(line.encode()) + 1 for line in lines] == [
        b - a for a, b in zip(rows.offsets, rows.offsets[1:], strict=False)
    ]
    return [json.loads(line, parse_float=Decimal)["v"] for line in lines]


def array(values: list[Any], text: str) -> pa.Array:
    type_ = arrow_type(parse_type(text))
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, pa.array(values, type_.storage_type))
    return pa.array(values, type_)


@pytest.mark.parametrize(
    ("text", "values", "wanted"),
    [
        ("int64", [2**63 - 1, -(2**63), None], None),
        ("uint64", [2**64 - 1, 0], None),
        ("int8", [-128, 127], None),
        ("bool", [True, False, None], None),
        ("string", ['a"b\\c\n\r\t\x00\x1f\x7f', "größe \u2028 😀", "", None], None),
        ("json", ['{"a": [1,\n 2]}', "null", '"x"', "1e400", None], [{"a": [1, 2]}, None, "x", Decimal("1e400"), None]),
        ("decimal(38,10)", [Decimal("1.5"), Decimal("1E-10"), None], ["1.5000000000", "1E-10", None]),
        ("decimal(60,0)", [Decimal(10**59)], [str(10**59)]),
        ("date", [date(1, 1, 1), date(9999, 12, 31), None], ["0001-01-01", "9999-12-31", None]),
        ("time", [time(23, 59, 59, 999999)], ["23:59:59.999999"]),
        ("timestamp", [datetime.fromisoformat("0001-01-01"), None], ["0001-01-01T00:00:00.000000", None]),
        ("timestamptz", [datetime(2024, 5, 1, 10, 0, 0, 5, tzinfo=UTC)], ["2024-05-01T10:00:00.000005Z"]),
        ("timestamptz_ns", [1714557600000000007], ["2024-05-01T10:00:00.000000007Z"]),
        ("binary", [b"\x00\xff", b"", None], [base64.b64encode(b"\x00\xff").decode(), "", None]),
        ("fixed(3)", [b"abc", None], ["YWJj", None]),
        ("uuid", [UUID.bytes, None, bytes(16)], [str(UUID), None, str(uuid.UUID(int=0))]),
        ("null", [None, None], None),
        ("list<string>", [['a"', None], [], None], None),
        ("map<string, int64>", [[('k"', 1), ("l", None)], [], None], [{'k"': 1, "l": None}, {}, None]),
        ("map<int64, string>", [[(1, "a")], None], [[[1, "a"]], None]),
        ('struct<a: int64, "b c": list<bool>>', [{"a": 1, "b c": [True]}, {"a": None, "b c": None}, None], None),
    ],
)
def test_every_type_is_exact(text: str, values: list[Any], wanted: list[Any] | None) -> None:
    whole = array(values, text)
    wanted = values if wanted is None else wanted
    assert encode(whole) == wanted
    if len(values) > 1:
        assert encode(whole[1:]) == wanted[1:], "a slice of a batch"
    assert encode(whole[:0]) == []


@given(st.lists(st.floats(width=64) | st.none()), st.sampled_from(["float64", "float32"]))
def test_floats_come_back_as_they_were(values: list[float | None], text: str) -> None:
    whole = array(values, text) if text == "float64" else pa.array(values).cast(pa.float32(), safe=False)
    found = [None if each is None else float(each) for each in encode(whole)]
    assert list(map(repr, pa.array(found, pa.float64()).cast(whole.type, safe=False).to_pylist())) == list(
        map(repr, whole.to_pylist())
    )


def test_what_is_no_number_follows_the_policy() -> None:
    odd = pa.array([float("nan"), float("inf"), -float("inf"), 1.5, None])
    assert encode(odd) == ["NaN", "Infinity", "-Infinity", Decimal("1.5"), None]
    assert encode(odd, Encoding(non_finite="null")) == [None, None, None, Decimal("1.5"), None]
    assert encode_rows(pa.record_batch([odd], ["v"]), Encoding(non_finite="null"), "\n").nulled == 3
    with pytest.raises(StreamFailed, match=r"'v'.*NaN"):
        encode(odd, Encoding(non_finite="fail"))


def test_decimals_may_be_numbers() -> None:
    assert encode(array([Decimal("1.50")], "decimal(5,2)"), Encoding(decimals="number")) == [Decimal("1.50")]


@pytest.mark.parametrize("wrong", ["{", "1,2", "1],[2", "", "1}\n{", 'a"'])
def test_a_value_that_is_not_json_cannot_break_out_of_its_row(wrong: str) -> None:
    with pytest.raises(StreamFailed, match=r"not (one )?JSON"):
        encode(array(["1", wrong], "json"))


def test_a_timestamp_out_of_range_is_refused() -> None:
    for wrong in (253_402_300_800_000_000, -62_135_596_800_000_001):
        with pytest.raises(StreamFailed, match="years"):
            encode(pa.array([wrong], pa.timestamp("us", "UTC")))


def test_rows_without_columns_and_odd_names() -> None:
    batch = pa.record_batch([pa.array([1]), pa.array([2])], ['a"\n', "größe"])
    assert json.loads(bytes(encode_rows(batch, Encoding(), "").data)) == {'a"\n': 1, "größe": 2}
    two = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert bytes(encode_rows(two, Encoding(), "\n").data) == b"{}\n{}\n"


READ = ["int64", "uint64", "bool", "string", "json", "decimal(20,5)", "date", "timestamp", "timestamptz", "float64"]
VALUES: dict[str, Any] = {
    "int64": -(2**62),
    "uint64": 2**64 - 1,
    "bool": True,
    "string": "123",
    "json": '{"a":1}',
    "decimal(20,5)": Decimal("1.50000"),
    "date": date(2024, 2, 29),
    "timestamp": datetime.fromisoformat("2024-01-02T03:04:05.000006"),
    "timestamptz": datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "float64": 0.1,
}


@pytest.mark.parametrize("text", READ)
def test_a_source_of_json_reads_the_same_value(text: str) -> None:
    """With the converter of the sources that read JSON."""
    type_ = parse_type(text)
    (sent,) = encode(array([VALUES[text]], text))
    if type_ is Plain.FLOAT64:
        sent = float(sent)
    assert json_values.converter(type_, 1000)(sent) == VALUES[text]

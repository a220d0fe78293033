"""What lies in the files is exactly what came out of the source, in every format."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sinks.files.folder import deliver, only_file, open_sink, write

from penstock.errors import InputError
from penstock.sinks.files.text import format_json_lines
from penstock.testing.contracts.delivery import after

NASTY = 'q"uo\\te,\n\r\ttab\x01\x1b\x1f\x7f é 😀 \u2028\u2029 \ufeff end '
EPOCH_EVE = datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 (a timestamp without zone)
FIRST = datetime(1, 1, 1)  # noqa: DTZ001
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001

#: the Arrow types that a Postgres source yields: values, their CSV field, their JSON text
COLUMNS: dict[str, tuple[pa.DataType, list[Any], list[str], list[str]]] = {
    "flag": (pa.bool_(), [True, False, None], ["true", "false", ""], ["true", "false", "null"]),
    "small": (pa.int16(), [32767, -32768, None], ["32767", "-32768", ""], ["32767", "-32768", "null"]),
    "int": (
        pa.int32(),
        [2**31 - 1, -(2**31), 0],
        ["2147483647", "-2147483648", "0"],
        ["2147483647", "-2147483648", "0"],
    ),
    "big": (
        pa.int64(),
        [2**63 - 1, -(2**63), None],
        ["9223372036854775807", "-9223372036854775808", ""],
        ["9223372036854775807", "-9223372036854775808", "null"],
    ),
    "real": (pa.float32(), [0.5, math.nan, None], ["0.5", "nan", ""], ["0.5", '"nan"', "null"]),
    "double": (
        pa.float64(),
        [0.1, math.inf, -math.inf],
        ["0.1", "inf", "-inf"],
        ["0.1", '"inf"', '"-inf"'],
    ),
    "tiny": (
        pa.float64(),
        [5e-324, 1.7976931348623157e308, None],
        ["5e-324", "1.7976931348623157e+308", ""],
        ["5e-324", "1.7976931348623157e+308", "null"],
    ),
    "money": (
        pa.decimal128(38, 4),
        [Decimal("1234567890123456789012345678901234.5678"), Decimal("-0.0001"), None],
        ["1234567890123456789012345678901234.5678", "-0.0001", ""],
        ["1234567890123456789012345678901234.5678", "-0.0001", "null"],
    ),
    "whole": (
        pa.decimal128(10, 0),
        [Decimal(1), Decimal(-9999999999), None],
        ["1", "-9999999999", ""],
        ["1", "-9999999999", "null"],
    ),
    "text": (
        pa.string(),
        [NASTY, "", None],
        ['"' + NASTY.replace('"', '""') + '"', '""', ""],
        [json.dumps(NASTY, ensure_ascii=False), '""', "null"],
    ),
    "day": (
        pa.date32(),
        [date(1, 1, 1), date(9999, 12, 31), None],
        ["0001-01-01", "9999-12-31", ""],
        ['"0001-01-01"', '"9999-12-31"', "null"],
    ),
    "clock": (
        pa.time64("us"),
        [time(23, 59, 59, 999999), time(0), None],
        ["23:59:59.999999", "00:00:00.000000", ""],
        ['"23:59:59.999999"', '"00:00:00.000000"', "null"],
    ),
    "local": (
        pa.timestamp("us"),
        [EPOCH_EVE, FIRST, None],
        ['"1969-12-31T23:59:59.999999"', '"0001-01-01T00:00:00.000000"', ""],
        ['"1969-12-31T23:59:59.999999"', '"0001-01-01T00:00:00.000000"', "null"],
    ),
    "zoned": (
        pa.timestamp("us", "UTC"),
        [EPOCH_EVE.replace(tzinfo=UTC), LAST.replace(tzinfo=UTC), None],
        ['"1969-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59.999999Z"', ""],
        ['"1969-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59.999999Z"', "null"],
    ),
}
TABLE = pa.table({name: pa.array(values, kind) for name, (kind, values, _, _) in COLUMNS.items()})


def test_parquet_holds_every_value(tmp_path: Path) -> None:
    deliver(open_sink(tmp_path), TABLE)
    found = pq.read_table(only_file(tmp_path))
    assert found.schema.equals(TABLE.schema)
    for name in TABLE.column_names:
        assert repr(found.column(name).to_pylist()) == repr(TABLE.column(name).to_pylist())


def test_the_exact_csv(tmp_path: Path) -> None:
    deliver(open_sink(tmp_path, format="csv"), TABLE)
    header = ",".join(f'"{name}"' for name in COLUMNS)
    rows = [",".join(fields[row] for _, _, fields, _ in COLUMNS.values()) for row in range(3)]
    assert only_file(tmp_path).read_bytes().decode() == "".join(f"{line}\n" for line in (header, *rows))


def test_any_csv_reader_understands_it(tmp_path: Path) -> None:
    deliver(open_sink(tmp_path, format="csv"), TABLE)
    with only_file(tmp_path).open(newline="", encoding="utf-8") as file:
        first, second, _ = csv.DictReader(file)
    assert first["text"] == NASTY
    assert second["text"] == ""
    assert first["money"] == "1234567890123456789012345678901234.5678"
    assert datetime.fromisoformat(first["zoned"]) == EPOCH_EVE.replace(tzinfo=UTC)


def test_the_exact_ndjson(tmp_path: Path) -> None:
    deliver(open_sink(tmp_path, format="ndjson"), TABLE)
    lines = [
        "{" + ",".join(f'"{name}":{texts[row]}' for name, (_, _, _, texts) in COLUMNS.items()) + "}\n"
        for row in range(3)
    ]
    shown = only_file(tmp_path).read_bytes().decode()
    # JSON lets one escape a control character in more than one way.
    assert shown == "".join(lines).replace("\\u001b", "\\u001b")


def test_any_json_reader_understands_it(tmp_path: Path) -> None:
    deliver(open_sink(tmp_path, format="ndjson"), TABLE)
    lines = only_file(tmp_path).read_bytes().decode().split("\n")
    assert lines.pop() == ""
    first, second, third = (json.loads(line, parse_float=Decimal) for line in lines)
    assert first["text"] == NASTY
    assert (second["text"], third["text"]) == ("", None)
    assert first["money"] == Decimal("1234567890123456789012345678901234.5678")
    assert second["big"] == -(2**63)
    assert list(first) == list(COLUMNS)


def test_lists_are_json_arrays(tmp_path: Path) -> None:
    lists = {
        name: pa.array([values, None, [], values[::-1]], pa.list_(kind))
        for name, (kind, values, _, _) in COLUMNS.items()
    }
    # Cut out of something larger, as a batch may be.
    table = pa.table({name: pa.concat_arrays([array, array]).slice(1, 6) for name, array in lists.items()})
    deliver(open_sink(tmp_path, format="ndjson"), table)
    texts = {name: texts for name, (_, _, _, texts) in COLUMNS.items()}
    whole = {name: f"[{','.join(each)}]" for name, each in texts.items()}
    back = {name: f"[{','.join(each[::-1])}]" for name, each in texts.items()}
    nothing, empty = dict.fromkeys(COLUMNS, "null"), dict.fromkeys(COLUMNS, "[]")
    lines = [
        "{" + ",".join(f'"{name}":{row[name]}' for name in COLUMNS) + "}\n"
        for row in (nothing, empty, back, whole, nothing, empty)
    ]
    assert only_file(tmp_path).read_bytes().decode() == "".join(lines)


def test_names_of_columns_are_escaped_too(tmp_path: Path) -> None:
    odd = {'a"b': [1], "c\nd": [2], "e\\f": [3], "größe, €": [4]}
    deliver(open_sink(tmp_path, format="ndjson"), pa.table(odd))
    deliver(open_sink(tmp_path, format="csv"), pa.table(odd), stream="as_csv")
    assert json.loads(only_file(tmp_path).read_text()) == {name: value for name, (value,) in odd.items()}
    with next((tmp_path / "out" / "as_csv").iterdir()).open(newline="", encoding="utf-8") as file:
        assert next(csv.reader(file)) == list(odd)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=20))
def test_every_text_survives_json(values: list[str | None]) -> None:
    lines = format_json_lines(pa.record_batch({"t": pa.array(values, pa.string())})).to_pybytes().decode().split("\n")
    assert [json.loads(line)["t"] for line in lines[:-1]] == values


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.none() | st.floats(width=64),
            st.none() | st.decimals(min_value=-(10**20), max_value=10**20, places=10, allow_nan=False),
            st.none() | st.integers(-62135596800 * 10**6, 253402300799 * 10**6 + 999999),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_every_number_and_time_survives_json(rows: list[tuple[float | None, Decimal | None, int | None]]) -> None:
    kinds = {"f": pa.float64(), "d": pa.decimal128(38, 10), "t": pa.timestamp("us", "UTC")}
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds.values())]
    lines = format_json_lines(pa.record_batch(arrays, names=list(kinds))).to_pybytes().decode().split("\n")[:-1]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for line, (number, decimal, micros) in zip(lines, rows, strict=True):
        found = json.loads(line, parse_float=str, parse_int=str)
        assert repr(float(found["f"]) if found["f"] is not None else None) == repr(number)
        assert (Decimal(found["d"]) if found["d"] is not None else None) == decimal
        moment = epoch + timedelta(microseconds=micros) if micros is not None else None
        assert (datetime.fromisoformat(found["t"]) if found["t"] is not None else None) == moment


@pytest.mark.parametrize("compression", [None, "none", "gzip", "zstd", "snappy"])
def test_parquet_is_compressed_as_asked(tmp_path: Path, compression: str | None) -> None:
    deliver(open_sink(tmp_path, compression=compression), TABLE)
    path = only_file(tmp_path)
    assert path.name.endswith("-0.parquet")
    column = pq.read_metadata(path).row_group(0).column(3)
    assert column.compression == {None: "ZSTD", "none": "UNCOMPRESSED"}.get(compression, str(compression).upper())


@pytest.mark.parametrize("format_", ["csv", "ndjson"])
@pytest.mark.parametrize(("compression", "ending"), [(None, ""), ("none", ""), ("gzip", ".gz"), ("zstd", ".zst")])
def test_text_is_compressed_as_asked(tmp_path: Path, format_: str, compression: str | None, ending: str) -> None:
    deliver(open_sink(tmp_path, format=format_, compression=compression), TABLE)
    deliver(open_sink(tmp_path, format=format_), TABLE, stream="plain")
    path = only_file(tmp_path)
    assert path.name.endswith(f"-0.{format_}{ending}")
    raw = path.read_bytes()
    if compression == "gzip":
        raw = gzip.decompress(raw)
    elif compression == "zstd":
        with pa.CompressedInputStream(pa.BufferReader(raw), "zstd") as stream:
            raw = stream.read()
    assert raw == next((tmp_path / "out" / "plain").iterdir()).read_bytes()


@pytest.mark.parametrize("format_", ["csv", "ndjson"])
def test_snappy_does_not_fit_text(tmp_path: Path, format_: str) -> None:
    with pytest.raises(InputError) as refused:
        open_sink(tmp_path, format=format_, compression="snappy").connect()
    assert str(refused.value) == (
        f"contract: sink.compression: snappy does not fit format {format_}\n"
        "Nothing was lost: the mark has not moved.\n"
        "Next: use none, gzip or zstd"
    )


@pytest.mark.parametrize("format_", ["parquet", "csv", "ndjson"])
def test_batches_without_rows_make_no_file(tmp_path: Path, format_: str) -> None:
    sink = open_sink(tmp_path, format=format_)
    empty = TABLE.to_batches()[0].slice(0, 0)
    sink.commit(after(None), "a1", [write(sink, after(None), [empty, empty])])
    assert not (tmp_path / "out" / "orders").exists()
    held = sink.held("orders")
    assert held is not None
    assert (held.position.number, held.rows) == (1, 0)


def test_a_header_once_in_each_file(tmp_path: Path) -> None:
    several = pa.Table.from_batches(TABLE.to_batches() * 3)
    deliver(open_sink(tmp_path, format="csv"), several)
    rows = list(csv.reader(io.StringIO(only_file(tmp_path).read_bytes().decode(), newline="")))
    assert len(rows) == 10
    assert rows.count(list(COLUMNS)) == 1

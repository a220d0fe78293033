"""Every type that a column can have: from Postgres into files and into the lake, compared with what Postgres prints.

The types come from `pg_type`, among them those of the extensions that the server has. A type that
links/postgres/types.py does not have, or of which tests/sources/type_values.py has no values, fails.

How what is read is compared with what is printed: numbers, dates and times as Python prints them (times without zeros
at the end, UTC as +00); floats by their bits; booleans as t and f; bytes in hex; lists element by element; everything
else is text and must be the same text.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.harness.postgres import PostgresServer
from tests.lake import writing_tables
from tests.lake.reading_tables import table_of
from tests.sinks.files.folder import deliver, only_file, open_sink
from tests.sources import tables
from tests.sources.test_postgres_keyset import WIDE, read, slices
from tests.sources.typed_table import Column, make

from penstock.lake.data_files import NumberRange, ScanFile
from penstock.lake.reading import LakeReader
from penstock.links.postgres.transactions import SETTINGS
from penstock.links.postgres.types import is_known_type
from penstock.sources.postgres.content import TableContent, postgres_type_of


@pytest.fixture(scope="module")
def typed(postgres_server: PostgresServer) -> Iterator[tuple[str, list[Column]]]:
    """A database with a table `t` that has a column of every type, and edge values in it."""
    url = postgres_server.database()
    yield url, make(url)
    postgres_server.drop(urlsplit(url).path.removeprefix("/"))


def printed(url: str, names: Sequence[str]) -> list[list[str | None]]:
    """What Postgres prints of each row, by the types' own output functions."""
    with psycopg.connect(url, autocommit=True) as db:
        for name, setting in SETTINGS.items():
            db.execute("SELECT set_config(%s, %s, false)", (name, setting))
        db.execute("SET client_encoding = 'UTF8'")
        result = db.pgconn.exec_(f"SELECT {', '.join(names)} FROM public.t ORDER BY id".encode())
        cells = ((result.get_value(row, place) for place in range(result.nfields)) for row in range(result.ntuples))
        return [[None if cell is None else cell.decode() for cell in row] for row in cells]


def elements(text: str) -> list[str | None]:
    """The elements of an array of one dimension, as it is printed."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,{}]+)', text)
    return [re.sub(r"\\(.)", r"\1", quoted) if not bare else None if bare == "NULL" else bare for quoted, bare in found]


def same(text: str | None, value: Any, type_: pa.DataType) -> bool:
    """Whether a value is what is printed; see above."""
    if text is None or value is None:
        return text is value
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        each = elements(text)
        return len(each) == len(value) and all(same(t, v, type_.value_type) for t, v in zip(each, value, strict=True))
    if pa.types.is_floating(type_):
        form = "<f" if type_ == pa.float32() else "<d"
        return struct.pack(form, value) == struct.pack(form, float(text))
    if pa.types.is_boolean(type_):
        return text == ("t" if value else "f")
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return text == rf"\x{value.hex()}"
    if pa.types.is_temporal(type_):
        return text == timed(value.isoformat(*([" "] if pa.types.is_timestamp(type_) else [])))
    return text == (format(value, "f") if isinstance(value, Decimal) else str(value))


def timed(text: str) -> str:
    return re.sub(r"(\.\d*?)0+(?=\+|$)", r"\1", text).replace("+00:00", "+00").replace(".+", "+").removesuffix(".")


def differences(columns: Sequence[Column], wanted: Sequence[Sequence[str | None]], got: pa.Table) -> list[str]:
    found = []
    for place, column in enumerate(columns):
        array = got.column(column.name)
        for row, value in enumerate(array.to_pylist()):
            if not same(wanted[row][place], value, array.type):
                found.append(f"{column.type}: {wanted[row][place]!r} came as {value!r} ({array.type})")
    return found


def test_every_type_of_the_server_has_a_form(typed: tuple[str, list[Column]]) -> None:
    url, columns = typed
    content = TableContent.read(tables.source(url, {"t": {}}).content("t"))
    bases = {column.name: postgres_type_of(column) for column in content.columns}
    unmapped = [f"{column.type} ({bases[column.name]})" for column in columns if not is_known_type(bases[column.name])]
    assert not unmapped, "links/postgres/types.py does not have"
    assert len(columns) > 200


def test_from_postgres_into_files_and_the_lake(typed: tuple[str, list[Column]], tmp_path: Path) -> None:
    url, columns = typed
    names = [column.name for column in columns]
    origin = tables.source(url, {"t": {}})
    [slice_] = slices(origin, "t", WIDE)
    arrived = read(origin, slice_).sort_by("id")
    wanted = printed(url, names)
    assert arrived.num_rows == len(wanted)
    assert differences(columns, wanted, arrived) == []
    lists = [field.name for field in arrived.schema if pa.types.is_list(field.type)]
    counted = tables.rows(url, f"SELECT {', '.join(f'cardinality({name})' for name in lists)} FROM t ORDER BY id")
    assert list(zip(*(pc.list_value_length(arrived[name]).to_pylist() for name in lists), strict=True)) == counted

    deliver(open_sink(tmp_path), arrived)
    in_files = pq.read_table(only_file(tmp_path))
    assert in_files.schema.equals(arrived.schema)
    assert differences(columns, wanted, in_files) == []

    lake = writing_tables.table_for(writing_tables.catalog(tmp_path), arrived.schema)
    writing_tables.landed(lake, [writing_tables.written(writing_tables.writer_for(lake), arrived)])
    # A time of day is text there, with all its digits.
    times = [place for place, column in enumerate(columns) if "time64" in str(arrived.schema.field(column.name).type)]
    lake_wanted = [[padded(cell) if place in times else cell for place, cell in enumerate(row)] for row in wanted]
    assert len(times) == 4
    assert differences(columns, lake_wanted, writing_tables.read(lake)) == []

    [task] = lake.scan().plan_files()
    piece = ScanFile(task.file.file_path, task.file.file_size_in_bytes, task.file.record_count, None, None)
    reader = LakeReader(io=lake.io, schema=lake.schema(), columns=("id", *names))
    again = table_of(reader, NumberRange(0, arrived.num_rows, (piece,)).part(0))
    assert differences(columns, lake_wanted, again) == []


def padded(text: str | None) -> str | None:
    """A time of day, or an array of them, with six digits after the point."""
    return text and re.sub(r":\d\d(?:\.(\d+))?(?=[,}]|$)", lambda m: f"{m[0].split('.')[0]}.{(m[1] or ''):0<6}", text)


def test_arrays_as_text_and_everything_that_may_not_fit_as_text(typed: tuple[str, list[Column]]) -> None:
    url, columns = typed
    wanted = printed(url, [column.name for column in columns])
    for options in ({"arrays": "text"}, {"unfit": "text"}):
        origin = tables.source(url, {"t": options})
        [slice_] = slices(origin, "t", WIDE)
        got = read(origin, slice_).sort_by("id")
        assert not any(pa.types.is_nested(field.type) for field in got.schema)
        assert differences(columns, wanted, got) == []
        if "unfit" in options:
            assert not any(pa.types.is_temporal(f.type) or pa.types.is_decimal(f.type) for f in got.schema)


@pytest.mark.parametrize(
    ("text", "value", "type_"),
    [
        ("1.50", Decimal("1.5"), pa.decimal128(2, 1)),
        ("-0", 0.0, pa.float64()),
        ("0.1", 0.10000000149011612, pa.float64()),
        ("{a,NULL}", ["a", "NULL"], pa.list_(pa.string())),
        ("{}", [None], pa.list_(pa.string())),
        ("t", False, pa.bool_()),
        ("", None, pa.string()),
        ("2024-01-01 00:00:00", datetime(2024, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC")),
    ],
)
def test_the_comparison_sees_differences(text: str, value: Any, type_: pa.DataType) -> None:
    assert not same(text, value, type_)

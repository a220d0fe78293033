"""Names and texts of any Unicode, texts of which nobody knows the encoding, and types that a worker has not met yet."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.harness.postgres import PostgresServer
from tests.sources import tables
from tests.sources.tables import execute
from tests.sources.test_postgres_keyset import WIDE, read, slices

from penstock.errors import StreamFailed

NAMES = ['a"b', "größer 😀", "%s {0} %(x)s", "new\nline", " blanks ", "SELECT", "_penstock_misshapen", "\\'", "ß" * 31]


def all_of(url: str, **options: Any) -> pa.Table:
    origin = tables.source(url, {"t": options})
    [slice_] = slices(origin, "t", WIDE)
    return read(origin, slice_).sort_by("id")


def test_columns_of_any_name(database: str) -> None:
    quoted = ['"' + name.replace('"', '""') + '"' for name in NAMES]
    types = ["text", "int[]", "numeric(5,2)", "timestamptz", "uuid", "text[]", "int[]", "date", "date[]"]
    execute(
        database,
        f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(f'{q} {t}' for q, t in zip(quoted, types, strict=True))})",
        f"INSERT INTO t (id, {quoted[0]}, {quoted[1]}, {quoted[8]}) VALUES (1, 'x', '{{1}}', '{{2024-01-01}}')",
    )
    got = all_of(database, cursor="id", unique=True)
    assert got.column_names == ["id", *NAMES]
    assert (got.column('a"b').to_pylist(), got.column("größer 😀").to_pylist()) == (["x"], [[1]])
    execute(
        database, f"INSERT INTO t (id, {quoted[8]}) VALUES (2, '{{infinity}}'); UPDATE t SET {quoted[3]} = 'infinity'"
    )
    with pytest.raises(StreamFailed, match=r"has rows whose new\nline, ß{31} is infinity"):
        all_of(database)


def test_every_character(database: str) -> None:
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, c text, many text[])",
        # Surrogates are no characters, and Postgres takes no zero.
        "INSERT INTO t SELECT g, chr(g), ARRAY[chr(g), NULL, chr(g) || '\"\\,{}'] FROM generate_series(1, 1114111) g"
        " WHERE g NOT BETWEEN 55296 AND 57343 AND (g < 70000 OR g % 37 = 0 OR g > 1114000)",
    )
    got = all_of(database)
    assert got.column("c").to_pylist() == [chr(id_) for id_ in got.column("id").to_pylist()]
    assert got.column("many").to_pylist() == [[c, None, c + '"\\,{}'] for c in got.column("c").to_pylist()]
    assert got.num_rows > 90_000


def test_types_that_came_after_the_worker_had_begun(database: str) -> None:
    """The driver learns the types of a database once in a process."""
    execute(database, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    assert all_of(database).num_rows == 1
    execute(
        database,
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN price AS numeric(5,2); CREATE DOMAIN ints AS int[]",
        "CREATE TYPE pair AS (a int, b mood); CREATE TYPE moods AS RANGE (subtype = mood)",
        "ALTER TABLE t ADD m mood DEFAULT 'sad', ADD ms mood[] DEFAULT '{sad,NULL}', ADD p price DEFAULT 1.5,"
        " ADD ps price[] DEFAULT '{1.5}', ADD i ints DEFAULT '{1}', ADD pair pair DEFAULT '(1,sad)',"
        " ADD pairs pair[] DEFAULT '{\"(1,sad)\"}', ADD r moods DEFAULT '[sad,glad]'",
    )
    [row] = all_of(database).to_pylist()
    assert [str(value) for value in row.values()] == [
        *("1", "sad", "['sad', None]", "1.50", "[Decimal('1.50')]", "[1]"),
        *("(1,sad)", "['(1,sad)']", "[sad,glad]"),
    ]


class TestAnUnknownEncoding:
    @pytest.fixture
    def bytes_(self, postgres_server: PostgresServer, database: str) -> Iterator[str]:
        """A database that takes any bytes for text."""
        name = f"bytes_{database.rpartition('/')[2]}"
        execute(database, f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        yield postgres_server.url(name)
        postgres_server.drop(name)

    def bytes_into(self, url: str, statement: bytes) -> None:
        with psycopg.connect(url, autocommit=True) as db:
            result = db.pgconn.exec_(statement)
            assert not result.error_message, result.error_message

    def test_utf8_is_read_and_anything_else_stops_the_slice(self, bytes_: str) -> None:
        """The server looks at what it sends, because we ask for UTF-8."""
        execute(bytes_, 'CREATE TABLE t (id int PRIMARY KEY, good text, c varchar(9), many text[], m "char")')
        self.bytes_into(bytes_, "INSERT INTO t VALUES (1, 'größer 😀', 'é', '{é}')".encode())
        assert all_of(bytes_).to_pylist() == [{"id": 1, "good": "größer 😀", "c": "é", "many": ["é"], "m": None}]
        for wrong in (b"good = 'caf\xe9'", b"c = 'caf\xe9'", b"many = '{caf\xe9}'"):
            self.bytes_into(bytes_, b"TRUNCATE t; INSERT INTO t VALUES (1, 'x'); UPDATE t SET " + wrong)
            for arrays in ("list", "text"):
                with pytest.raises(StreamFailed) as failed:
                    all_of(bytes_, arrays=arrays)
                assert 'public.t cannot be read: invalid byte sequence for encoding "UTF8": 0xe9' in failed.value.what
        assert all_of(bytes_, columns=["id", "good", "c"]).num_rows == 1

    def test_a_view_that_converts(self, bytes_: str) -> None:
        execute(bytes_, "CREATE TABLE raw (id int PRIMARY KEY, c text)")
        self.bytes_into(bytes_, b"INSERT INTO raw VALUES (1, 'caf\xe9')")
        turned = "convert_from(convert(convert_to(c, 'SQL_ASCII'), 'LATIN1', 'UTF8'), 'SQL_ASCII')"
        execute(bytes_, f"CREATE VIEW t AS SELECT id, {turned} AS c FROM raw")
        assert all_of(bytes_).to_pylist() == [{"id": 1, "c": "café"}]

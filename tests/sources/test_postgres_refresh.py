"""Full refreshes: one snapshot for all parts, whatever happens to the table meanwhile."""

from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.harness.postgres import PostgresServer
from tests.sources.tables import execute, rows, source
from tests.sources.test_postgres_keyset import WIDE, read, slices

from penstock.core.slices import Kind
from penstock.ports import Budget, Reader

LARGE = (
    "CREATE TABLE t (id int, pad text)",
    "INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 40000) g",
)
MANY = Budget(bytes=1 << 30, workers=2)


def ids(reader: Reader, part: Any) -> list[int]:
    with reader.open(part) as batches:
        found: list[int] = batches.read_all()["id"].to_pylist()
    return found


def test_one_slice_per_run(database: str) -> None:
    execute(database, "CREATE TABLE t (id int); INSERT INTO t VALUES (1), (1)")
    origin = source(database, {"t": {}})
    [first] = slices(origin, "t", WIDE, run="one")
    assert first.kind is Kind.REFRESH
    assert first.upto
    assert first.upto.document == {"refresh": "one"}
    assert origin.describe(first.upto) == "read whole by run one"
    assert slices(origin, "t", WIDE, first.position, run="one") == []
    [second] = slices(origin, "t", WIDE, first.position, run="two")
    origin.accept("t", second.position, origin.content("t"))
    assert read(origin, second)["id"].to_pylist() == [1, 1]


def test_an_empty_table_is_a_slice_without_rows(database: str) -> None:
    execute(database, "CREATE TABLE t (id int, at timestamptz)")
    origin = source(database, {"t": {}})
    [slice_] = slices(origin, "t", WIDE)
    table = read(origin, slice_)
    assert table.num_rows == 0
    assert table.schema == pa.schema([("id", pa.int32()), ("at", pa.timestamp("us", "UTC"))])


def test_all_parts_see_one_moment(database: str) -> None:
    execute(database, *LARGE)
    origin = source(database, {"t": {}})
    [slice_] = slices(origin, "t", MANY)
    with origin.reading(slice_) as reading:
        assert len(reading.parts) == 4
        got = ids(reading.reader, reading.parts[0])
        # Rows move between blocks, go, and come, while the parts are read.
        execute(
            database,
            "UPDATE t SET pad = repeat('y', 1200) WHERE id % 3 = 0",
            "DELETE FROM t WHERE id % 5 = 0",
            "VACUUM t",
            "INSERT INTO t SELECT g, 'new' FROM generate_series(100001, 110000) g",
        )
        for part in reading.parts[1:]:
            got += ids(reading.reader, part)
    assert sorted(got) == list(range(1, 40001))


@pytest.mark.parametrize("statement", ["TRUNCATE t", "VACUUM FULL t", "ALTER TABLE t ADD more int"])
def test_the_table_cannot_be_rewritten_meanwhile(database: str, statement: str) -> None:
    execute(database, *LARGE)
    origin = source(database, {"t": {}})
    [slice_] = slices(origin, "t", MANY)
    with origin.reading(slice_) as reading:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            execute(database, "SET lock_timeout = '100ms'", statement)
        assert sum(len(ids(reading.reader, part)) for part in reading.parts) == 40000
    execute(database, "SET lock_timeout = '5s'", statement)


def test_the_snapshot_ends_with_the_reading(database: str) -> None:
    execute(database, "CREATE TABLE t (id int)")
    held = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
    origin = source(database, {"t": {}})
    [slice_] = slices(origin, "t", WIDE)
    with origin.reading(slice_):
        assert rows(database, held) == [(1,)]
    assert rows(database, held) == [(0,)]
    with pytest.raises(ZeroDivisionError), origin.reading(slice_):
        raise ZeroDivisionError
    assert rows(database, held) == [(0,)]


@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIEW w AS SELECT id FROM t",
        "CREATE MATERIALIZED VIEW w AS SELECT id FROM t",
        "CREATE TABLE w (id int) PARTITION BY HASH (id); CREATE TABLE w0 PARTITION OF w FOR VALUES WITH"
        " (MODULUS 2, REMAINDER 0); CREATE TABLE w1 PARTITION OF w FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
        " INSERT INTO w SELECT id FROM t",
        "CREATE TABLE w (id int); CREATE TABLE w0 () INHERITS (w); INSERT INTO w0 SELECT id FROM t",
    ],
)
def test_what_is_not_a_plain_table(database: str, made: str) -> None:
    execute(database, *LARGE, made)
    origin = source(database, {"w": {}})
    [slice_] = slices(origin, "w", MANY)
    got = read(origin, slice_)["id"].to_pylist()
    assert sorted(got) == list(range(1, 40001))


def test_a_role_that_may_read_some_columns_only(database: str, postgres_server: PostgresServer) -> None:
    execute(
        database,
        *LARGE,
        "DO $$ BEGIN CREATE ROLE partial LOGIN PASSWORD 'secret'; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "GRANT SELECT (id) ON t TO partial",
    )
    url = postgres_server.url(database.rpartition("/")[2], user="partial", password="secret")
    origin = source(url, {"t": {"columns": ["id"]}})
    [slice_] = slices(origin, "t", MANY)
    with origin.reading(slice_) as reading:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            execute(database, "SET lock_timeout = '100ms'", "TRUNCATE t")
        got = [row for part in reading.parts for row in ids(reading.reader, part)]
    assert len(got) == 40000


def test_expected_rows_come_from_the_statistics(database: str) -> None:
    execute(database, *LARGE, "ANALYZE t")
    origin = source(database, {"t": {}})
    content = origin.content("t")
    ceiling = origin.ceiling("t", content, "run")
    assert ceiling == {"run": "run"}
    planned = origin.plan("t", content, None, ceiling, MANY)
    assert planned
    assert planned.rows == 40000
    assert planned.plan["parts"] == 4

"""What comes out of a reader: Arrow types, values that do not fit, errors that a worker can send home."""

import gc
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.sources.tables import execute, rows, source
from tests.sources.test_postgres_keyset import WIDE, read, slices

from penstock.core.slices import Slice
from penstock.errors import ConnectionFailed, PenstockError, StreamFailed, StreamRefused
from penstock.ports import Budget, Reading
from penstock.sources.postgres import PostgresSource
from penstock.sources.postgres.reader import BATCH_BYTES, PostgresReader


@contextmanager
def reading_of(url: str, **options: Any) -> Iterator[tuple[PostgresSource, Slice, Reading]]:
    """The table `t` by its key `id`, in one slice."""
    origin = source(url, {"t": {"cursor": "id", "unique": True, **options}})
    [slice_] = slices(origin, "t", WIDE)
    with origin.reading(slice_) as reading:
        yield origin, slice_, reading


def table_of(url: str, **options: Any) -> pa.Table:
    with reading_of(url, **options) as (origin, slice_, _):
        return read(origin, slice_)


LATEST = datetime.max.replace(tzinfo=UTC).replace(tzinfo=None)
COLUMNS: dict[str, tuple[str, str, pa.DataType, Any]] = {
    "small": ("smallint", "-7", pa.int16(), -7),
    "number": ("int", "70000", pa.int32(), 70000),
    "big": ("bigint", "9007199254740993", pa.int64(), 9007199254740993),
    "yes": ("bool", "true", pa.bool_(), True),
    "single": ("real", "1.5", pa.float32(), 1.5),
    "double": ("float8", "0.1", pa.float64(), 0.1),
    "money": ("numeric(12,2)", "1234567890.12", pa.decimal128(12, 2), Decimal("1234567890.12")),
    "whole": ("numeric(5)", "12345", pa.decimal128(5, 0), Decimal("12345")),
    "widest": ("numeric(38,10)", "-1.5", pa.decimal128(38, 10), Decimal("-1.5000000000")),
    "too_wide": ("numeric(39,1)", "1.5", pa.string(), "1.5"),
    "odd_scale": ("numeric(3,-2)", "12345", pa.string(), "12300"),
    "free": ("numeric", "1.50000000000000000000000000000000000000000001", pa.string(), None),
    "nothing_free": ("numeric", "'NaN'", pa.string(), "NaN"),
    "words": ("text", "'é''\\ü'", pa.string(), "é'\\ü"),
    "short": ("varchar(9)", "'x'", pa.string(), "x"),
    "padded": ("char(4)", "'x'", pa.string(), "x   "),
    "plain": ("json", '\'{"a" :  1.10, "a": 2}\'', pa.string(), '{"a" :  1.10, "a": 2}'),
    "parsed": ("jsonb", '\'{"b": 1.10, "a": 12345678901234567890}\'', pa.string(), None),
    "code": ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", pa.string(), None),
    "raw": ("bytea", "'\\x00ff'", pa.binary(), b"\x00\xff"),
    "day": ("date", "'2024-02-29'", pa.date32(), date(2024, 2, 29)),
    "hour": ("time", "'23:59:59.999999'", pa.time64("us"), time(23, 59, 59, 999999)),
    "there": ("timestamp", "'9999-12-31 23:59:59.999999'", pa.timestamp("us"), LATEST),
    "then": (
        *("timestamptz(3)", "'0001-01-01 00:00Z'", pa.timestamp("us", "UTC")),
        datetime.min.replace(tzinfo=UTC),
    ),
    "span": ("interval", "'1 day 2 hours'", pa.string(), "P1DT2H"),
    "list": ("int[]", "'{1,NULL,3}'", pa.list_(pa.int32()), [1, None, 3]),
    "zoned": ("timetz", "'10:00+02'", pa.string(), "10:00:00+02"),
    "net": ("inet", "'10.0.0.1/8'", pa.string(), "10.0.0.1/8"),
    "range": ("int4range", "'[1,3)'", pa.string(), "[1,3)"),
    "letter": ('"char"', "'x'", pa.string(), "x"),
    "cash": ("money", "12.5", pa.string(), None),
}


class TestTypes:
    def test_every_type_of_the_map_and_some_beyond(self, database: str) -> None:
        columns = ", ".join(f'"{name}" {said[0]}' for name, said in COLUMNS.items())
        values = ", ".join(said[1] for said in COLUMNS.values())
        execute(
            database,
            f"CREATE TABLE t (id int PRIMARY KEY, {columns})",
            f"INSERT INTO t VALUES (1, {values})",
            "INSERT INTO t (id) VALUES (2)",
        )
        table = table_of(database)
        assert table.schema == pa.schema([("id", pa.int32()), *((name, said[2]) for name, said in COLUMNS.items())])
        first, empty = sorted(table.to_pylist(), key=lambda row: int(row["id"]))
        assert all(value is None for name, value in empty.items() if name != "id")
        wanted = {name: said[3] for name, said in COLUMNS.items() if said[3] is not None} | {
            "free": "1.50000000000000000000000000000000000000000001",
            "parsed": '{"a": 12345678901234567890, "b": 1.10}',
            "code": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "cash": "$12.50",
        }
        assert {name: first[name] for name in COLUMNS} == wanted

    def test_no_rows_have_a_schema_too(self, database: str) -> None:
        execute(database, "CREATE TABLE t (id int PRIMARY KEY, at timestamptz, price numeric(5,2))")
        execute(database, "INSERT INTO t VALUES (1)")
        with reading_of(database) as (origin, slice_, _):
            execute(database, "DELETE FROM t")
            table = read(origin, slice_)
        assert table.num_rows == 0
        assert table.schema.field("price").type == pa.decimal128(5, 2)

    def test_a_row_security_that_comes_to_hide_rows_is_an_error(self, database: str) -> None:
        execute(database, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
        with reading_of(database) as (_, __, reading):
            execute(
                database,
                "ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
                "DO $$ BEGIN CREATE ROLE owner_of_t LOGIN PASSWORD 'secret';"
                " EXCEPTION WHEN duplicate_object THEN NULL; END $$",
                "ALTER TABLE t OWNER TO owner_of_t",
            )
            assert isinstance(reading.reader, PostgresReader)
            reader = elsewhere(reading.reader, "user=owner_of_t password=secret")
            with pytest.raises(StreamRefused, match="row-level security policy"):
                reader.open(reading.parts[0]).read_all()


def elsewhere(reader: PostgresReader, said: str) -> PostgresReader:
    """A reader with another conninfo."""
    return replace(reader, target=replace(reader.target, conninfo=f"{reader.target.conninfo} {said}"))


class TestBatches:
    def test_batches_are_bounded_in_bytes(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (id int PRIMARY KEY, wide text)",
            "INSERT INTO t SELECT g, repeat('x', 1000000) FROM generate_series(1, 80) g",
        )
        with reading_of(database) as (_, __, reading):
            everything = replace(reading.parts[0], terms='{"after":null,"upto":null}')
            with reading.reader.open(everything) as batches:
                sizes = [batch.nbytes for batch in batches]
        assert sum(sizes) > 80_000_000
        assert max(sizes) < BATCH_BYTES + 2_000_000

    def test_a_reader_that_is_let_go_of_frees_its_connection(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (id int PRIMARY KEY, wide text)",
            "INSERT INTO t SELECT g, repeat('x', 1000000) FROM generate_series(1, 60) g",
        )
        ours = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock (penstock reads)'"
            " AND query LIKE 'COPY%'"
        )
        with reading_of(database) as (_, __, reading):
            batches = reading.reader.open(reading.parts[0])
            batches.read_next_batch()
            assert rows(database, ours) == [(1,)]
            batches.close()
            del batches
            gc.collect()
            assert rows(database, ours) == [(0,)]

    def test_a_reader_is_small_and_shows_no_secret(self, database: str) -> None:
        execute(database, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
        with reading_of(database) as (origin, _, reading):
            assert len(pickle.dumps(reading)) < 4096
            shown = repr(reading) + repr(origin) + str(origin.__dict__)
        assert database not in shown
        assert "password=" not in shown


class TestValuesThatDoNotFit:
    @pytest.mark.parametrize(
        ("type_", "value"),
        [
            ("timestamptz", "infinity"),
            ("timestamptz", "-infinity"),
            ("timestamptz", "10000-01-01 00:00Z"),
            ("timestamptz", "0001-12-31 23:59Z BC"),
            ("timestamp", "infinity"),
            ("timestamp", "0001-12-31 BC"),
            ("timestamp(0)", "10000-01-01"),
            ("date", "infinity"),
            ("date", "10000-01-01"),
            ("date", "0044-03-15 BC"),
            ("time", "24:00"),
            ("numeric(12,2)", "NaN"),
        ],
    )
    def test_each_stops_the_slice_and_is_named(self, database: str, type_: str, value: str) -> None:
        execute(
            database,
            f"CREATE TABLE t (id int PRIMARY KEY, good timestamptz, bad {type_}, fine date)",
            "INSERT INTO t SELECT g, now(), NULL, now() FROM generate_series(1, 100) g",
            f"UPDATE t SET bad = '{value}' WHERE id = 77",
        )
        with pytest.raises(StreamFailed) as failed:
            table_of(database)
        back = pickle.loads(pickle.dumps(failed.value))
        assert (type(back), str(back)) == (StreamFailed, str(failed.value))
        assert str(back) == (
            "shop/t: public.t has rows whose bad is infinity, NaN, 24:00, not in years 1 to 9999 or not a plain list, "
            "which Arrow cannot hold (one of them: id 77)\n"
            "Nothing was lost: the mark has not moved.\n"
            "Next: correct these rows and run again; or set `unfit: null` or `unfit: text` on the stream and drop "
            "the open slice with `penstock state recover FILE --stream t`"
        )
        assert table_of(database, columns=["id", "good", "fine"]).num_rows == 100

    def test_all_such_columns_are_named(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (id int PRIMARY KEY, a date, b timestamp, c date)",
            "INSERT INTO t VALUES (1, 'infinity', now(), NULL), (2, now(), '-infinity', now())",
        )
        with pytest.raises(StreamFailed, match="rows whose a, b is infinity"):
            table_of(database)


class TestFailures:
    def failure(self, reading: Reading, reader: PostgresReader) -> PenstockError:
        with pytest.raises(PenstockError) as failed:
            reader.open(reading.parts[0]).read_all()
        assert str(pickle.loads(pickle.dumps(failed.value))) == str(failed.value)
        assert (failed.value.pipeline, failed.value.stream) == ("shop", "t")
        return failed.value

    @pytest.fixture
    def reading(self, database: str) -> Iterator[Reading]:
        execute(database, "CREATE TABLE t (id int PRIMARY KEY, c text); INSERT INTO t VALUES (1)")
        with reading_of(database) as (_, __, reading):
            yield reading

    @pytest.fixture
    def reader(self, reading: Reading) -> PostgresReader:
        assert isinstance(reading.reader, PostgresReader)
        return reading.reader

    def test_a_column_that_goes_while_a_slice_is_read(
        self, database: str, reading: Reading, reader: PostgresReader
    ) -> None:
        execute(database, "ALTER TABLE t DROP c")
        error = self.failure(reading, reader)
        assert isinstance(error, StreamRefused)
        assert error.what == 'public.t has changed while it was read: column "c" does not exist'

    def test_a_worker_that_cannot_connect(self, reading: Reading, reader: PostgresReader) -> None:
        error = self.failure(reading, elsewhere(reader, "port=1"))
        assert isinstance(error, ConnectionFailed)
        assert error.what == f"cannot connect to PostgreSQL at {reader.where}: Connection refused"

    def test_a_worker_that_meets_another_database(self, reading: Reading, reader: PostgresReader) -> None:
        error = self.failure(reading, elsewhere(reader, "dbname=postgres"))
        assert isinstance(error, ConnectionFailed)
        assert error.what.endswith("was lost: another database answers there now")

    def test_a_snapshot_that_is_gone(self, reading: Reading, reader: PostgresReader) -> None:
        error = self.failure(reading, replace(reader, snapshot="00000003-0000001B-1"))
        assert isinstance(error, StreamFailed)
        assert "00000003-0000001B-1" in error.what

    def test_a_statement_that_takes_too_long(self, database: str, reading: Reading, reader: PostgresReader) -> None:
        execute(
            database,
            "INSERT INTO t SELECT g, repeat(md5(g::text), 100) FROM generate_series(2, 30000) g",
        )
        part = replace(reading.parts[0], terms='{"after":null,"upto":null}')
        hasty = replace(reader, statement_timeout=0.001)
        error = self.failure(Reading(hasty, [part]), hasty)
        assert isinstance(error, StreamFailed)
        assert error.what.startswith("public.t: the server ended a statement: canceling statement due to")
        assert "statement_timeout" in error.next_step

    def test_a_server_that_ends_the_connection(self, database: str) -> None:
        execute(database, "CREATE TABLE u (id int PRIMARY KEY, c text)")
        execute(database, "INSERT INTO u SELECT g, repeat('x', 1000000) FROM generate_series(1, 90) g")
        origin = source(database, {"u": {"cursor": "id", "unique": True}})
        [slice_] = slices(origin, "u", Budget(bytes=1 << 30))
        with origin.reading(slice_) as reading:
            batches = reading.reader.open(reading.parts[0])
            batches.read_next_batch()
            execute(
                database,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY%'",
            )
            with pytest.raises(ConnectionFailed) as lost:
                batches.read_all()
        assert "was lost" in lost.value.what

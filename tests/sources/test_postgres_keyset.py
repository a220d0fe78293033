"""Keyset streams on a real server: ties, keys of many types, odd names, budgets, marks that do not fit."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.sources.tables import ORDERS, execute, rows, source

from penstock.core.content import Content
from penstock.core.marks import Mark, Position
from penstock.core.slices import Slice, following
from penstock.errors import StreamRefused
from penstock.ports import Budget
from penstock.sources.postgres import PostgresSource

WIDE = Budget(bytes=1 << 30, workers=2)


def read(origin: PostgresSource, slice_: Slice) -> pa.Table:
    with origin.reading(slice_) as reading:
        tables = []
        for part in reading.parts:
            with reading.reader.open(part) as batches:
                tables.append(batches.read_all())
    return pa.concat_tables(tables)


def slices(
    origin: PostgresSource, stream: str, budget: Budget, last: Position | None = None, run: str = "run"
) -> list[Slice]:
    """What a run plans, without reading it."""
    content = origin.content(stream)
    ceiling = origin.ceiling(stream, content, run)
    planned: list[Slice] = []
    while ceiling is not None:
        proposal = origin.plan(stream, content, last.mark if last else None, ceiling, budget)
        if proposal is None:
            break
        planned.append(
            following(
                last,
                pipeline="shop",
                stream=stream,
                upto=proposal.upto,
                content=content,
                kind=proposal.kind,
                plan=proposal.plan,
            )
        )
        last = planned[-1].position
    return planned


def key(slice_: Slice) -> list[str]:
    assert slice_.upto
    found: list[str] = slice_.upto.document["key"]
    return found


def delivered(url: str, stream: str, budget: Budget = WIDE, **options: Any) -> list[dict[str, Any]]:
    """Every row that a run moves."""
    origin = source(url, {stream: options})
    return [row for slice_ in slices(origin, stream, budget) for row in read(origin, slice_).to_pylist()]


class TestTies:
    def test_slices_and_parts_far_smaller_than_a_tie(self, database: str) -> None:
        execute(
            database,
            ORDERS,
            "INSERT INTO orders (updated_at) SELECT CASE WHEN g BETWEEN 500 AND 3000 THEN '2024-02-02Z'"
            " ELSE timestamptz '2024-02-02Z' + (g - 1000) * interval '1 second' END"
            " FROM generate_series(1, 3500) g",
        )
        origin = source(database, {"orders": {"cursor": "updated_at", "tiebreaker": "id", "columns": ["id"]}})
        # Rows said to be large make parts of eight rows.
        planned = slices(origin, "orders", Budget(bytes=100 << 20, row_bytes=float(1 << 20), workers=3))
        assert [json.loads(slice_.plan)["rows"] for slice_ in planned] == [100] * 35
        got: list[int] = []
        for slice_ in planned:
            with origin.reading(slice_) as reading:
                assert len(reading.parts) == 6
            got += read(origin, slice_)["id"].to_pylist()
        assert sorted(got) == [row[0] for row in rows(database, "SELECT id FROM orders ORDER BY id")]

    def test_without_an_index_the_order_is_the_keys_all_the_same(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (c int NOT NULL, id int PRIMARY KEY);"
            "INSERT INTO t SELECT g / 10, g FROM generate_series(1, 1000) g ORDER BY md5(g::text)",
        )
        origin = source(database, {"t": {"cursor": "c", "tiebreaker": "id", "index": "optional"}})
        [slice_] = slices(origin, "t", Budget(bytes=1 << 30, row_bytes=float(1 << 20), workers=2))
        with origin.reading(slice_) as reading:
            parts = [reading.reader.open(part).read_all()["id"].to_pylist() for part in reading.parts]
        assert json.loads(slice_.plan)["rows"] == 1000
        assert [240 < len(part) < 260 for part in parts] == [True] * 4
        assert [sorted(part) for part in parts] == [list(range(part[0], part[-1] + 1)) for part in map(sorted, parts)]
        assert sorted(row for part in parts for row in part) == list(range(1, 1001))

    def test_a_composite_tiebreaker(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE lines (a int, b text, at date NOT NULL, PRIMARY KEY (a, b));"
            "CREATE INDEX ON lines (at, a, b);"
            "INSERT INTO lines SELECT g % 7, 'b' || g, '2024-01-01' FROM generate_series(1, 500) g",
        )
        got = delivered(database, "lines", replace(WIDE, rows=13), cursor="at", tiebreaker=["a", "b"])
        assert sorted((row["a"], row["b"]) for row in got) == sorted(rows(database, "SELECT a, b FROM lines"))


class TestKeysOfManyTypes:
    @pytest.mark.parametrize(
        ("type_", "value"),
        [
            ("text", "chr(65 + g % 26) || '\\\\ ''\" ' || g"),
            ("varchar(20)", "'é' || g"),
            ("char(8)", "g::text"),
            ("uuid", "md5(g::text)::uuid"),
            ("timestamp(3)", "timestamp '2024-01-01' + g * interval '1.001 seconds'"),
            ("timestamptz", "timestamptz '2024-03-31 01:00Z' + g * interval '31.000001 minutes'"),
            ("date", "date '0099-12-01' + g"),
            ("numeric", "(g - 50) * 1.000000000000000000000000000001"),
            ("numeric(12,2)", "(g - 50) / 8.0"),
            ("double precision", "(g - 50) / 3.0"),
            ("real", "(g - 50) / 3.0"),
            ("interval", "g * interval '1 month 3 days -00:00:07.5'"),
            ("bytea", "decode(md5(g::text), 'hex')"),
            ("inet", "'10.0.0.0'::inet + g"),
            ("mood", "(enum_range(NULL::mood))[1 + g % 3]"),
            ("int[]", "ARRAY[g % 5, g]"),
            ("boolean", "g % 2 = 0"),
        ],
    )
    def test_every_row_comes_once(self, database: str, type_: str, value: str) -> None:
        execute(
            database,
            "CREATE TYPE mood AS ENUM ('so', 'la', 'ti')",
            f"CREATE TABLE t (c {type_} NOT NULL, id int PRIMARY KEY); CREATE INDEX ON t (c, id)",
            f"INSERT INTO t SELECT {value}, g FROM generate_series(1, 100) g",
        )
        got = delivered(database, "t", replace(WIDE, rows=30), cursor="c", tiebreaker="id", columns=["id"])
        assert sorted(row["id"] for row in got) == list(range(1, 101))

    @pytest.mark.parametrize(
        ("type_", "value", "setting", "text"),
        [
            ("timestamptz", "2024-03-04 05:06:07.123456Z", "DateStyle = 'SQL, DMY'", None),
            ("timestamptz", "2024-03-04 05:06:07.123456Z", "TimeZone = 'Asia/Tokyo'", None),
            ("double precision", "0.1234567890123456", "extra_float_digits = -5", "0.1234567890123456"),
            ("interval", "1 month -2 days", "IntervalStyle = 'sql_standard'", "P1M-2D"),
            ("bytea", "\\x6162", "bytea_output = 'escape'", "\\x6162"),
        ],
    )
    def test_keys_read_the_same_whatever_is_set_for_the_database(
        self, database: str, type_: str, value: str, setting: str, text: str | None
    ) -> None:
        name = database.rpartition("/")[2]
        execute(
            database,
            f"CREATE TABLE t (id {type_} PRIMARY KEY); INSERT INTO t VALUES ('{value}')",
            f'ALTER DATABASE "{name}" SET {setting}',
        )
        origin = source(database, {"t": {"cursor": "id", "unique": True}})
        [slice_] = slices(origin, "t", WIDE)
        assert key(slice_) == [text or "2024-03-04 05:06:07.123456+00"]
        assert read(origin, slice_).num_rows == 1

    def test_keys_are_kept_as_text_to_the_last_digit(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (c numeric NOT NULL, id bigint PRIMARY KEY); CREATE INDEX ON t (c, id)",
            "INSERT INTO t VALUES (12345678901234567890.12345678901234567890, 9007199254740993)",
        )
        origin = source(database, {"t": {"cursor": "c", "tiebreaker": "id"}})
        [slice_] = slices(origin, "t", WIDE)
        assert slice_.upto
        kept = {name: slice_.upto.document[name] for name in ("key", "columns", "types", "unique")}
        assert kept == {
            "key": ["12345678901234567890.12345678901234567890", "9007199254740993"],
            "columns": ["c", "id"],
            "types": ["numeric", "bigint"],
            "unique": False,
        }
        assert origin.describe(slice_.upto) == (
            "up to c 12345678901234567890.12345678901234567890, id 9007199254740993"
        )

    @pytest.mark.parametrize(
        ("type_", "value"),
        [("timestamptz", "infinity"), ("date", "infinity"), ("numeric", "NaN"), ("float8", "Infinity")],
    )
    def test_a_cursor_beyond_all_others_is_refused(self, database: str, type_: str, value: str) -> None:
        execute(
            database,
            f"CREATE TABLE t (c {type_} NOT NULL, id int PRIMARY KEY); CREATE INDEX ON t (c, id)",
            f"INSERT INTO t VALUES ('{value}', 1)",
        )
        origin = source(database, {"t": {"cursor": "c", "tiebreaker": "id"}})
        with pytest.raises(StreamRefused) as refused:
            slices(origin, "t", WIDE)
        assert refused.value.what == (f"public.t has rows whose cursor c is {value}: no later row could follow them")
        assert refused.value.next_step == f"correct the rows where c is {value}"


class TestNames:
    def test_names_that_need_quotes(self, database: str) -> None:
        execute(
            database,
            'CREATE SCHEMA "Lager.1"',
            'CREATE TABLE "Lager.1"."Größe ""x""" (t int PRIMARY KEY, "Zeit {0} %s" date NOT NULL, n int);'
            'CREATE INDEX ON "Lager.1"."Größe ""x""" ("Zeit {0} %s", "t");'
            'INSERT INTO "Lager.1"."Größe ""x""" SELECT g, \'2024-01-01\', g FROM generate_series(1, 20) g',
        )
        got = delivered(
            database,
            "sizes",
            replace(WIDE, rows=6),
            table='"Lager.1"."Größe ""x"""',
            cursor="Zeit {0} %s",
            tiebreaker="t",
        )
        assert sorted(row["t"] for row in got) == list(range(1, 21))
        assert list(got[0]) == ["t", "Zeit {0} %s", "n"]

    @pytest.mark.parametrize("name", ["n", "k0", "cuts", "x", "last", "int8", "t", "count", "_penstock_outside"])
    def test_columns_named_like_our_own_words(self, database: str, name: str) -> None:
        execute(
            database,
            f'CREATE TABLE "{name}" (a int NOT NULL, "{name}" int PRIMARY KEY, ts timestamptz DEFAULT now());'
            f'CREATE INDEX ON "{name}" (a, "{name}");'
            f'INSERT INTO "{name}" SELECT 1, g FROM generate_series(1, 20) g',
        )
        got = delivered(database, name, replace(WIDE, rows=6), cursor="a", tiebreaker=name)
        assert sorted(row[name] for row in got) == list(range(1, 21))

    def test_a_table_of_another_schema(self, database: str) -> None:
        execute(
            database,
            "CREATE SCHEMA sales; CREATE TABLE sales.refunds (id int PRIMARY KEY);"
            "CREATE TABLE refunds (id int PRIMARY KEY); INSERT INTO sales.refunds VALUES (1), (2)",
        )
        assert delivered(database, "sales.refunds", cursor="id", unique=True) == [{"id": 1}, {"id": 2}]
        assert delivered(database, "refunds", cursor="id", unique=True) == []


class TestBudgets:
    @pytest.fixture
    def orders(self, database: str) -> str:
        execute(
            database,
            ORDERS,
            "INSERT INTO orders (updated_at, status) SELECT timestamptz '2024-01-01Z' + g * interval '1 s',"
            " repeat('x', 1000) FROM generate_series(1, 1000) g",
        )
        return database

    def plan(self, url: str, budget: Budget, **options: Any) -> Mapping[str, Any]:
        origin = source(url, {"orders": {"cursor": "updated_at", "tiebreaker": "id", **options}})
        document: dict[str, Any] = json.loads(slices(origin, "orders", budget)[0].plan)
        assert document.pop("timeline") == 1
        assert "/" in document.pop("lsn")
        return document

    def test_a_first_slice_is_sized_by_a_sample(self, orders: str) -> None:
        plan = self.plan(orders, Budget(bytes=100_000))
        assert 1000 < plan["row_bytes"] < 1100
        assert plan["rows"] == 100_000 // plan["row_bytes"]

    def test_only_columns_that_travel_count(self, orders: str) -> None:
        assert self.plan(orders, Budget(bytes=100_000), columns=["id"]) == {
            "cuts": [],
            "exact": True,
            "row_bytes": 8,
            "rows": 1000,
        }

    def test_large_values_count_uncompressed(self, orders: str) -> None:
        execute(orders, "UPDATE orders SET status = repeat('x', 100000) WHERE id <= 100")
        assert self.plan(orders, Budget(bytes=1 << 20))["row_bytes"] > 100_000

    def test_what_was_seen_goes_before_the_sample(self, orders: str) -> None:
        assert self.plan(orders, Budget(bytes=100_000, row_bytes=2000.4))["rows"] == 50

    def test_a_row_larger_than_the_budget_is_a_slice_of_its_own(self, orders: str) -> None:
        assert self.plan(orders, Budget(bytes=10))["rows"] == 1

    def test_at_most_so_many_rows(self, orders: str) -> None:
        assert self.plan(orders, Budget(bytes=1 << 30, rows=321, workers=2))["rows"] == 321

    def test_small_slices_are_not_cut(self, orders: str) -> None:
        assert self.plan(orders, Budget(bytes=1 << 30, workers=8))["cuts"] == []

    def test_parts_are_about_equal(self, orders: str) -> None:
        origin = source(orders, {"orders": {"cursor": "updated_at", "tiebreaker": "id", "columns": ["id"]}})
        [slice_] = slices(origin, "orders", Budget(bytes=4 << 30, row_bytes=float(1 << 20), workers=2))
        with origin.reading(slice_) as reading:
            sizes = [reading.reader.open(part).read_all().num_rows for part in reading.parts]
        assert len(sizes) == 4
        assert sum(sizes) == 1000
        assert max(sizes) - min(sizes) < 50

    def test_null_cursors_are_left_out_where_that_is_the_policy(self, orders: str) -> None:
        execute(orders, "UPDATE orders SET updated_at = NULL WHERE id % 10 = 0")
        keyset: Any = {"cursor": "updated_at", "tiebreaker": "id", "nulls": "skip", "columns": ["id"]}
        got = [row["id"] for row in delivered(orders, "orders", **keyset)]
        assert sorted(got) == [number for number in range(1, 1001) if number % 10]

    def test_a_table_of_null_cursors_alone_has_nothing_to_read(self, orders: str) -> None:
        execute(orders, "UPDATE orders SET updated_at = NULL")
        assert delivered(orders, "orders", cursor="updated_at", tiebreaker="id", nulls="skip") == []

    def test_deleted_rows_do_not_bring_the_mark_back(self, orders: str) -> None:
        origin = source(orders, {"orders": {"cursor": "updated_at", "tiebreaker": "id"}})
        last = slices(origin, "orders", WIDE)[-1].position
        execute(orders, "DELETE FROM orders WHERE id > 900")
        assert slices(origin, "orders", WIDE, last) == []
        assert slices(origin, "orders", replace(WIDE, row_bytes=100.0), last) == []


class TestMarksThatDoNotFit:
    RESET = "run `penstock state reset FILE --stream orders` to read the table from the beginning"

    @pytest.fixture
    def last(self, database: str) -> Position:
        execute(database, ORDERS, "INSERT INTO orders (updated_at) VALUES ('2024-01-01Z')")
        origin = source(database, {"orders": {"cursor": "updated_at", "tiebreaker": "id"}})
        return slices(origin, "orders", WIDE)[-1].position

    def refusal(self, url: str, last: Position, **options: Any) -> tuple[str, str]:
        origin = source(url, {"orders": options})
        with pytest.raises(StreamRefused) as refused:
            origin.accept("orders", last, origin.content("orders"))
        assert refused.value.stream == "orders"
        return refused.value.what, refused.value.next_step

    def test_another_cursor(self, database: str, last: Position) -> None:
        execute(
            database,
            "ALTER TABLE orders ADD made date NOT NULL DEFAULT now(); CREATE INDEX ON orders (made, id)",
        )
        assert self.refusal(database, last, cursor="made", tiebreaker="id") == (
            "the mark was made with cursor updated_at and tiebreaker id, "
            "and the stream now has cursor made and tiebreaker id",
            "go back to cursor updated_at and tiebreaker id; or run `penstock state migrate FILE --stream orders`, "
            "which keeps what was delivered elsewhere and reads the table from the beginning; or, where the sink has "
            f"a key, {self.RESET}",
        )

    def test_a_tiebreaker_added_to_a_unique_cursor(self, database: str, last: Position) -> None:
        execute(
            database,
            "ALTER TABLE orders ADD no int NOT NULL UNIQUE DEFAULT 0; CREATE INDEX ON orders (id, no)",
        )
        origin = source(database, {"orders": {"cursor": "id", "unique": True}})
        unique = slices(origin, "orders", WIDE)[-1].position
        assert self.refusal(database, unique, cursor="id", tiebreaker="no")[0] == (
            "the mark was made with cursor id and `unique: true`, and the stream now has cursor id and tiebreaker no"
        )

    def test_a_full_refresh_instead(self, database: str, last: Position) -> None:
        assert self.refusal(database, last)[0] == (
            "the mark was made with cursor updated_at and tiebreaker id, "
            "and the stream now has no cursor (a full refresh)"
        )

    def test_another_table(self, database: str, last: Position) -> None:
        execute(database, "CREATE TABLE bills (LIKE orders INCLUDING ALL)")
        assert self.refusal(database, last, table="bills", cursor="updated_at", tiebreaker="id") == (
            "the mark was made in table public.orders, and the stream now reads public.bills",
            f"set `table: public.orders` again, or {self.RESET}",
        )

    def test_another_type(self, database: str, last: Position) -> None:
        execute(database, "ALTER TABLE orders ALTER updated_at TYPE timestamp")
        assert self.refusal(database, last, cursor="updated_at", tiebreaker="id") == (
            "the mark was made when updated_at of public.orders was timestamp with time zone; "
            "it is timestamp without time zone now",
            f"change the column back, or {self.RESET}",
        )

    def test_a_wider_number_is_as_good(self, database: str) -> None:
        execute(database, "CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1)")
        origin = source(database, {"orders": {"cursor": "id", "unique": True}})
        last = slices(origin, "orders", WIDE)[-1].position
        execute(database, "ALTER TABLE orders ALTER id TYPE bigint; INSERT INTO orders VALUES (5000000000)")
        content = origin.content("orders")
        origin.accept("orders", last, content)
        [slice_] = slices(origin, "orders", WIDE, last)
        assert read(origin, slice_).to_pylist() == [{"id": 5000000000}]

    def test_a_text_that_is_no_value(self, database: str, last: Position) -> None:
        assert last.mark
        broken = Mark.of({**last.mark.document, "key": ["yesterday-ish", "1"]})
        assert self.refusal(database, replace(last, mark=broken), cursor="updated_at", tiebreaker="id") == (
            "the stored mark does not fit public.orders: "
            'invalid input syntax for type timestamp with time zone: "yesterday-ish"',
            f"restore the store, or {self.RESET}",
        )

    def test_a_mark_of_another_source(self, database: str, last: Position) -> None:
        foreign = replace(last, mark=Mark.of({"remaining": []}))
        assert self.refusal(database, foreign, cursor="updated_at", tiebreaker="id") == (
            'the stored mark does not fit: not the mark of a postgres stream: {"remaining":[]}',
            f"name the right pipeline and store, or {self.RESET}",
        )

    @pytest.mark.parametrize("change", [{"system": "1"}, {"oid": "1"}])
    def test_another_database(self, database: str, last: Position, change: dict[str, str]) -> None:
        now = Content.parse(last.content).identity
        old = {**now, **change}
        moved = replace(last, content=replace(Content.parse(last.content), identity=old).text)
        assert self.refusal(database, moved, cursor="updated_at", tiebreaker="id") == (
            f"the mark was made in database {old['database']} (oid {old['oid']}) of cluster {old['system']}, "
            f"and now database {now['database']} (oid {now['oid']}) of cluster {now['system']} answers: "
            "another database",
            f"point `url` back at the first one, or {self.RESET}",
        )

    def test_a_renamed_database_is_the_same(self, database: str, last: Position) -> None:
        content = Content.parse(last.content)
        renamed = replace(content, identity={**content.identity, "database": "old name"})
        origin = source(database, {"orders": {"cursor": "updated_at", "tiebreaker": "id"}})
        origin.accept("orders", replace(last, content=renamed.text), origin.content("orders"))


class TestReplay:
    @pytest.fixture
    def slice_(self, database: str) -> Slice:
        execute(database, ORDERS, "INSERT INTO orders (updated_at) SELECT now() FROM generate_series(1, 9)")
        origin = source(database, {"orders": {"cursor": "updated_at", "tiebreaker": "id"}})
        [planned] = slices(origin, "orders", WIDE)
        return planned

    def refusal(self, url: str, slice_: Slice) -> tuple[str, str]:
        origin = source(url, {"orders": {"cursor": "updated_at", "tiebreaker": "id"}})
        with pytest.raises(StreamRefused) as refused, origin.reading(slice_):
            pass
        return refused.value.what, refused.value.next_step

    def test_a_changed_configuration_does_not_matter(self, database: str, slice_: Slice) -> None:
        origin = source(database, {"orders": {"columns": ["id"]}})
        execute(database, "ALTER TABLE orders ADD more int", "DROP INDEX orders_updated_at_id_idx")
        got = read(origin, slice_)
        assert got.column_names == ["id", "updated_at", "status", "amount", "payload"]
        assert got.num_rows == 9

    def test_a_table_that_is_gone(self, database: str, slice_: Slice) -> None:
        execute(database, "DROP TABLE orders")
        assert self.refusal(database, slice_)[0] == (
            "an open slice was planned differently: it reads table public.orders, which was dropped"
        )

    def test_another_database(self, database: str, slice_: Slice) -> None:
        content = Content.parse(slice_.content)
        moved = replace(content, identity={**content.identity, "system": "1"})
        what, step = self.refusal(database, replace(slice_, content=moved.text))
        assert "of cluster 1, and now" in what
        assert step == "point `url` back at the first one, so that the slice can be finished"

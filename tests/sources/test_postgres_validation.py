"""Each rule that a Postgres stream must keep, by the exact words with which it is refused."""

import re
from typing import Any

import pytest
from tests.harness.postgres import PostgresServer
from tests.sources.tables import ORDERS, execute, rows, source

from penstock.core.documents import parse
from penstock.errors import StreamRefused

KEYSET = {"cursor": "updated_at", "tiebreaker": "id"}


def refusal(url: str, stream: str = "orders", **options: Any) -> tuple[str, str]:
    """What a stream is refused with: the reason and the next step."""
    origin = source(url, {stream: options})
    with pytest.raises(StreamRefused) as refused:
        origin.content(stream)
    assert refused.value.stream == stream
    return refused.value.what, refused.value.next_step


def content(url: str, stream: str = "orders", **options: Any) -> dict[str, Any]:
    """The canonical form of a stream's content."""
    origin = source(url, {stream: options})
    return parse(origin.content(stream).text)


@pytest.fixture
def orders(database: str) -> str:
    execute(database, ORDERS)
    return database


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


class TestTheOptionsThemselves:
    def test_a_tiebreaker_needs_a_cursor(self, orders: str) -> None:
        assert refusal(orders, tiebreaker="id") == (
            "`tiebreaker` (id) is set, but no `cursor`",
            "add the `cursor`, or remove `tiebreaker` to read the table whole in every run",
        )

    def test_unique_needs_a_cursor(self, orders: str) -> None:
        assert refusal(orders, unique=True) == (
            "`unique: true` is set, but no `cursor`",
            "add the `cursor`, or remove `unique` to read the table whole in every run",
        )

    def test_cursor_and_tiebreaker_must_differ(self, orders: str) -> None:
        assert refusal(orders, cursor="id", tiebreaker="id") == (
            "`cursor` and `tiebreaker` are the same column, id",
            "name a `tiebreaker` that distinguishes rows with the same cursor, or replace it by `unique: true` "
            "if id is unique and only increases",
        )

    def test_unique_and_tiebreaker_exclude_each_other(self, orders: str) -> None:
        assert refusal(orders, **KEYSET, unique=True) == (
            "`unique: true` and `tiebreaker` (id) are both set",
            "keep `tiebreaker`, or keep `unique: true` if the cursor alone is unique and only increases",
        )

    def test_a_cursor_needs_one_of_them(self, orders: str) -> None:
        assert refusal(orders, cursor="updated_at") == (
            "`cursor: updated_at` has neither a `tiebreaker` nor `unique: true`: "
            "rows with the same updated_at could be lost or duplicated between two slices",
            "set `tiebreaker: id` (the primary key)",
        )
        assert refusal(orders, cursor="id")[1] == (
            "set `unique: true` (the cursor is the primary key) if it only increases"
        )
        execute(orders, "ALTER TABLE orders DROP CONSTRAINT orders_pkey")
        assert refusal(orders, cursor="updated_at")[1] == ("give the table a primary key and name it as `tiebreaker`")

    def test_a_composite_primary_key_is_proposed_whole(self, database: str) -> None:
        execute(database, "CREATE TABLE lines (a int, b int, at timestamptz, PRIMARY KEY (a, b))")
        assert refusal(database, "lines", cursor="at")[1] == "set `tiebreaker: [a, b]` (the primary key)"
        assert refusal(database, "lines", cursor="a")[1] == "set `tiebreaker: b` (the primary key)"

    def test_a_stream_whose_name_is_no_table_name_needs_one(self, orders: str) -> None:
        assert refusal(orders, "a.b.c") == (
            "'a.b.c' is not a table name; write table or schema.table",
            "set `table` of the stream",
        )


class TestNames:
    def test_a_missing_table(self, orders: str) -> None:
        assert refusal(orders, table="customers") == (
            f"there is no table public.customers in database {name_of(orders)}",
            "correct `table` of the stream, or create public.customers",
        )

    @pytest.mark.parametrize("misspelt", ["ordres", "Orders", "order"])
    def test_a_misspelt_table(self, orders: str, misspelt: str) -> None:
        assert refusal(orders, table=misspelt) == (
            f"there is no table public.{misspelt} in database {name_of(orders)}; did you mean public.orders?",
            "set `table: public.orders`",
        )

    def test_a_table_of_another_schema(self, orders: str) -> None:
        execute(orders, "CREATE SCHEMA sales", "CREATE TABLE sales.refunds (id int)")
        assert refusal(orders, "refunds") == (
            f"there is no table public.refunds in database {name_of(orders)}; did you mean sales.refunds?",
            "set `table: sales.refunds`",
        )

    def test_misspelt_columns_all_at_once(self, orders: str) -> None:
        assert refusal(orders, cursor="updatd_at", tiebreaker="ID", columns=["id", "stauts", "zzz"]) == (
            "public.orders has no column updatd_at (`cursor`; did you mean 'updated_at'?); "
            "ID (`tiebreaker`; did you mean 'id'?); stauts (`columns`; did you mean 'status'?); zzz (`columns`)",
            "correct `cursor` and `tiebreaker` and `columns`; the columns are: id, updated_at, status, amount, payload",
        )

    def test_a_table_without_columns(self, database: str) -> None:
        execute(database, "CREATE TABLE nothing ()")
        assert refusal(database, "nothing") == (
            "public.nothing has no columns",
            "give it some, or leave the table out",
        )

    def test_a_column_that_is_ours(self, orders: str) -> None:
        execute(orders, "ALTER TABLE orders ADD _change text")
        assert refusal(orders) == (
            "public.orders has a column _change, a name that penstock keeps for itself",
            "list the other columns in `columns`, or rename _change",
        )
        assert content(orders, columns=["id"])


class TestPermissions:
    @pytest.fixture
    def reader(self, orders: str, postgres_server: PostgresServer) -> str:
        """The URL of a role that may connect and no more."""
        execute(
            orders,
            "DO $$ BEGIN CREATE ROLE \"Read er\" LOGIN PASSWORD 'secret';"
            " EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        )
        return postgres_server.url(name_of(orders), user="Read er", password="secret")

    def test_no_permission_on_the_table(self, reader: str) -> None:
        assert refusal(reader, **KEYSET) == (
            "user Read er may not read public.orders",
            'GRANT SELECT ON public.orders TO "Read er";',
        )

    def test_no_permission_on_some_columns(self, orders: str, reader: str) -> None:
        execute(orders, 'GRANT SELECT (id, updated_at, "status") ON orders TO "Read er"')
        assert refusal(reader, **KEYSET) == (
            "user Read er may not read amount, payload of public.orders",
            'GRANT SELECT (amount, payload) ON public.orders TO "Read er"; '
            "or leave them out by listing the others in `columns`",
        )
        assert content(reader, **KEYSET, columns=["id", "status"])

    def test_the_key_must_be_readable_although_it_does_not_travel(self, orders: str, reader: str) -> None:
        execute(orders, 'GRANT SELECT (id, status) ON orders TO "Read er"')
        assert refusal(reader, **KEYSET, columns=["status"])[0] == (
            "user Read er may not read updated_at of public.orders"
        )

    def test_no_permission_on_the_schema(self, orders: str, reader: str) -> None:
        execute(orders, "CREATE SCHEMA vault", "CREATE TABLE vault.gold (id int PRIMARY KEY)")
        assert refusal(reader, "vault.gold") == (
            "user Read er may not use schema vault",
            'GRANT USAGE ON SCHEMA vault TO "Read er";',
        )

    def test_row_level_security(self, orders: str, reader: str) -> None:
        execute(
            orders,
            'GRANT SELECT ON orders TO "Read er"',
            "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
        )
        assert refusal(reader, **KEYSET) == (
            "row-level security may hide rows of public.orders from user Read er",
            'ALTER ROLE "Read er" BYPASSRLS; or set `row_security: accept` for what it sees',
        )
        assert content(reader, **KEYSET, row_security="accept")["private"]["row_security"] == "accept"
        assert content(orders, **KEYSET)["private"]["row_security"] == "refuse"


class TestTheKey:
    def test_a_type_without_order(self, orders: str) -> None:
        assert refusal(orders, cursor="payload", tiebreaker="id") == (
            "payload of public.orders cannot be the cursor: its type json has no order",
            "name a cursor of a type with an order, such as a timestamp or a number",
        )
        assert refusal(orders, cursor="id", tiebreaker="payload")[0] == (
            "payload of public.orders cannot be the tiebreaker: its type json has no order"
        )

    def test_a_type_with_the_order_of_an_extension(self, orders: str) -> None:
        execute(orders, "CREATE EXTENSION citext", "ALTER TABLE orders ADD mail citext")
        assert refusal(orders, cursor="mail", tiebreaker="id") == (
            "mail of public.orders cannot be the cursor: its type public.citext has the order of an extension",
            "name a cursor of a built-in type, such as a timestamp, a number or text",
        )

    def test_types_with_an_order(self, database: str) -> None:
        execute(
            database,
            "CREATE TYPE mood AS ENUM ('sad', 'glad')",
            "CREATE DOMAIN positive AS int CHECK (value > 0)",
            "CREATE DOMAIN more AS positive",
        )
        for type_ in (
            *("varchar(9)", "char(3)", "name", "uuid", "numeric", "real", "date", "interval", "inet", "cidr"),
            *("bytea", "mood", "more", "int4range", "int[]", "bit(3)", "xid8", "jsonb", "timetz", "boolean"),
        ):
            execute(
                database,
                "DROP TABLE IF EXISTS t",
                f"CREATE TABLE t (c {type_} NOT NULL, id int PRIMARY KEY); CREATE INDEX ON t (c, id)",
            )
            assert content(database, "t", cursor="c", tiebreaker="id")["private"]["order"][0]["column"] == "c"

    @pytest.mark.parametrize("type_", ["json", "point", "xml", "json[]", "xid"])
    def test_types_without_order(self, database: str, type_: str) -> None:
        execute(database, f"CREATE TABLE t (c {type_} NOT NULL, id int PRIMARY KEY)")
        assert "has no order" in refusal(database, "t", cursor="c", tiebreaker="id")[0]

    def test_a_nullable_tiebreaker(self, orders: str) -> None:
        execute(orders, "ALTER TABLE orders ADD code int UNIQUE")
        assert refusal(orders, cursor="updated_at", tiebreaker="code") == (
            "the tiebreaker code of public.orders is nullable",
            "set `tiebreaker: id` (the primary key)",
        )
        execute(orders, "ALTER TABLE orders DROP CONSTRAINT orders_pkey")
        assert refusal(orders, cursor="updated_at", tiebreaker="code")[1] == (
            "ALTER TABLE public.orders ALTER COLUMN code SET NOT NULL;"
        )

    def test_a_tiebreaker_that_is_not_unique(self, orders: str) -> None:
        assert refusal(orders, cursor="updated_at", tiebreaker="status") == (
            "the tiebreaker status does not tell rows of public.orders apart: no unique index proves it",
            "set `tiebreaker: id` (the primary key)",
        )
        execute(orders, "ALTER TABLE orders DROP CONSTRAINT orders_pkey")
        assert refusal(orders, cursor="updated_at", tiebreaker=["status", "id"])[1] == (
            "CREATE UNIQUE INDEX CONCURRENTLY ON public.orders (status, id);"
        )

    def test_which_indexes_prove_uniqueness(self, orders: str) -> None:
        execute(
            orders,
            "ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD no int NOT NULL DEFAULT 0",
            "CREATE UNIQUE INDEX part ON orders (no) WHERE no > 7",
            "CREATE UNIQUE INDEX expression ON orders ((no + 1))",
            "CREATE UNIQUE INDEX wider ON orders (no, status)",
        )
        keyset = {"cursor": "updated_at", "tiebreaker": "no", "index": "optional"}
        assert "no unique index" in refusal(orders, **keyset)[0]
        execute(orders, "CREATE UNIQUE INDEX with_cursor ON orders (no, updated_at)")
        assert content(orders, **keyset)
        execute(
            orders,
            "DROP INDEX with_cursor",
            "ALTER TABLE orders ADD CONSTRAINT later UNIQUE (no) DEFERRABLE INITIALLY DEFERRED",
        )
        assert content(orders, **keyset)

    def test_unique_without_a_unique_index(self, orders: str) -> None:
        execute(orders, "ALTER TABLE orders ALTER updated_at SET NOT NULL")
        assert refusal(orders, cursor="updated_at", unique=True) == (
            "`unique: true` is not proven: public.orders has no unique index on updated_at",
            "replace `unique: true` by `tiebreaker: id` (the primary key)",
        )

    def test_unique_but_nullable(self, orders: str) -> None:
        execute(orders, "CREATE UNIQUE INDEX ON orders (updated_at)")
        assert refusal(orders, cursor="updated_at", unique=True) == (
            "the cursor updated_at of public.orders is nullable",
            "replace `unique: true` by `tiebreaker: id` (the primary key)",
        )

    def test_a_missing_index(self, orders: str) -> None:
        execute(orders, "DROP INDEX orders_updated_at_id_idx", "CREATE INDEX ON orders (id, updated_at)")
        assert refusal(orders, **KEYSET) == (
            "public.orders has no index on (updated_at, id): every slice would sort the table",
            "CREATE INDEX CONCURRENTLY ON public.orders (updated_at, id); or set `index: optional`",
        )
        assert content(orders, **KEYSET, index="optional")

    def test_the_index_to_create_is_quoted_where_needed(self, database: str) -> None:
        execute(
            database,
            'CREATE TABLE "Größe" (id int PRIMARY KEY, "user" int NOT NULL UNIQUE, "Zeit" date NOT NULL)',
        )
        what, step = refusal(database, "Größe", cursor="Zeit", tiebreaker="user")
        assert what == "public.Größe has no index on (Zeit, user): every slice would sort the table"
        create, _, rest = step.partition("; ")
        assert create == 'CREATE INDEX CONCURRENTLY ON public."Größe" ("Zeit", "user")'
        assert rest == "or set `index: optional`"
        execute(database, create)
        assert content(database, "Größe", cursor="Zeit", tiebreaker="user")

    def test_a_partitioned_table_cannot_be_indexed_concurrently(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE events (at date, id int, PRIMARY KEY (at, id)) PARTITION BY RANGE (at)",
            "ALTER TABLE events ADD no int NOT NULL",
        )
        step = refusal(database, "events", cursor="no", tiebreaker=["at", "id"])[1]
        assert step == "CREATE INDEX ON public.events (no, at, id); or set `index: optional`"
        assert content(database, "events", cursor="at", tiebreaker="id")

    @pytest.mark.parametrize(
        ("index", "serves"),
        [
            ("(updated_at, id)", True),
            ("(updated_at DESC, id DESC)", True),
            ("(updated_at, id) INCLUDE (status)", True),
            ("(updated_at, id, status)", True),
            ("(updated_at)", False),
            ("(updated_at DESC, id)", False),
            ("(updated_at NULLS FIRST, id)", False),
            ("(updated_at, id) WHERE id > 5", False),
            ("(updated_at, (id + 0))", False),
            ("USING brin (updated_at, id)", False),
        ],
    )
    def test_which_indexes_serve(self, orders: str, index: str, serves: bool) -> None:
        using = "" if index.startswith("USING") else "USING btree "
        execute(orders, "DROP INDEX orders_updated_at_id_idx", f"CREATE INDEX ON orders {using}{index}")
        if serves:
            assert content(orders, **KEYSET)
        else:
            assert "has no index on (updated_at, id)" in refusal(orders, **KEYSET)[0]

    def test_a_text_index_of_another_order_does_not_serve(self, database: str) -> None:
        execute(database, "CREATE TABLE t (c text NOT NULL, id int PRIMARY KEY)")
        for order in ("text_pattern_ops", 'COLLATE "POSIX"'):
            execute(database, f"CREATE INDEX ON t (c {order}, id)")
            assert "has no index" in refusal(database, "t", cursor="c", tiebreaker="id")[0]

    def test_an_invalid_index_does_not_serve(self, orders: str) -> None:
        execute(
            orders,
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'orders_updated_at_id_idx'::regclass",
        )
        assert "has no index" in refusal(orders, **KEYSET)[0]

    def test_a_view_proves_nothing(self, orders: str) -> None:
        execute(orders, "CREATE VIEW latest AS SELECT * FROM orders")
        assert refusal(orders, "latest", **KEYSET) == (
            "the tiebreaker id of public.latest is nullable",
            "read the table behind it, or remove `cursor` to read it whole in every run",
        )
        assert content(orders, "latest")["private"]["mode"] == "refresh"

    def test_inheriting_tables_are_not_covered_by_an_index(self, orders: str) -> None:
        execute(orders, "CREATE TABLE archived () INHERITS (orders)")
        assert refusal(orders, **KEYSET) == (
            "other tables inherit from public.orders, and no unique index covers their rows too",
            "read each table as a stream of its own, or remove `cursor` to read them whole in every run",
        )
        assert content(orders)["private"]["mode"] == "refresh"

    def test_null_cursors(self, orders: str) -> None:
        execute(orders, "INSERT INTO orders (updated_at) VALUES (NULL), (now())")
        assert refusal(orders, **KEYSET) == (
            "1 row of public.orders has NULL as the cursor updated_at and would never be read",
            "fill updated_at in, or set `nulls: skip` to leave such rows out",
        )
        execute(orders, "INSERT INTO orders (updated_at) VALUES (NULL)")
        assert refusal(orders, **KEYSET)[0].startswith("2 rows of public.orders have NULL")
        execute(orders, "INSERT INTO orders (updated_at) SELECT NULL FROM generate_series(1, 2000)")
        assert refusal(orders, **KEYSET)[0].startswith("at least 1000 rows of public.orders have NULL")
        assert content(orders, **KEYSET, nulls="skip")["private"]["nulls"] == "skip"


class TestTheDocument:
    def test_a_keyset(self, orders: str) -> None:
        [(system, oid)] = rows(
            orders,
            "SELECT system_identifier::text, oid::text FROM pg_control_system(), pg_database"
            " WHERE datname = current_database()",
        )
        assert content(orders, **KEYSET) == {
            "format": 2,
            "columns": [
                {"name": "id", "origin": "bigint", "type": "int64"},
                {"name": "updated_at", "origin": "timestamp with time zone", "type": "timestamptz"},
                {"name": "status", "origin": "text", "type": "string"},
                {"name": "amount", "origin": "numeric(12,2)", "type": "decimal(12,2)"},
                {"name": "payload", "origin": "json", "type": "string"},
            ],
            "changes": False,
            "key": ["id"],
            "filter": None,
            "identity": {
                "system": system,
                "oid": oid,
                "database": name_of(orders),
                "timeline": 1,
                "table": "public.orders",
            },
            "private": {
                "mode": "keyset",
                "order": [
                    {"column": "updated_at", "type": "timestamp with time zone"},
                    {"column": "id", "type": "bigint"},
                ],
                "unique": False,
                "nulls": "fail",
                "unfit": "fail",
                "row_security": "refuse",
            },
        }

    def test_a_refresh_has_no_key(self, orders: str) -> None:
        document = content(orders, columns=["status", "id"])
        assert document["private"]["mode"] == "refresh"
        assert not {"order", "unique", "nulls"} & document["private"].keys()
        assert [column["name"] for column in document["columns"]] == ["status", "id"]

    def test_a_server_that_does_not_tell_its_identifier(self, orders: str, postgres_server: PostgresServer) -> None:
        execute(
            orders,
            "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public",
            "DO $$ BEGIN CREATE ROLE curious LOGIN PASSWORD 'secret';"
            " EXCEPTION WHEN duplicate_object THEN NULL; END $$",
            "GRANT SELECT ON orders TO curious",
        )
        url = postgres_server.url(name_of(orders), user="curious", password="secret")
        identity = content(url, **KEYSET)["identity"]
        assert identity["system"] is None
        assert re.fullmatch(r"\d+", identity["oid"])

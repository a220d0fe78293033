"""Rows that the table will not take: found, named by their key, quarantined with their slice, tried again."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.postgres.deliveries import Deliveries

from penstock.core.outcome import Outcome
from penstock.core.slices import Kind
from penstock.errors import StreamFailed
from penstock.ports import StreamInfo
from penstock.sinks.postgres.ledger import Ledger
from penstock.sinks.postgres.quarantine import KEY_EXISTS

SCHEMA = pa.schema([("id", pa.int64()), ("email", pa.string()), ("amount", pa.string()), ("parent", pa.int64())])
TABLE = """
    CREATE TABLE orders (
        id bigint PRIMARY KEY,
        email varchar(20) UNIQUE,
        amount numeric(6,2) NOT NULL CHECK (amount > 0),
        parent bigint REFERENCES orders DEFERRABLE INITIALLY DEFERRED
    )
"""
QUARANTINE: dict[str, Any] = {"key": ["id"], "bad_rows": "quarantine"}


def rows(*given: tuple[Any, ...]) -> pa.Table:
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*given, strict=True), SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def good(*ids: int) -> list[tuple[Any, ...]]:
    return [(id_, f"{id_}@x", "1.00", None) for id_ in ids]


#: rows that cannot go in, and why; each beside good ones
BAD = [
    ((7, "7@x", None, None), "23502", "column amount: may not be NULL"),
    ((7, "7@x", "-1", None), "23514", "a check constraint fails (orders_amount_check)"),
    ((7, "1@x", "1", None), "23505", "duplicate value for a unique constraint (orders_email_key)"),
    ((7, "7@x", "1", 99), "23503", "a foreign key has no matching row (orders_parent_fkey)"),
    ((7, "7@x", "secret", None), "22P02", "column amount: a value cannot be read as numeric"),
    ((7, "7@x", "1.005", None), "", "column amount (numeric(6,2)) does not hold the value exactly"),
    ((7, "7@x", "99999", None), "22003", "column amount: a number is out of range"),
    (
        (7, "a secret that is long", "1", None),
        "",
        "column email (character varying(20)) does not hold the value exactly",
    ),
]


@pytest.mark.parametrize(("row", "code", "reason"), BAD, ids=[f"{code} {reason[:20]}" for _, code, reason in BAD])
def test_a_bad_row(database: str, row: tuple[Any, ...], code: str, reason: str) -> None:
    """It fails the slice and is named by its key, not by its values; in quarantine it lets the others go on."""
    orders = Deliveries(database, {"key": ["id"]})
    orders.run(TABLE)
    slice_ = rows(*good(*range(1, 7)), row, *good(*range(8, 20)))
    with pytest.raises(StreamFailed) as failed:
        orders.deliver(slice_)
    assert failed.value.what == f"public.orders: {reason}, in the row with key id=7"
    assert orders.rows() == []
    orders.options = QUARANTINE
    assert orders.deliver(slice_) == Outcome(created=18, quarantined=1)
    assert [id_ for id_, *_ in orders.rows()] == [id_ for id_ in range(1, 20) if id_ != 7]
    aside = orders.rows("SELECT stream, number, key::text, code, reason, target FROM penstock_sink.quarantine")
    assert aside == [("orders", 1, '{ "id" : 7 }', code, reason, '"public"."orders"')]


def test_many_bad_rows_in_several_parts_each_with_its_reason(database: str) -> None:
    orders = Deliveries(database, QUARANTINE)
    orders.run(TABLE)
    orders.deliver(rows(*good(1000)))
    bad = {3: "-1", 4: "-1", 50: "x", 51: None, 99: "1.001"}
    first = rows(*((id_, f"{id_}@x", bad.get(id_, "1"), None) for id_ in range(60)))
    second = rows(
        *((id_, f"{id_}@x", bad.get(id_, "1"), None) for id_ in range(60, 100)),
        (None, "n@x", "1", None),
        (101, "5@x", "1", None),
        (1000, "1000@x", "2.00", None),
        (7, "7@y", "3.00", None),
    )
    outcome = orders.deliver(first, second)
    assert outcome == Outcome(created=95, updated=1, folded=1, quarantined=7)
    assert outcome.rows == 104
    found = orders.rows("SELECT key ->> 'id', code FROM penstock_sink.quarantine ORDER BY (key ->> 'id')::int")
    assert found == [
        ("3", "23514"),
        ("4", "23514"),
        ("50", "22P02"),
        ("51", "23502"),
        ("99", ""),
        ("101", "23505"),
        (None, ""),
    ]
    assert orders.rows("SELECT email FROM orders WHERE id = 7") == [("7@y",)]


def test_a_refresh_puts_aside_too(database: str) -> None:
    orders = Deliveries(database, QUARANTINE)
    orders.run(TABLE)
    orders.deliver(rows(*good(1, 2, 3)), kind=Kind.REFRESH, key=("id",))
    # The value that was unique to 1, which goes, is 4's now.
    outcome = orders.deliver(
        rows(*good(2), (4, "1@x", "1", None), (5, "5@x", "0", None)), kind=Kind.REFRESH, key=("id",)
    )
    assert outcome == Outcome(created=1, equal=1, deleted=2, quarantined=1)
    assert [id_ for id_, *_ in orders.rows()] == [2, 4]


def test_what_is_no_matter_of_single_rows_fails(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = Deliveries(database, QUARANTINE)
    orders.run(TABLE)
    monkeypatch.setattr("penstock.sinks.postgres.commit.MAX_SLICE_ROWS", 3)
    with pytest.raises(StreamFailed, match="more than 3 rows of one slice cannot be written; the first: a check"):
        orders.deliver(rows(*((id_, f"{id_}@x", "-1", None) for id_ in range(9))))
    assert orders.rows() == []
    assert orders.rows("SELECT * FROM penstock_sink.quarantine") == []


# ---------------------------------------------------------------- tried again


def replay(orders: Deliveries, *ids: int, overwrite: bool = False) -> Outcome:
    with closing(orders.sink) as sink:
        sink.begin_run([StreamInfo("orders", Kind.ROWS, ("id",))])
        return sink.replay("orders", ids, overwrite=overwrite)


def reasons(orders: Deliveries) -> list[tuple[Any, ...]]:
    return orders.rows("SELECT (key ->> 'id')::int, reason FROM penstock_sink.quarantine ORDER BY 1")


def test_replay_takes_in_what_fits_now_and_leaves_the_rest_with_its_reason(database: str) -> None:
    orders = Deliveries(database, QUARANTINE)
    orders.run(TABLE)
    bad = [(1, "1@x", "-1", None), (2, "2@x", "1.234", None), (3, "3@x", "x", None), (4, "4@x", "-4", None)]
    assert orders.deliver(rows(*bad, *good(5))) == Outcome(created=1, quarantined=4)
    orders.run("ALTER TABLE orders DROP CONSTRAINT orders_amount_check, ALTER COLUMN amount TYPE numeric")
    assert replay(orders, 1) == Outcome(created=1), "only the one that was named"
    assert replay(orders) == Outcome(created=2, quarantined=1)
    assert reasons(orders) == [(3, "column amount: a value cannot be read as numeric")]
    assert orders.rows("SELECT id, amount::text FROM orders ORDER BY 1") == [
        (1, "-1"),
        (2, "1.234"),
        (4, "-4"),
        (5, "1.00"),
    ]
    orders.run("ALTER TABLE orders ALTER COLUMN amount TYPE text")
    assert replay(orders) == Outcome(created=1)
    assert replay(orders) == Outcome()


def test_replay_does_not_let_an_older_row_win(database: str) -> None:
    orders = Deliveries(database, QUARANTINE)
    orders.run(TABLE)
    orders.deliver(rows((1, "1@x", "-1", None)))
    assert orders.deliver(rows(*good(1))) == Outcome(created=1)
    orders.run("ALTER TABLE orders DROP CONSTRAINT orders_amount_check")
    assert replay(orders) == Outcome(quarantined=1)
    assert reasons(orders) == [(1, KEY_EXISTS)]
    assert replay(orders, overwrite=True) == Outcome(updated=1)
    assert orders.rows("SELECT amount::text FROM orders") == [("-1.00",)]


def test_replay_goes_by_what_is_newer(database: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("_change", pa.string())])
    orders = Deliveries(database, {**QUARANTINE, "newer_than": "v"})
    orders.run("CREATE TABLE orders (id bigint PRIMARY KEY, v bigint CHECK (v % 2 = 0))")
    orders.run("CREATE TABLE of_orders (id bigint REFERENCES orders)")
    orders.deliver(pa.table([[1, 2, 3], [1, 1, 2], ["upsert"] * 3], schema=schema))
    orders.run("INSERT INTO of_orders VALUES (3)")
    assert orders.deliver(pa.table([[1, 3], [4, 4], ["upsert", "delete"]], schema=schema)) == Outcome(
        created=1, quarantined=1
    )
    orders.run("ALTER TABLE orders DROP CONSTRAINT orders_v_check")
    orders.run("DELETE FROM of_orders")
    assert replay(orders) == Outcome(created=1, stale=1, deleted=1)
    assert orders.rows() == [(1, 4), (2, 1)]


def test_every_value_comes_out_of_the_quarantine_as_it_went_in(database: str) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("f", pa.float64()),
            ("d", pa.decimal128(38, 10)),
            ("b", pa.binary()),
            ("t", pa.timestamp("us", "UTC")),
            ("l", pa.list_(pa.string())),
            ("j", pa.string()),
            ("s", pa.string()),
        ]
    )
    values = pa.table(
        [
            [1, 2],
            [-0.0, float("nan")],
            [Decimal("-1234567890123456789012345678.0123456789"), None],
            [b"\x00\xff'", b""],
            [datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
            [["a,b", None, 'c"{}\\'], []],
            ['{"b" : 1, "a": 1e400, "a": 2}', "null"],
            ["\u2028 \\ \" '", ""],
        ],
        schema=schema,
    )
    made = "(id bigint PRIMARY KEY, f float8, d numeric, b bytea, t timestamptz, l text[], j json, s text)"
    wanted = Deliveries(database, {"key": ["id"], "into": "wanted"}, pipeline="other")
    wanted.run(f"CREATE TABLE wanted {made}")
    wanted.deliver(values)
    orders = Deliveries(database, QUARANTINE)
    orders.run(f"CREATE TABLE orders {made}")
    orders.run("ALTER TABLE orders ADD CHECK (id < 0)")
    assert orders.deliver(values) == Outcome(quarantined=2)
    orders.run("ALTER TABLE orders DROP CONSTRAINT orders_id_check")
    assert replay(orders) == Outcome(created=2)
    assert orders.rows("SELECT o::text FROM orders o ORDER BY id") == orders.rows(
        "SELECT w::text FROM wanted w ORDER BY id"
    )


def test_a_column_with_a_percent_sign(database: str) -> None:
    """The driver takes it for a place of its own in a statement that has bound values."""
    orders = Deliveries(database, QUARANTINE)
    orders.run(
        'CREATE TABLE orders (id bigint PRIMARY KEY, "50%s %(x)s" bigint CONSTRAINT positive CHECK ("50%s %(x)s" > 0))'
    )
    schema = pa.schema([("id", pa.int64()), ("50%s %(x)s", pa.int64())])
    assert orders.deliver(pa.table([[1, 2], [5, -5]], schema=schema)) == Outcome(created=1, quarantined=1)
    orders.run("ALTER TABLE orders DROP CONSTRAINT positive")
    with closing(orders.sink) as sink:
        assert sink.replay("orders", [], overwrite=False) == Outcome(created=1)
    assert orders.rows() == [(1, 5), (2, -5)]


def test_what_the_driver_itself_refuses_is_no_lost_connection(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = Deliveries(database, QUARANTINE)

    def refuses(*_: object, **__: object) -> None:
        raise psycopg.ProgrammingError("the query has 0 placeholders but 1 parameters were passed")

    monkeypatch.setattr(Ledger, "note", refuses)
    with pytest.raises(StreamFailed, match="the query has 0 placeholders") as failed:
        orders.deliver(rows(*good(1)))
    assert "please report it" in failed.value.next_step

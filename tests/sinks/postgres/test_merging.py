"""What becomes of each kind of row, and that every one is counted once."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.postgres.deliveries import Deliveries

from penstock.core.outcome import Outcome
from penstock.core.slices import Kind
from penstock.errors import StreamFailed
from penstock.ports import NoProbe
from penstock.testing.contracts.delivery import Crash, Crashing

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tenant", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("seen", pa.int32()),
        ("updated_at", pa.timestamp("us", "UTC")),
        ("_change", pa.string()),
    ]
)
OPTIONS: dict[str, Any] = {
    "key": ["id"],
    "newer_than": "updated_at",
    "guard": ["tenant"],
    "volatile": ["seen", "updated_at"],
}


def row(
    id_: int, minute: int, *, tenant: str = "a", amount: str = "1.00", seen: int = 0, change: str = "upsert"
) -> Any:
    return (id_, tenant, Decimal(amount), seen, START + timedelta(minutes=minute), change)


def rows(*given: tuple[Any, ...]) -> pa.Table:
    columns = zip(*given, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def test_a_slice_with_every_kind_of_row(database: str) -> None:
    orders = Deliveries(database, OPTIONS)
    assert orders.deliver(rows(*(row(n, 10) for n in range(1, 11)))) == Outcome(created=10)
    outcome = orders.deliver(
        rows(
            row(1, 20, amount="2.00"),  # updated
            row(2, 5, amount="3.00"),  # stale
            row(3, 10),  # equal
            row(4, 20, seen=9),  # equal: only what is volatile differs
            row(5, 20, tenant="b", amount="9.00"),  # refused: another's
            row(6, 20, change="delete"),  # deleted
            row(7, 5, change="delete"),  # stale: what is there is newer
        ),
        rows(
            row(8, 20, tenant="b", change="delete"),  # refused
            row(99, 20, change="delete"),  # equal: nothing to delete
            row(11, 10),  # folded: a later one of the same key follows
            row(11, 12, amount="4.00"),  # created
        ),
    )
    assert outcome == Outcome(created=1, updated=1, deleted=1, stale=2, equal=3, refused=2, folded=1)
    assert outcome.rows == 11
    found = {id_: (tenant, amount, seen) for id_, tenant, amount, seen, *_ in orders.rows()}
    wanted = {n: ("a", Decimal("1.00"), 0) for n in range(1, 11) if n != 6}
    wanted |= {1: ("a", Decimal("2.00"), 0), 11: ("a", Decimal("4.00"), 0)}
    assert found == wanted


def test_deletes_may_be_marked_or_ignored(database: str) -> None:
    orders = Deliveries(database, {**OPTIONS, "deletes": "soft", "deleted_at": "gone"})
    orders.deliver(rows(row(1, 1), row(2, 1)))
    assert orders.deliver(rows(row(1, 2, change="delete"))) == Outcome(deleted=1)
    assert orders.deliver(rows(row(1, 3, change="delete"))) == Outcome(equal=1)
    assert [gone is not None for (gone,) in orders.rows("SELECT gone FROM orders ORDER BY id")] == [True, False]
    assert orders.deliver(rows(row(1, 4))) == Outcome(updated=1), "it comes back to life"
    assert orders.rows("SELECT count(gone) FROM orders") == [(0,)]
    orders.options = {**OPTIONS, "deletes": "ignore"}
    assert orders.deliver(rows(row(1, 9, change="delete"), row(3, 9))) == Outcome(ignored=1, created=1)


def test_the_last_in_order_wins_where_nothing_says_which_is_newer(database: str) -> None:
    orders = Deliveries(database, {"key": ["id"]})
    first = rows(row(1, 9, amount="1.00"), row(1, 8, amount="2.00"))
    second = rows(row(1, 7, amount="3.00"))
    assert orders.deliver(first, second) == Outcome(created=1, folded=2)
    assert orders.rows("SELECT amount FROM orders") == [(Decimal("3.00"),)]


def test_what_can_be_told_apart_is_never_equal(database: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.string()), ("j", pa.string())])
    orders = Deliveries(database, {"key": ["id"]})
    orders.run("CREATE TABLE orders (id bigint PRIMARY KEY, n numeric, j json)")
    orders.deliver(pa.table([[1], ["1.0"], ['{"a": 1}']], schema=schema))
    assert orders.deliver(pa.table([[1], ["1.0"], ['{"a": 1}']], schema=schema)) == Outcome(equal=1)
    assert orders.deliver(pa.table([[1], ["1.00"], ['{"a": 1}']], schema=schema)) == Outcome(updated=1)
    assert orders.deliver(pa.table([[1], ["1.00"], ['{"a":1}']], schema=schema)) == Outcome(updated=1)
    assert orders.rows("SELECT n::text, j::text FROM orders") == [("1.00", '{"a":1}')]


def test_a_refresh_takes_the_place_of_all_before_and_leaves_the_rest_alone(database: str) -> None:
    orders = Deliveries(database)
    key = ("id",)
    assert orders.deliver(rows(row(1, 1), row(2, 1), row(3, 1)), kind=Kind.REFRESH, key=key) == Outcome(created=3)
    was = orders.rows("SELECT xmin::text FROM orders WHERE id = 2")
    outcome = orders.deliver(rows(row(2, 1), row(3, 1, amount="5.00"), row(4, 1)), kind=Kind.REFRESH, key=key)
    assert outcome == Outcome(created=1, updated=1, equal=1, deleted=1)
    assert orders.rows("SELECT xmin::text FROM orders WHERE id = 2") == was
    assert [id_ for (id_,) in orders.rows("SELECT id FROM orders ORDER BY 1")] == [2, 3, 4]


def test_a_table_that_is_known_to_be_empty_is_not_searched_for_each_row(database: str) -> None:
    """The server would plan to look through it for every row, and it grows meanwhile."""
    orders = Deliveries(database, OPTIONS)
    orders.deliver(rows(row(1, 1)))
    orders.run("TRUNCATE orders")
    orders.run("VACUUM ANALYZE orders")
    count = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'orders'"
    before = orders.rows(count)[0][0]
    assert orders.deliver(rows(*(row(n, 10) for n in range(300)))) == Outcome(created=300)
    # The session's counts come when it has ended.
    end = time.monotonic() + 10
    while (scans := orders.rows(count)[0][0] - before) == 0 and time.monotonic() < end:
        time.sleep(0.05)
    assert 0 < scans < 30


def test_a_newer_row_differs_unless_what_tells_so_is_volatile(database: str) -> None:
    for volatile, outcome in (([], Outcome(updated=1)), (["updated_at"], Outcome(equal=1))):
        orders = Deliveries(
            database, {"key": ["id"], "newer_than": "updated_at", "volatile": volatile}, pipeline=str(volatile)
        )
        orders.run("DROP TABLE IF EXISTS orders")
        orders.deliver(rows(row(1, 1)))
        assert orders.deliver(rows(row(1, 2))) == outcome


@pytest.mark.parametrize(
    ("type_", "value", "fits"),
    [
        ("varchar(5)", "abcde", True),
        ("varchar(5)", "abcdef", False),
        ("numeric(12,2)", "1.25", True),
        ("numeric(12,2)", "1.255", False),
        ("char(3)", "ab", True),
        ("char(3)", "abcd", False),
        ("timestamptz(0)", "2026-01-01 00:00:00+00", True),
        ("timestamptz(0)", "2026-01-01 00:00:00.5+00", False),
        ("bit(3)", "101", True),
        ("bit(3)", "1011", False),
    ],
)
def test_nothing_is_cut_or_rounded(database: str, type_: str, value: str, fits: bool) -> None:
    orders = Deliveries(database, {"key": ["id"]})
    orders.run(f"CREATE TABLE orders (id bigint PRIMARY KEY, v {type_})")
    given = pa.table([[1], [value]], schema=pa.schema([("id", pa.int64()), ("v", pa.string())]))
    if fits:
        assert orders.deliver(given) == Outcome(created=1)
        assert orders.deliver(given) == Outcome(equal=1)
        return
    with pytest.raises(
        StreamFailed, match=r"column v .* does not hold the value exactly, in the row with key id=1"
    ) as failed:
        orders.deliver(given)
    assert value not in str(failed.value)
    assert orders.rows() == []


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_a_commit_that_died_anywhere_is_done_once(database: str, deletes: str) -> None:
    """At each of its points, with every kind of row, deletes too; the next attempt brings all of it, and counts it."""
    options = {**OPTIONS, "deletes": deletes} | ({"deleted_at": "gone"} if deletes == "soft" else {})
    orders = Deliveries(database, options)
    orders.deliver(rows(*(row(n, 1) for n in range(1, 9))))
    for at_call, point in enumerate(("part_written", "moved", "merged", "landed")):
        minute = 10 * (at_call + 1)
        key = 100 + at_call
        given = rows(row(1, minute, amount=f"{minute}.00"), row(2 + at_call, minute, change="delete"), row(key, minute))
        landed, orders.probe = orders.last, Crashing(at_call)
        with pytest.raises(Crash, match=point):
            orders.deliver(given)
        orders.last, orders.probe = landed, NoProbe()
        if point != "landed":
            assert orders.deliver(given) == Outcome(created=1, updated=1, deleted=1)
        alive = "gone IS NULL" if deletes == "soft" else "true"
        found = orders.rows(
            f"SELECT id, amount FROM orders WHERE {alive} AND (id < 2 OR id >= 2 + {at_call}) ORDER BY 1"
        )
        assert found[0] == (1, Decimal(f"{minute}.00"))
        assert [id_ for id_, _ in found[1:]] == [*range(3 + at_call, 9), *range(100, key + 1)]
    told = "SELECT number, outcome ->> 'deleted' FROM penstock_sink.slices ORDER BY number"
    assert orders.rows(told) == [(1, None), *((n, "1") for n in range(2, 6))]


def test_keys_that_another_session_inserts_meanwhile(database: str) -> None:
    """They were not there when they were looked for; once the other session has committed, the newer row stays."""
    orders = Deliveries(database, OPTIONS)
    orders.deliver(rows(row(1, 1)))
    given = rows(*(row(n, 10, amount="2.00") for n in (5, 6, 7)))
    outcomes: list[Outcome] = []
    way = threading.Thread(target=lambda: outcomes.append(orders.deliver(given)))
    with psycopg.connect(database) as other:
        other.execute(
            "INSERT INTO orders (id, tenant, amount, seen, updated_at) VALUES (5, 'a', 9, 0, %s), (6, 'a', 9, 0, %s)",
            [START, START + timedelta(days=1)],
        )
        way.start()
        while orders.rows("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)]:
            assert way.is_alive()
        other.commit()
    way.join(60)
    assert outcomes == [Outcome(created=1, updated=1, stale=1)]
    found = {1: Decimal("1.00"), 5: Decimal("2.00"), 6: Decimal("9.00"), 7: Decimal("2.00")}
    assert dict(orders.rows("SELECT id, amount FROM orders")) == found

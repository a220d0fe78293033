"""Windows by snapshots: transactions that commit late or in another order than they began, folded as SQL has them.

Each mistake that design and experience know is made once here, as a mutant, and must be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pytest
from psycopg import sql
from tests.sources.outbox.shops import SCHEMA, TRUTH, Shop, mark_of

from penstock.core.content import Content
from penstock.ports import Budget
from penstock.sources.outbox import windows
from penstock.sources.outbox.marks import Bound, OutboxMark, newest_ended, oldest_open
from penstock.sources.outbox.windows import Window

Break = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def shop(database: str) -> Shop:
    shop = Shop(database)
    shop.execute(SCHEMA)
    shop.apply()
    return shop


def overtake(shop: Shop) -> None:
    """A transaction with a low number overwrites a row after one with a higher number, with a third one between."""
    shop.execute("INSERT INTO images VALUES (1, 'i'), (2, 'i'), (3, 'i')")
    shop.read()
    with ExitStack() as stack:
        low, between, high = (stack.enter_context(shop.connect()) for _ in range(3))
        low.execute("UPDATE images SET url = 'b' WHERE id = 2")
        between.execute("UPDATE images SET url = 'c' WHERE id = 3")
        high.execute("UPDATE images SET url = 'high' WHERE id = 1")
        high.commit()
        low.execute("UPDATE images SET url = 'low' WHERE id = 1")
        low.commit()
        shop.read()
        between.commit()
    shop.read()


def commit_late(shop: Shop) -> None:
    """A transaction takes the lowest id and commits last, two runs later."""
    shop.execute("INSERT INTO images VALUES (1, 'i'), (2, 'i'), (3, 'i')")
    shop.read()
    with shop.connect() as late:
        late.execute("UPDATE images SET url = 'late' WHERE id = 1")
        for run in ("one", "two"):
            shop.execute(f"UPDATE images SET url = '{run}' WHERE id IN (2, 3)")
            shop.read()
    shop.read()


def be_open_alone(shop: Shop) -> None:
    """A transaction that is open while a run reads has the highest number of all, and an id below the last one."""
    shop.execute("INSERT INTO images VALUES (1, 'i'), (2, 'i')")
    with shop.connect() as late:
        shop.read(prepared=lambda: late.execute("UPDATE images SET url = 'late' WHERE id = 1"))
    shop.execute("INSERT INTO images VALUES (4)")
    shop.read()


def window_by_xmin(monkeypatch: pytest.MonkeyPatch) -> None:
    def condition(window: Window, stream: str) -> sql.Composed:
        text = "o.stream = {} AND o.id > {} AND o.xid::text::bigint >= {} AND o.xid::text::bigint < {}"
        bounds = (oldest_open(window.before), oldest_open(window.snapshot))
        return sql.SQL(text).format(*map(sql.Literal, (stream, window.after, *bounds)))

    monkeypatch.setattr(Window, "condition", condition)


def order_by_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "ORDER", sql.SQL("o.xid, o.id"))


def bound_by_last_id(monkeypatch: pytest.MonkeyPatch) -> None:
    def after(mark: OutboxMark, window: str, bound: Bound | None) -> OutboxMark:
        return replace(mark, read=window, window=None, id=0, bound=None, low=bound[1] if bound else 0)

    monkeypatch.setattr(OutboxMark, "after", after)


def bound_by_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the highest number in a snapshot for the first transaction that has not begun."""
    right = OutboxMark.after

    def after(mark: OutboxMark, window: str, bound: Bound | None) -> OutboxMark:
        return right(mark, window, bound and (newest_ended(window) - 1, bound[1]))

    monkeypatch.setattr(OutboxMark, "after", after)


def window_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is visible now with a higher id than the last one: the mark knows no snapshot."""

    def condition(window: Window, stream: str) -> sql.Composed:
        return sql.SQL("o.stream = {} AND o.id > {}").format(sql.Literal(stream), sql.Literal(window.after))

    monkeypatch.setattr(Window, "condition", condition)
    bound_by_last_id(monkeypatch)


@pytest.mark.parametrize("scenario", [overtake, commit_late, be_open_alone])
def test_the_fold_is_the_table(shop: Shop, scenario: Callable[[Shop], None]) -> None:
    scenario(shop)
    assert shop.current() == shop.rows(TRUTH)


@pytest.mark.parametrize(
    ("scenario", "mistake"),
    [
        (overtake, window_by_xmin),
        (overtake, order_by_transaction),
        (commit_late, bound_by_last_id),
        (commit_late, window_by_id),
        (be_open_alone, bound_by_snapshot),
    ],
)
def test_a_mistake_is_seen(
    shop: Shop, scenario: Callable[[Shop], None], mistake: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    scenario(shop)
    assert shop.current() != shop.rows(TRUTH)


def test_a_prepared_transaction_is_delivered_when_it_commits(shop: Shop) -> None:
    shop.execute("INSERT INTO images VALUES (1, 'i'), (2, 'i')")
    gid = f"outbox of {shop.rows('SELECT current_database()')[0][0]}"
    with shop.connect(autocommit=True) as connection:
        connection.execute("BEGIN; UPDATE images SET url = 'prepared' WHERE id = 1")
        connection.execute(f"PREPARE TRANSACTION '{gid}'".encode())
    shop.execute("UPDATE images SET url = 'two' WHERE id = 2")
    shop.read()
    assert [row[1]["url"] for row in shop.current()] == ["i", "two"]
    shop.execute(f"COMMIT PREPARED '{gid}'")
    shop.read()
    assert shop.current() == shop.rows(TRUTH)


def test_savepoints_and_what_was_rolled_back(shop: Shop) -> None:
    with shop.connect() as connection:
        connection.execute("INSERT INTO images VALUES (1, 'i')")
        connection.execute("SAVEPOINT a; UPDATE images SET url = 'gone'")
        connection.execute("ROLLBACK TO a; UPDATE images SET url = 'kept'; SAVEPOINT b; INSERT INTO images VALUES (2)")
        connection.commit()
        connection.execute("DELETE FROM images")
        connection.rollback()
    shop.read()
    assert shop.current() == shop.rows(TRUTH)
    assert shop.current()[0][1]["url"] == "kept"


def test_a_window_in_slices_keeps_its_order_while_others_commit(shop: Shop) -> None:
    """A slice ends inside a window; the next run goes on in the same window, although there is a newer snapshot."""
    shop.execute("INSERT INTO images SELECT n, 'i' FROM generate_series(1, 20) n")
    two = Budget(1 << 20, rows=7, workers=2)
    with shop.connect() as late:
        late.execute("UPDATE images SET url = 'late' WHERE id = 20")
        assert shop.read(budget=two, most=1) == 7
        at = OutboxMark.of(mark_of(shop))
        late.commit()
    shop.execute("UPDATE images SET url = 'newest' WHERE id <= 3")
    assert shop.read(budget=two, most=1) == 7
    assert OutboxMark.of(mark_of(shop)).window == at.window
    while shop.read(budget=two):
        pass
    assert shop.current() == shop.rows(TRUTH)
    assert len(shop.documents["images"]) == 24


def test_the_lower_bound_grows_also_beside_a_transaction_that_stays_open(shop: Shop) -> None:
    """Whoever is always open holds the bound only as long as it is: not the whole outbox is read again and again."""
    lows = []
    with shop.connect() as first, shop.connect() as second:
        first.execute("INSERT INTO images VALUES (1)")
        for number, (opened, ended) in enumerate([(second, first), (first, second), (second, first)]):
            shop.execute(f"INSERT INTO images SELECT {number * 10 + 2}")
            shop.read()
            opened.execute(f"INSERT INTO images VALUES ({number * 10 + 3})".encode())
            ended.commit()
            shop.read()
            lows.append(OutboxMark.of(mark_of(shop)).low)
    shop.read()
    assert lows == sorted(set(lows))
    assert shop.current() == shop.rows(TRUTH)


def test_a_mark_says_which_transactions_it_covers(shop: Shop) -> None:
    shop.execute("INSERT INTO images VALUES (1, 'i')")
    shop.read()
    mark = OutboxMark.of(mark_of(shop))
    assert oldest_open(mark.read) == newest_ended(mark.read)
    assert mark.low == 1
    content = Content.parse(shop.last["images"].content)
    assert [column.name for column in content.columns] == ["id", "at", "document"]

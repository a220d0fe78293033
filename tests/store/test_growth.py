"""What a store of many slices and runs takes: contents once, and of the past only what it is to keep."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.contracts.store_contract import NOW, deliver, take

from penstock.core.content import Column, Content
from penstock.core.history import HistoryLimits
from penstock.core.marks import Mark, Position
from penstock.core.slices import following
from penstock.core.types import Plain
from penstock.errors import StoreRefused
from penstock.ports import Lease, Store
from penstock.store import open_store

#: about 10 kB, as a table of 60 columns has it
WIDE = Content(tuple(Column(f"column_{number}", Plain.STRING, "x" * 120) for number in range(60)))


def move(store: Store, lease: Lease, at: Position | None, number: int, content: Content = WIDE) -> Position:
    mark = Mark.of({"key": str(number)})
    return deliver(store, lease, following(at, pipeline="shop", stream="orders", upto=mark, content=content), rows=1)


def test_a_content_is_kept_once_however_many_slices_have_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(open_store(str(path))) as store:
        lease, at = take(store), None
        for number in range(200):
            at = move(store, lease, at, number)
    # Without it a slice takes 20 kB: its content in the slice and in the history.
    assert path.stat().st_size < 200 * 1500
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM contents").fetchone() == (1,)


def test_a_content_that_nothing_names_any_more_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(open_store(str(path), limits=HistoryLimits(changes=20))) as store:
        lease, at = take(store), None
        for number in range(60):
            at = move(store, lease, at, number, Content((Column(f"c{number}", Plain.INT64),)))
        assert len(store.history("shop", "orders")) == 20
    with closing(sqlite3.connect(path)) as connection:
        left, needed = (
            {row[0] for row in connection.execute(f"SELECT {column} FROM {table}")}
            for column, table in (("hash", "contents"), ("content", "history"))
        )
    assert needed <= left
    assert len(left) <= 22


def test_a_content_that_is_gone_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(open_store(str(path))) as store:
        move(store, take(store), None, 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM contents")
    with (
        closing(open_store(str(path))) as store,
        pytest.raises(StoreRefused, match="the content of slice 1 of stream orders is missing"),
    ):
        store.state("shop", "orders")


def test_runs_and_changes_at_their_limits_take_no_more_space(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    sizes = []
    with closing(open_store(str(path), limits=HistoryLimits(changes=50, runs=50))) as store:
        lease, at = take(store), None
        for number in range(300):
            run = f"r{number}"
            store.start_run(lease, run, now=NOW)
            at = move(store, lease, at, number)
            store.save_progress(lease, run, totals="{}", streams={"orders": "{}"})
            store.end_run(lease, run, now=NOW, status="complete", has_more=False, totals="{}", streams={})
            if number in (149, 299):
                with closing(sqlite3.connect(path)) as connection:
                    pages, free = (
                        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count")
                    )
                sizes.append(pages - free)
    assert sizes[1] <= sizes[0] + 2

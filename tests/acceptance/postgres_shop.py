"""The shop synced into tables of the same Postgres: how each stream lands, and what must be there afterwards."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import psycopg

from penstock.core.outcome import Outcome
from penstock.store import open_store
from tests.acceptance.shop import Shop

PIPELINE = """
pipelines:
  shop:
    source: {{type: postgres, url: "${{DATABASE_URL}}"}}
    sink: {{type: postgres, url: "${{DATABASE_URL}}", schema: copies, lock_timeout: {lock_timeout}}}
    slice_bytes: 65536
    lease_seconds: {lease}
    streams:
      orders: {{{stream}}}
"""

#: by mode: how the stream lands
MODES = {
    "append": "cursor: updated_at, tiebreaker: id, mode: append",
    "upsert": "cursor: updated_at, tiebreaker: id, newer_than: updated_at",
    "replace": "mode: replace, accept_drop: true",
}


def open_shop(url: str, folder: Path, mode: str, *, lease: float = 30, lock_timeout: float = 30) -> Shop:
    shop = Shop.open(url, folder)
    pipeline = PIPELINE.format(stream=MODES[mode], lease=lease, lock_timeout=lock_timeout)
    (folder / "shop.yaml").write_text(pipeline)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE SCHEMA copies")
    return shop


def count(url: str, query: str) -> int:
    with psycopg.connect(url) as db:
        row = db.execute(query.encode()).fetchone()
    assert row
    return int(row[0])


def kept(folder: Path) -> dict[str, int]:
    """What became of all rows, as the store tells it of the stream and of its changes."""
    with closing(open_store(".penstock/store.db", folder=str(folder))) as store:
        total = store.state("shop", "orders").outcome
        changes = [change.outcome for change in store.history("shop", "orders", most=1000)]
    assert total is not None
    assert sum((outcome for outcome in changes if outcome), Outcome()) == total
    return asdict(total)


def check(url: str, mode: str, folder: Path) -> None:
    """Each version once and the newest of every order there; each slice once in the ledger; nothing left aside.

    And the store has counted each row by what became of it, as the ledger has.
    """
    version = "id, customer_id, amount, note, updated_at"
    wanted, landed = "SELECT * FROM public.orders", "SELECT * FROM copies.orders"
    if mode == "append":
        doubled = f"SELECT count(*) - count(DISTINCT ({version})) FROM copies.orders"
        assert count(url, doubled) == 0
        assert count(url, "SELECT (SELECT sum(rows) FROM penstock_sink.slices) - count(*) FROM copies.orders") == 0
        landed = "SELECT DISTINCT ON (id) * FROM copies.orders ORDER BY id, updated_at DESC"
    for left, right in ((wanted, landed), (landed, wanted)):
        missing = f"SELECT {version} FROM ({left}) l EXCEPT ALL SELECT {version} FROM ({right}) r"
        assert count(url, f"SELECT count(*) FROM ({missing}) x") == 0
    check_ledger(url, folder)


def check_ledger(url: str, folder: Path) -> None:
    """Each slice once, each after the one before it, each with all its rows accounted for; nothing left aside."""
    in_order = "SELECT count(*) FROM penstock_sink.slices s JOIN penstock_sink.slices p ON s.previous = p.id"
    slices = count(url, "SELECT count(*) FROM penstock_sink.slices")
    assert count(url, in_order) == slices - 1
    assert count(url, "SELECT max(number) FROM penstock_sink.slices") == slices
    assert count(url, "SELECT number FROM penstock_sink.ledger JOIN penstock_sink.slices USING (number, id)") == slices
    told = "SELECT sum(rows - (SELECT sum(v::bigint) FROM jsonb_each_text(outcome) o (k, v))) FROM penstock_sink.slices"
    beyond = "SELECT coalesce(sum((outcome ->> 'deleted')::bigint), 0) FROM penstock_sink.slices WHERE kind = 'refresh'"
    assert count(url, told) + count(url, beyond) == 0
    for name, number in kept(folder).items():
        summed = f"SELECT coalesce(sum((outcome ->> '{name}')::bigint), 0) FROM penstock_sink.slices"
        assert (name, count(url, summed)) == (name, number)
    assert count(url, r"SELECT count(*) FROM pg_class WHERE relname LIKE 's\_%' AND relkind = 'r'") == 0

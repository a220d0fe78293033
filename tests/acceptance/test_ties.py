"""Ties: most rows share one `updated_at`, and a slice is far smaller than the tie. Every row arrives, each once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq

from tests.acceptance.shop import Shop

ROWS, TIED = 300_000, 250_000
TIE = "2026-01-01 12:00:00+00"

#: ids in no order (300,007 is a prime), the tie between rows before it and rows after it
ORDERS = """
    INSERT INTO orders
    SELECT g * 7919 % 300007, g % 97, g % 100000 / 100.0, 'note ' || md5(g::text),
        timestamptz '2026-01-01 12:00+00'
            + (least(g - 25001, 0) + greatest(g - 275000, 0)) * interval '1 second'
    FROM generate_series(1::bigint, 300000) g
"""


def tied(url: str, folder: Path, *, slice_bytes: int, mover: str) -> Shop:
    shop = Shop.open(url, folder, rows=0, slice_bytes=slice_bytes, mover=mover)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(ORDERS)
        db.execute("ANALYZE orders")
        counts = db.execute("SELECT count(*), count(*) FILTER (WHERE updated_at = %s) FROM orders", (TIE,)).fetchone()
    assert counts == (ROWS, TIED)
    return shop


def run(shop: Shop, *limits: str) -> list[str]:
    """Run once; the cursors of the marks, slice by slice."""
    done = shop.command.run("run", "shop.yaml", "--json", *limits)
    assert done.code == 0, done.err
    return [cursor_of(message) for message in done.messages if message["type"] == "state"]


def cursor_of(state: dict[str, Any]) -> str:
    cursor: str = json.loads(state["mark"])["key"][0]
    return cursor


def arrived(shop: Shop) -> int:
    return sum(pq.read_metadata(path).num_rows for path in (shop.folder / "out" / "orders").rglob("*.parquet"))


def test_dozens_of_slices_within_one_tie(database: str, tmp_path: Path) -> None:
    shop = tied(database, tmp_path, slice_bytes=500_000, mover="loop")
    # The first run ends in the midst of the tie, so that another process goes on from there.
    cursors = run(shop, "--max-rows", "100000")
    assert cursors[-1] == TIE
    cursors += run(shop)
    assert cursors.count(TIE) > 36
    assert arrived(shop) == ROWS
    compared = shop.compared()
    assert compared.same, compared
    assert run(shop) == []


def test_on_spark_a_slice_is_cut_into_parts_within_the_tie(database: str, tmp_path: Path) -> None:
    shop = tied(database, tmp_path, slice_bytes=8_000_000, mover="spark")
    cursors = run(shop)
    assert cursors.count(TIE) >= 2
    assert arrived(shop) == ROWS
    compared = shop.compared()
    assert compared.same, compared

"""SIGKILL from outside at every point of a run into Postgres; rows arrive and change before the restart."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import psycopg
import pytest

from penstock.core.outcome import Outcome
from penstock.store import open_store
from penstock.testing.faults import POSTGRES_RUN_POINTS
from penstock.testing.postgres import PostgresServer
from tests.acceptance.matrix import ONCE
from tests.acceptance.shop import Shop

PIPELINE = """
pipelines:
  shop:
    source: {{type: postgres, url: "${{DATABASE_URL}}"}}
    sink: {{type: postgres, url: "${{DATABASE_URL}}", schema: copies}}
    slice_bytes: 65536
    streams:
      orders: {{{stream}}}
"""

#: by mode: how the stream lands
MODES = {
    "append": "cursor: updated_at, tiebreaker: id, mode: append",
    "upsert": "cursor: updated_at, tiebreaker: id, newer_than: updated_at",
    "replace": "accept_drop: true",
}


def open_shop(url: str, folder: Path, mode: str) -> Shop:
    shop = Shop.open(url, folder)
    (folder / "shop.yaml").write_text(PIPELINE.format(stream=MODES[mode]))
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
    if mode == "append":
        doubled = f"SELECT count(*) - count(DISTINCT ({version})) FROM copies.orders"
        assert count(url, doubled) == 0
        landed = "SELECT DISTINCT ON (id) * FROM copies.orders ORDER BY id, updated_at DESC"
    else:
        landed = "SELECT * FROM copies.orders"
    for left, right in (("public.orders", f"({landed}) x"), (f"({landed}) x", "public.orders")):
        missing = f"SELECT count(*) FROM (SELECT {version} FROM {left} EXCEPT SELECT {version} FROM {right}) y"
        assert count(url, missing) == 0
    in_order = "SELECT count(*) FROM penstock_sink.slices s JOIN penstock_sink.slices p ON s.previous = p.id"
    slices = count(url, "SELECT count(*) FROM penstock_sink.slices")
    assert count(url, in_order) == slices - 1
    assert count(url, "SELECT max(number) FROM penstock_sink.slices") == slices
    told = "SELECT sum(rows - (SELECT sum(v::bigint) FROM jsonb_each_text(outcome) o (k, v))) FROM penstock_sink.slices"
    beyond = "SELECT coalesce(sum((outcome ->> 'deleted')::bigint), 0) FROM penstock_sink.slices WHERE kind = 'refresh'"
    assert count(url, told) + count(url, beyond) == 0
    for name, number in kept(folder).items():
        summed = f"SELECT coalesce(sum((outcome ->> '{name}')::bigint), 0) FROM penstock_sink.slices"
        assert (name, count(url, summed)) == (name, number)
    assert count(url, r"SELECT count(*) FROM pg_class WHERE relname LIKE 's\_%' AND relkind = 'r'") == 0


CELLS = [
    (mode, point)
    for mode in MODES
    for point in POSTGRES_RUN_POINTS
    # A refresh has one slice; the steps around the sink are the same for all.
    if mode == "upsert" or point.startswith("postgres.")
]


@pytest.mark.parametrize(("mode", "point"), CELLS)
def test_killed_at(mode: str, point: str, database: str, tmp_path: Path) -> None:
    shop = open_shop(database, tmp_path, mode)
    nth = 1 if mode == "replace" or point in (*ONCE, "gate.settled") else 2
    found = shop.command.kill_at(point, "run", "shop.yaml", nth=nth)
    assert found["point"] == point
    shop.arrive(3001, 3500)
    shop.change(every=7, at=1)
    done = shop.command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    check(database, mode, tmp_path)


def test_the_server_dies_between_putting_aside_and_merging(tmp_path: Path) -> None:
    with PostgresServer() as server:
        url = server.database()
        shop = open_shop(url, tmp_path, "upsert")
        with shop.command.frozen("run", "shop.yaml", point="gate.moved", nth=2) as run:
            server.crash()
            server.start()
        assert run.end().code in (1, 3)
        shop.arrive(3001, 3200)
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        check(url, "upsert", tmp_path)

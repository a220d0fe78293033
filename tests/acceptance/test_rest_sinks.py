"""Lists of an API into every sink, killed at random while objects arrive; and once on Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.acceptance.rest_shop import FILES, RestShop

STREAMS = ("charges", "refunds", "payouts")
KILLS = 4
POINTS = ("rest.page_spooled", "gate.spooled", "gate.intended", "gate.moved", "gate.committed", "gate.advanced")
LAKE = "{type: lake, warehouse: lake}"
POSTGRES = '{type: postgres, url: "${DATABASE_URL}"}'


def lake_ids(folder: Path, stream: str) -> list[str]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/lake/catalog.db")
    try:
        found: list[str] = catalog.load_table(f"shop.{stream}").scan().to_arrow().column("id").to_pylist()
    finally:
        catalog.close()
    return found


def postgres_ids(url: str, stream: str) -> list[str]:
    with psycopg.connect(url) as db:
        return [id_ for (id_,) in db.execute(f"SELECT id FROM {stream}".encode()).fetchall()]


@pytest.mark.parametrize("sink", ["lake", "postgres"])
def test_killed_at_random_while_objects_arrive(sink: str, database: str, tmp_path: Path) -> None:
    chance = random.Random(16)
    read: Callable[[str], list[str]] = (
        (lambda stream: lake_ids(tmp_path, stream))
        if sink == "lake"
        else (lambda stream: postgres_ids(database, stream))
    )
    with RestShop.open(tmp_path, {name: {} for name in STREAMS}, environment={"DATABASE_URL": database}) as shop:
        options = (
            "{time: {lag: 0}, columns: {amount: int64}}"
            if sink == "lake"
            else ("{time: {lag: 0}, columns: {amount: int64}, mode: append, create: true}")
        )
        shop.write(dict.fromkeys(STREAMS, options), sink=LAKE if sink == "lake" else POSTGRES, slice_bytes=1 << 17)
        for name in STREAMS:
            shop.server.arrive(name, 2500)
        for _ in range(KILLS):
            shop.command.kill_at(chance.choice(POINTS), "run", "shop.yaml", nth=chance.randint(1, 4))
            shop.server.arrive(chance.choice(STREAMS), 200)
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        for name in STREAMS:
            found = Counter(read(name))
            found.subtract(id_ for id_, _ in shop.server.objects(name))
            assert {id_: count for id_, count in found.items() if count} == {}


def test_on_spark(tmp_path: Path) -> None:
    with RestShop.open(tmp_path, mover="spark") as shop:
        shop.write(sink=FILES, slice_bytes=1 << 20)
        shop.server.arrive("charges", 5000)
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        assert shop.differences() == {}

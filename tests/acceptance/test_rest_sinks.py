"""Lists of an API into every sink, killed at random while objects arrive; and once on Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.acceptance.rest_shop import FILES, RestShop

STREAMS = ("charges", "refunds", "payouts")
KILLS = 4
POINTS = ("rest.page_spooled", "gate.spooled", "gate.intended", "gate.moved", "gate.committed", "gate.advanced")
#: every point between page and advance
GATHERED = (*POINTS[:1], "gate.gathered", *POINTS[1:])
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


@contextmanager
def opened(
    sink: str, database: str, folder: Path
) -> Iterator[tuple[RestShop, Callable[[], dict[str, dict[str, int]]]]]:
    """A shop that syncs three lists into a sink, and what finds the objects that are missing there or came twice."""
    mode = "" if sink == "lake" else ", mode: append, create: true"
    options = f"{{time: {{lag: 0}}, columns: {{amount: int64}}{mode}}}"
    with RestShop.open(folder, {name: {} for name in STREAMS}, environment={"DATABASE_URL": database}) as shop:
        shop.write(dict.fromkeys(STREAMS, options), sink=LAKE if sink == "lake" else POSTGRES, slice_bytes=1 << 17)

        def compare() -> dict[str, dict[str, int]]:
            wrong = {}
            for name in STREAMS:
                found = Counter(lake_ids(folder, name) if sink == "lake" else postgres_ids(database, name))
                found.subtract(id_ for id_, _ in shop.server.objects(name))
                wrong[name] = {id_: count for id_, count in found.items() if count}
            return {name: ids for name, ids in wrong.items() if ids}

        yield shop, compare


@pytest.mark.parametrize("sink", ["lake", "postgres"])
def test_killed_at_random_while_objects_arrive(sink: str, database: str, tmp_path: Path) -> None:
    chance = random.Random(16)
    with opened(sink, database, tmp_path) as (shop, compare):
        for name in STREAMS:
            shop.server.arrive(name, 2500)
        for _ in range(KILLS):
            shop.command.kill_at(chance.choice(POINTS), "run", "shop.yaml", nth=chance.randint(1, 4))
            shop.server.arrive(chance.choice(STREAMS), 200)
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        assert compare() == {}


@pytest.mark.parametrize("sink", ["lake", "postgres"])
def test_killed_at_every_point_while_objects_arrive(sink: str, database: str, tmp_path: Path) -> None:
    """At each point once, in one table; nothing is missing or there twice after any of them."""
    with opened(sink, database, tmp_path) as (shop, compare):
        shop.server.arrive(STREAMS[0], 500)
        for point in GATHERED:
            for name in STREAMS:
                shop.server.arrive(name, 300)
            assert shop.command.kill_at(point, "run", "shop.yaml", nth=2)["point"] == point
            shop.server.arrive(STREAMS[0], 150)
            done = shop.command.run("run", "shop.yaml")
            assert done.code == 0, f"after {point}: {done.err}"
            assert compare() == {}, f"after {point}"


def test_on_spark(tmp_path: Path) -> None:
    with RestShop.open(tmp_path, mover="spark") as shop:
        shop.write(sink=FILES, slice_bytes=1 << 20)
        shop.server.arrive("charges", 5000)
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        assert shop.differences() == {}

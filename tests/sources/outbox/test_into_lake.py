"""Outbox to state table: many writers while slices are applied, and at the end the lake has what the tables have."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.harness.doubles import Clock, LoopMover
from tests.sources.outbox.shops import SCHEMA, TRUTH, Shop
from tests.sources.outbox.test_concurrent import write
from tests.store.memory_store import MemoryStore

from penstock.core.messages import Message, StreamStatus
from penstock.engine import Engine, Settings
from penstock.lake.lake import Lake
from penstock.lake.tables import load_table
from penstock.links.spark.session_provider import SparkSessionProvider
from penstock.ports import Context, NoProbe, Owner
from penstock.sinks import lake as lake_sink

WRITERS = 8
_numbers = count(1)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class ShopInLake:
    """A pipeline from a shop's outbox into a state table."""

    def __init__(self, shop: Shop, folder: Path, spark: SparkSessionProvider) -> None:
        self.shop, self.folder, self.spark = shop, folder, spark
        self.store, self.options = MemoryStore(), lake_sink.Options()
        self.streams = {"images": lake_sink.StreamOptions(mode="state")}

    @property
    def lake(self) -> Lake:
        return Lake.from_options(self.options, folder=str(self.folder), pipeline="shop")

    def run(self) -> list[Message]:
        heard: list[Message] = []
        context = Context("shop", str(self.folder), NoProbe(), spark=self.spark, mover=LoopMover)
        Engine(
            "shop",
            source=self.shop.source(),
            sink=lake_sink.build(self.options, self.streams, context),
            store=self.store,
            mover=LoopMover,
            clock=Clock(),
            probe=NoProbe(),
            owner=Owner(f"owner{next(_numbers)}", "here", 1),
            gone=lambda _: True,
            emit=heard.append,
            settings=Settings(heartbeat=False),
        ).run()
        assert [m for m in heard if isinstance(m, StreamStatus) and m.status in ("error", "skip")] == []
        return heard

    def current(self) -> list[tuple[Any, ...]]:
        """The state table as rows of `TRUTH`."""
        table = load_table(self.lake, "images")
        assert table is not None
        found = []
        for row in table.scan().to_arrow().to_pylist():
            if row.pop("_tombstone"):
                continue
            row.pop("_ingest_seq")
            key, tags = row.pop("id"), row.pop("tags")
            row["size"] = None if row["size"] is None else str(row["size"])
            found.append((key, {name: value for name, value in row.items() if value is not None}, tags))
        return sorted(found, key=lambda row: row[0])


def test_writers_while_slices_are_applied(database: str, tmp_path: Path, spark_provider: SparkSessionProvider) -> None:
    shop = Shop(database, keep_hours=0)
    shop.execute(SCHEMA)
    shop.apply()
    lake = ShopInLake(shop, tmp_path, spark_provider)
    shop.execute("INSERT INTO posts SELECT n, 'post ' || n FROM generate_series(1, 3) n")
    done = threading.Event()

    def apply() -> int:
        runs = 0
        while not done.is_set():
            lake.run()
            runs += 1
        return runs

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        runs = pool.submit(apply)
        writers = [pool.submit(write, shop, 9000 + number) for number in range(WRITERS)]
        try:
            with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                shop.execute("SET lock_timeout = '1s'; TRUNCATE images, image_tags")
            committed = sum(each.result() for each in writers)
        finally:
            done.set()
        assert runs.result() > 0
    shop.execute("UPDATE images SET size = 12.5 WHERE id % 2 = 0", "DELETE FROM posts WHERE id = 3")
    lake.run()
    assert committed > 0
    truth = shop.rows(TRUTH)
    assert truth
    assert lake.current() == truth

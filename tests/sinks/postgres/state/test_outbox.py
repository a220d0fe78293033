"""From an outbox into a state table of another database, with many writers at work: the table equals its sources."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from tests.docs.pages import TOP, blocks
from tests.harness.faults import Command
from tests.harness.postgres import PostgresServer
from tests.sinks.postgres.runs import PipelineRuns, context, open_sink
from tests.sources.outbox.shops import SCHEMA, TRUTH, Shop
from tests.sources.outbox.test_concurrent import write
from tests.sources.tables import rows

from penstock.ports import Sink, Source
from penstock.sources import outbox

WRITERS = 50
#: the state as rows of `TRUTH`
STATE = """
SELECT id, jsonb_strip_nulls(jsonb_build_object(
           'url', url, 'post_id', post_id, 'size', size::text, 'url_length', url_length,
           'nsfw', nsfw, 'post_title', post_title)), to_jsonb(tags)
FROM images ORDER BY id
"""


class Pipeline:
    """From the shop's outbox into a database."""

    def __init__(self, shop: Shop, into: str) -> None:
        self.shop, self.into, self.runs = shop, into, PipelineRuns()

    def source(self) -> Source:
        return outbox.build(self.shop.options, self.shop.streams, context("shop"))

    def sink(self, **options: Any) -> Sink:
        return open_sink(self.into, pipeline="shop", stream="images", mode="state", **options)

    def run(self, **options: Any) -> list[str]:
        return self.runs.run("shop", self.source(), self.sink(**options), slice_bytes=64 << 10)

    def state(self) -> list[tuple[Any, ...]]:
        return rows(self.into, STATE)


def make(database: str, postgres_server: PostgresServer) -> Pipeline:
    shop = Shop(database, keep_hours=0)
    shop.execute(SCHEMA)
    shop.apply()
    pipeline = Pipeline(shop, postgres_server.database())
    assert pipeline.run() == []
    return pipeline


def test_changes_of_all_kinds(database: str, postgres_server: PostgresServer) -> None:
    pipeline = make(database, postgres_server)
    shop = pipeline.shop
    for statements in (
        [
            "INSERT INTO posts VALUES (1, 'one', false)",
            "INSERT INTO images VALUES (1, 'a', 1, 1.50), (2, 'b', 1, NULL)",
        ],
        ["INSERT INTO image_tags VALUES (1, 9), (1, 10), (2, 9)", "UPDATE posts SET title = 'uno', nsfw = true"],
        ["UPDATE images SET id = 7 WHERE id = 2", "DELETE FROM image_tags WHERE tag_id = 10"],
        ["DELETE FROM images WHERE id = 1", "TRUNCATE image_tags"],
        ["ALTER TABLE images ALTER COLUMN url TYPE varchar(50)", "TRUNCATE images, image_tags, posts"],
    ):
        shop.execute(*statements)
        assert pipeline.run() == []
        assert pipeline.state() == shop.rows(TRUTH)
    types = rows(
        pipeline.into,
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'images'::regclass AND attnum > 0",
    )
    assert dict(types)["size"] == "numeric(10,2)"
    assert dict(types)["tags"] == "integer[]"


def test_many_writers(database: str, postgres_server: PostgresServer) -> None:
    pipeline = make(database, postgres_server)
    shop = pipeline.shop
    shop.execute("INSERT INTO posts SELECT n, 'post ' || n FROM generate_series(1, 3) n")
    ended, problems = threading.Event(), list[str]()

    def sync() -> None:
        while not ended.is_set():
            problems.extend(pipeline.run())

    with ThreadPoolExecutor(1) as consumer:
        consuming = consumer.submit(sync)
        try:
            with ThreadPoolExecutor(WRITERS) as pool:
                counts = [pool.submit(write, shop, 7000 + number) for number in range(WRITERS)]
                time.sleep(0.5)
                with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                    shop.execute("SET lock_timeout = '2s'; TRUNCATE images, image_tags")
                assert sum(each.result() for each in counts) > WRITERS
        finally:
            ended.set()
        consuming.result()
    assert problems + pipeline.run() == []
    assert pipeline.state() == shop.rows(TRUTH)
    assert rows(pipeline.into, "SELECT count(*) FROM penstock_sink.early_ops") == [(0,)]
    assert rows(pipeline.into, "SELECT count(*) FROM penstock_sink.quarantine") == [(0,)]


def test_the_file_of_the_page(database: str, postgres_server: PostgresServer, tmp_path: Path) -> None:
    (block,) = blocks(TOP / "docs" / "sinks" / "postgres-state.md", "yaml")
    (tmp_path / "images.yaml").write_text(block.text)
    shop, into = Shop(database), postgres_server.database()
    shop.execute(SCHEMA)
    command = Command(tmp_path, "loop", environment={"DATABASE_URL": database, "STORE_URL": into})
    for words in ("triggers apply images.yaml", "run images.yaml", "check images.yaml"):
        done = command.run(*words.split())
        assert done.code == 0, done.out + done.err
    shop.execute(
        "INSERT INTO posts VALUES (1, 'one')",
        "INSERT INTO images VALUES (7, 'a.png', 1), (8, 'b.png', 1)",
        "INSERT INTO image_tags VALUES (7, 3)",
        "UPDATE posts SET title = 'uno'",
        "DELETE FROM images WHERE id = 8",
    )
    done = command.run("run", "images.yaml")
    assert done.code == 0, done.err
    assert rows(into, "SELECT * FROM images") == [(7, "a.png", 1, "uno", [3])]

"""Many writers at once, with late commits, savepoints, rollbacks, prepared transactions and TRUNCATE, while two
pipelines read all the time: at the end the fold of each is the table.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from tests.sources.outbox.shops import SCHEMA, TRUTH, Shop

from penstock.ports import Budget

WRITERS = 16
TRANSACTIONS = 12
IMAGES = 12

STATEMENTS = (
    "INSERT INTO images (id, url, post_id) VALUES (%(id)s, %(text)s, %(post)s) ON CONFLICT (id) DO UPDATE"
    " SET url = excluded.url, post_id = excluded.post_id",
    "UPDATE images SET url = %(text)s WHERE id = %(id)s",
    "UPDATE images SET post_id = %(post)s WHERE id = %(id)s",
    "DELETE FROM images WHERE id = %(id)s",
    "INSERT INTO image_tags SELECT %(id)s, %(tag)s, %(kind)s WHERE EXISTS (SELECT FROM images WHERE id = %(id)s)"
    " ON CONFLICT (image_id, tag_id) DO UPDATE SET kind = excluded.kind",
    "DELETE FROM image_tags WHERE image_id = %(id)s",
    "UPDATE posts SET title = %(text)s WHERE id = %(post)s",
    "UPDATE images SET id = id + 100 WHERE id = %(id)s AND NOT EXISTS (SELECT FROM images WHERE id = %(id)s + 100)",
)


def write(shop: Shop, seed: int) -> int:
    """Transactions of one writer; returns how many committed. Conflicts with other writers roll one back."""
    draw, committed = random.Random(seed), 0
    with shop.connect() as connection:
        for number in range(TRANSACTIONS):
            with suppress(psycopg.OperationalError, psycopg.IntegrityError):
                committed += _transaction(connection, draw, f"{shop.rows('SELECT current_database()')}{seed}.{number}")
            if not connection.closed:
                connection.rollback()
    return committed


def _transaction(connection: psycopg.Connection[Any], draw: random.Random, name: str) -> bool:
    connection.execute("SET LOCAL lock_timeout = '300ms'")
    for step in range(draw.randint(1, 3)):
        if draw.random() < 0.3:
            connection.execute(f"SAVEPOINT s{step}".encode())
            _change(connection, draw)
            if draw.random() < 0.5:
                connection.execute(f"ROLLBACK TO s{step}".encode())
        _change(connection, draw)
        time.sleep(draw.random() * 0.03)
    how = draw.random()
    if how < 0.15:
        connection.rollback()
        return False
    if how < 0.3:
        gid = name.replace("'", "")
        connection.execute(f"PREPARE TRANSACTION '{gid}'".encode())
        connection.rollback()
        time.sleep(draw.random() * 0.05)
        connection.autocommit = True
        connection.execute(f"COMMIT PREPARED '{gid}'".encode())
        connection.autocommit = False
        return True
    connection.commit()
    return True


def _change(connection: psycopg.Connection[Any], draw: random.Random) -> None:
    values = {
        "id": draw.randint(1, IMAGES),
        "post": draw.randint(1, 3),
        "tag": draw.randint(1, 4),
        "kind": draw.choice(("user", "auto")),
        "text": f"text {draw.randint(1, 999)}",
    }
    connection.execute(draw.choice(STATEMENTS).encode(), values)


@contextmanager
def reading(*shops: Shop) -> Iterator[None]:
    """Shops that are read in small slices, all the time, each in a thread of its own."""
    ended = threading.Event()

    def read(shop: Shop) -> None:
        while not ended.is_set():
            shop.read(budget=Budget(1 << 20, rows=7, workers=2))

    with ThreadPoolExecutor(len(shops)) as pool:
        threads = [pool.submit(read, shop) for shop in shops]
        try:
            yield
        finally:
            ended.set()
        for thread in threads:
            thread.result()


@pytest.mark.parametrize("seed", [1, 2])
def test_writers_and_readers_at_once(database: str, seed: int) -> None:
    shop = Shop(database, keep_hours=0)
    shop.execute(SCHEMA)
    shop.apply()
    other = Shop(database, pipeline="other", keep_hours=0)
    other.apply()
    shop.execute("INSERT INTO posts SELECT n, 'post ' || n FROM generate_series(1, 3) n")
    with reading(shop, other), ThreadPoolExecutor(WRITERS) as pool:
        counts = [pool.submit(write, shop, seed * 1000 + number) for number in range(WRITERS)]
        time.sleep(0.5)
        with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            shop.execute("SET lock_timeout = '1s'; TRUNCATE images, image_tags")
        assert sum(each.result() for each in counts) > WRITERS
    for each in (shop, other):
        each.read()
        assert each.current() == each.rows(TRUTH)
        assert each.folded().early == {}
    assert len(shop.slices) > 10
    assert sorted(shop.documents["images"]) == sorted(other.documents["images"])
    assert shop.rows("SELECT count(*) FROM penstock_outbox.outbox") == [(0,)]

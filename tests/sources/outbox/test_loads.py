"""First loads: rows that were there before the triggers, read by ranges while the application goes on writing.

The fold of everything that was delivered is the tables, whatever happened between two ranges, and however often a
slice was read again.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from tests.sources.outbox.shops import SCHEMA, TRUTH, Shop, mark_of

from penstock.ports import Budget
from penstock.sources.outbox.load import planning, reading
from penstock.sources.outbox.marks import OutboxMark
from penstock.sources.outbox.server import Server

FILL = (
    "INSERT INTO posts SELECT n, 'post ' || n FROM generate_series(1, 4) n",
    "INSERT INTO images SELECT n, 'image ' || n, 1 + n % 4, n FROM generate_series(1, 30) n",
    "INSERT INTO image_tags SELECT n, t, CASE WHEN (n + t) % 3 = 0 THEN 'auto' ELSE 'user' END"
    " FROM generate_series(1, 30) n, generate_series(1, 3) t",
)
#: what an application does between two ranges; keys go from the end of the table to its beginning, and back
CHANGES = (
    "INSERT INTO images (id, url, post_id) VALUES ({id}, 'new {n}', {post}) ON CONFLICT (id) DO UPDATE"
    " SET url = excluded.url, post_id = excluded.post_id",
    "UPDATE images SET url = 'changed {n}' WHERE id = {id}",
    "UPDATE images SET post_id = {post}, size = NULL WHERE id = {id}",
    "DELETE FROM images WHERE id = {id}",
    "DELETE FROM images WHERE id = {id}; INSERT INTO images VALUES ({id}, 'again {n}', {post})",
    "UPDATE images SET id = 31 - id WHERE id = {id} AND NOT EXISTS (SELECT FROM images WHERE id = 31 - {id})",
    "UPDATE images SET id = id + 100 WHERE id = {id} AND NOT EXISTS (SELECT FROM images WHERE id = 100 + {id})",
    "UPDATE images SET id = id - 100 WHERE id = {id} + 100 AND NOT EXISTS (SELECT FROM images WHERE id = {id})",
    "INSERT INTO image_tags SELECT {id}, {tag}, '{kind}' WHERE EXISTS (SELECT FROM images WHERE id = {id})"
    " ON CONFLICT (image_id, tag_id) DO UPDATE SET kind = excluded.kind",
    "DELETE FROM image_tags WHERE image_id = {id} AND tag_id = {tag}",
    "UPDATE image_tags SET tag_id = tag_id + 10 WHERE image_id = {id} AND tag_id = {tag}",
    "UPDATE posts SET title = 'title {n}', nsfw = NOT nsfw WHERE id = {post}",
    "INSERT INTO posts VALUES ({post}, 'back {n}') ON CONFLICT DO NOTHING",
    "DELETE FROM posts WHERE id = {post} AND {n} % 4 = 0",
    "UPDATE posts SET id = id + 4 WHERE id = {post} AND NOT EXISTS (SELECT FROM posts WHERE id = {post} + 4)",
    "TRUNCATE image_tags",
    "TRUNCATE images, image_tags",
    "DELETE FROM images WHERE id = {id}; ROLLBACK",
)
#: the last two are rare: they leave little to be loaded
WEIGHTS = [8] * (len(CHANGES) - 3) + [1, 1, 4]


class Application:
    """Changes at random; a transaction or two stay open for a while."""

    def __init__(self, shop: Shop, seed: int) -> None:
        self.shop, self.draw, self.number = shop, random.Random(seed), 0
        self.open: list[psycopg.Connection[Any]] = []

    def change(self) -> None:
        for _ in range(self.draw.choice((0, 0, 1, 2, 4))):
            self._change_once()
        while self.open and self.draw.random() < 0.3:
            self._end(self.open.pop(0))

    def _change_once(self) -> None:
        self.number += 1
        connection = self.shop.connect()
        statement = self.draw.choices(CHANGES, WEIGHTS)[0].format(
            id=self.draw.randint(1, 30),
            post=self.draw.randint(1, 4),
            tag=self.draw.randint(1, 4),
            kind=self.draw.choice(("user", "auto")),
            n=self.number,
        )
        with suppress(psycopg.OperationalError, psycopg.IntegrityError):
            connection.execute("SET lock_timeout = '20ms'")
            connection.execute(statement.encode())
            if "TRUNCATE" not in statement and len(self.open) < 2 and self.draw.random() < 0.3:
                self.open.append(connection)
                return
            connection.commit()
        connection.close()

    def _end(self, connection: psycopg.Connection[Any]) -> None:
        if self.draw.random() < 0.7:
            connection.commit()
        connection.close()

    def close(self) -> None:
        while self.open:
            self._end(self.open.pop())


@pytest.fixture
def shop(database: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(planning, "PART_BYTES", 1)
    # No server crashes here: what it shows need not be on its disk.
    monkeypatch.setattr(reading, "_wait_until_durable", lambda cursor: None)
    monkeypatch.setattr(Server, "wait_until_durable", lambda server, lsn: None)
    shop = Shop(database, first_load=True, keep_hours=0)
    shop.execute(SCHEMA, *FILL)
    shop.apply()
    return shop


def finish(shop: Shop) -> None:
    """Runs until nothing is left."""
    for _ in range(20):
        if not shop.read():
            return
    raise AssertionError("it never ends")


def states(shop: Shop) -> dict[str, str]:
    return {each.name: each.state for each in OutboxMark.of(mark_of(shop)).loads}


def test_rows_that_were_there_before(shop: Shop) -> None:
    shop.read()
    assert shop.current() == shop.rows(TRUTH)
    assert len(shop.current()) == 30
    assert set(states(shop).values()) == {"complete"}
    assert shop.read() == 0
    shop.execute("UPDATE images SET url = 'later' WHERE id = 3")
    assert shop.read() == 1
    assert shop.current() == shop.rows(TRUTH)


def test_what_a_load_says_is_what_the_triggers_say(shop: Shop) -> None:
    """A row that is inserted, and the same row that is loaded, give one document."""
    shop.read()
    loaded = [document for _, document in shop.documents["images"] if document["ops"][0]["op"] != "clear"]
    shop.execute("TRUNCATE posts, images, image_tags")
    shop.forget()
    shop.execute(*FILL)
    assert sorted(map(repr, loaded)) == sorted(map(repr, shop.written()))


@pytest.mark.parametrize("seed", range(5))
def test_an_application_that_goes_on_writing(shop: Shop, seed: int) -> None:
    application = Application(shop, seed)
    draw = random.Random(seed)
    budget = Budget(1 << 20, rows=draw.choice((7, 20, 200)), workers=2)
    for _ in range(4):
        shop.read(
            budget=budget,
            most=draw.choice((1, 3, 20)),
            prepared=application.change,
            meanwhile=application.change,
            killed=lambda: draw.random() < 0.2,
        )
    application.close()
    finish(shop)
    assert set(states(shop).values()) == {"complete"}
    assert shop.current() == shop.rows(TRUTH)
    assert shop.folded().early == {}
    ids = [id_ for id_, _ in shop.documents["images"]]
    assert len(set(ids)) == len(ids)

"""`penstock loads start`, `drop` and `clear` of one stream or one table, also in the middle of a slice."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.sources.outbox.shops import IMAGES, SCHEMA, TRUTH, Shop, mark_of
from tests.sources.outbox.test_loads import FILL, Application, finish, states

from penstock.ports import Budget
from penstock.sources.outbox.load import planning, reading
from penstock.sources.outbox.load.declared import Load, loads_of
from penstock.sources.outbox.load.requests import (
    choose_loads,
    clear_loads,
    drop_loads,
    read_requests,
    start_loads,
    with_requests,
)
from penstock.sources.outbox.marks import OutboxMark
from penstock.sources.outbox.registry import watched_since
from penstock.sources.outbox.server import Server

FEW = Budget(1 << 20, rows=10, workers=2)
TAGS = "public.image_tags.tags"


@pytest.fixture
def shop(database: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(planning, "PART_BYTES", 1)
    monkeypatch.setattr(reading, "_wait_until_durable", lambda cursor: None)
    monkeypatch.setattr(Server, "wait_until_durable", lambda server, lsn: None)
    shop = Shop(database, first_load=True, keep_hours=0)
    shop.execute(SCHEMA, *FILL)
    shop.apply()
    return shop


def loads(shop: Shop, server: Server) -> dict[str, tuple[Load, ...]]:
    source = shop.source()
    resolved = source._resolve()
    known = {table.name: table for table in resolved.tables}
    since, asked = watched_since(server, shop.pipeline), read_requests(server, shop.pipeline)
    return {
        name: with_requests(name, loads_of(entity, known, since), asked) for name, entity in resolved.entities.items()
    }


def ask(shop: Shop, request: Any, *tables: str, streams: tuple[str, ...] = ()) -> None:
    server = Server(shop.options, shop.context)
    try:
        request(server, shop.pipeline, choose_loads(loads(shop, server), "public", tables, streams))
    finally:
        server.close()


def fill_again(shop: Shop) -> None:
    """What a load alone can repair: the triggers do not see it."""
    shop.execute(
        "ALTER TABLE image_tags DISABLE TRIGGER USER; DELETE FROM image_tags WHERE tag_id = 2;"
        "INSERT INTO image_tags SELECT n, 9 FROM generate_series(1, 30) n",
        "DO $$ DECLARE t name; BEGIN FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'image_tags'::regclass"
        " AND NOT tgisinternal LOOP EXECUTE format('ALTER TABLE image_tags ENABLE ALWAYS TRIGGER %I', t);"
        " END LOOP; END $$",
    )


def test_one_table_is_loaded_again(shop: Shop) -> None:
    finish(shop)
    fill_again(shop)
    assert shop.read() == 0, "the outbox does not know of it"
    before = len(shop.documents["images"])
    ask(shop, start_loads, "image_tags")
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)
    assert {document["table"] for _, document in shop.documents["images"][before:]} == {"public.image_tags"}
    assert shop.read() == 0


def test_one_stream_is_loaded_again(database: str, shop: Shop) -> None:
    two = Shop(database, {"images": IMAGES, "copies": IMAGES}, first_load=True, keep_hours=0)
    two.apply()
    for stream in ("images", "copies"):
        two.read(stream)
    counts = {name: len(each) for name, each in two.documents.items()}
    ask(two, start_loads, "image_tags", streams=("copies",))
    assert two.read("images") == 0
    assert two.read("copies") > 0
    assert {each["table"] for _, each in two.documents["copies"][counts["copies"] :]} == {"public.image_tags"}


def test_a_load_is_given_up(shop: Shop) -> None:
    """In the middle: what was loaded stays, the open slice was finished, and changes go on."""
    shop.read(budget=FEW, most=4)
    assert states(shop)[TAGS] == "loading"
    ask(shop, drop_loads, "image_tags")
    shop.execute("UPDATE image_tags SET tag_id = tag_id + 100 WHERE image_id = 29", "UPDATE images SET url = 'x'")
    finish(shop)
    assert states(shop) == {"public.images": "complete", TAGS: "dropped", "public.posts": "complete"}
    tags = {key: tags for key, _, tags in shop.current()}
    assert 1 < len([key for key, each in tags.items() if each]) < 30
    truth = {key: tags for key, _, tags in shop.rows(TRUTH)}
    assert tags[1] == truth[1], "it was loaded"
    assert tags[29] == truth[29], "it has changed since"
    assert [scalars for _, scalars, _ in shop.current()] == [scalars for _, scalars, _ in shop.rows(TRUTH)]
    ask(shop, start_loads, "image_tags")
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)
    ask(shop, drop_loads)
    assert shop.read() == 0
    assert set(states(shop).values()) == {"complete"}, "there was nothing to give up"


def test_a_load_is_given_up_before_it_begins_and_started_by_a_reset(shop: Shop) -> None:
    ask(shop, drop_loads, "image_tags")
    finish(shop)
    assert states(shop)[TAGS] == "dropped"
    assert OutboxMark.of(mark_of(shop)).loads[1].began is None
    assert not any(tags for *_, tags in shop.current())
    ask(shop, start_loads)
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)


def test_what_a_table_said_is_cleared(shop: Shop) -> None:
    finish(shop)
    ask(shop, clear_loads, "image_tags")
    assert shop.read() == 1
    assert shop.documents["images"][-1][1]["ops"] == [{"op": "clear", "field": "tags"}]
    assert states(shop)[TAGS] == "dropped"
    assert not any(tags for *_, tags in shop.current())
    shop.execute("INSERT INTO image_tags VALUES (3, 77)")
    finish(shop)
    assert [(key, tags) for key, _, tags in shop.current() if tags] == [(3, [77])]
    ask(shop, drop_loads, "image_tags")
    ask(shop, start_loads, "image_tags")
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)


def test_what_creates_is_cleared(shop: Shop) -> None:
    finish(shop)
    ask(shop, clear_loads, "images")
    finish(shop)
    assert shop.current() == []
    assert states(shop) == {"public.images": "dropped", TAGS: "complete", "public.posts": "complete"}
    ask(shop, start_loads, "images")
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)


@pytest.mark.parametrize("seed", range(3))
def test_requests_at_random_while_an_application_writes(shop: Shop, seed: int) -> None:
    """Requests come between plan and read, and slices are killed and read again."""
    application, draw = Application(shop, 100 + seed), random.Random(seed)
    tables = ("images", "image_tags", "posts")

    def meanwhile() -> None:
        application.change()
        if draw.random() < 0.1:
            ask(shop, draw.choice((start_loads, drop_loads, clear_loads)), draw.choice(tables))

    for _ in range(5):
        shop.read(
            budget=Budget(1 << 20, rows=draw.choice((7, 20)), workers=2),
            most=draw.choice((1, 3, 20)),
            prepared=meanwhile,
            meanwhile=meanwhile,
            killed=lambda: draw.random() < 0.2,
        )
    application.close()
    ask(shop, start_loads)
    finish(shop)
    assert set(states(shop).values()) == {"complete"}
    assert shop.current() == shop.rows(TRUTH)
    assert shop.folded().early == {}


def test_an_outbox_without_a_table_for_requests(shop: Shop) -> None:
    """Of an earlier penstock: it is read as it is, and `apply` adds the table."""
    shop.execute("DROP TABLE penstock_outbox.loads")
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)
    with pytest.raises(Exception, match="have not all been applied"):
        ask(shop, start_loads)
    assert [str(each) for each in shop.apply()] == [
        "extend outbox in schema penstock_outbox: it has no table for requests to load again"
    ]
    assert shop.read() == 0, "nothing is loaded again"
    ask(shop, start_loads, "posts")
    assert shop.read() > 0

"""Consumers and pruning: nothing is deleted that somebody has still to read, and a mark below the floor stops."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sources.outbox.shops import IMAGES, SCHEMA, TRUTH, Shop, mark_of

from penstock.core.marks import Position
from penstock.errors import StreamRefused
from penstock.sources.outbox import registry
from penstock.sources.outbox.marks import OutboxMark

COUNT = "SELECT count(*) FROM penstock_outbox.outbox"
REGISTERED = "SELECT number, low FROM penstock_outbox.consumers WHERE pipeline = 'shop'"
FLOOR = "SELECT low FROM penstock_outbox.floors"


@pytest.fixture
def shop(database: str) -> Shop:
    shop = Shop(database, keep_hours=0)
    shop.execute(SCHEMA)
    shop.apply()
    return shop


def insert(shop: Shop, count: int = 10) -> None:
    first = "(SELECT coalesce(max(id), 0) FROM images)"
    shop.execute(f"INSERT INTO images SELECT {first} + n FROM generate_series(1, {count}) n")


def test_what_was_read_is_deleted_in_batches(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PRUNE_ROWS", 3)
    insert(shop)
    shop.read()
    assert shop.rows(COUNT) == [(0,)]
    assert shop.rows(FLOOR) == [(10,)]
    insert(shop)
    shop.read()
    assert shop.current() == shop.rows(TRUTH)


def test_documents_stay_for_the_time_that_is_set(database: str) -> None:
    shop = Shop(database, keep_hours=1)
    shop.execute(SCHEMA)
    shop.apply()
    insert(shop)
    shop.read()
    assert shop.rows(COUNT) == [(10,)]
    shop.execute("UPDATE penstock_outbox.outbox SET created_at = created_at - interval '2 hours' WHERE id <= 4")
    insert(shop, 1)
    shop.read()
    assert shop.rows(COUNT) == [(7,)]
    assert shop.rows(FLOOR) == [(4,)]


def test_the_slowest_consumer_counts(shop: Shop) -> None:
    other = Shop(shop.url, pipeline="other", keep_hours=0)
    other.apply()
    insert(shop)
    assert other.read(most=0) == 0, "registered, and nothing read"
    shop.read()
    assert shop.rows(COUNT) == [(10,)]
    assert other.read() == 10
    assert shop.rows(COUNT) == [(0,)]
    assert other.current() == shop.current() == shop.rows(TRUTH)


def test_an_open_transaction_keeps_what_it_may_still_precede(shop: Shop) -> None:
    with shop.connect() as late:
        late.execute("INSERT INTO images VALUES (100)")
        insert(shop)
        assert shop.read() == 10
        assert shop.rows(COUNT) == [(10,)]
        late.commit()
    shop.read()
    assert shop.rows(COUNT) == [(0,)]


def test_a_late_call_of_a_run_that_was_replaced_raises_nothing(shop: Shop) -> None:
    insert(shop)
    shop.read()
    last = shop.last["images"]
    low = replace(OutboxMark.of(mark_of(shop)), low=10)
    source = shop.source()
    rewound = Position(last.number + 1, "rewound", low.mark(), last.content)
    source.prepare("images", source.content("images"), rewound)
    assert shop.rows(REGISTERED) == [(last.number + 1, 10)]
    far = Position(last.number, "zombie", replace(low, low=1000).mark(), last.content)
    source.advanced("images", far)
    source.prepare("images", source.content("images"), far)
    assert shop.rows(REGISTERED) == [(last.number + 1, 10)]


def test_a_store_that_was_put_back_lowers_its_registration(database: str) -> None:
    shop = Shop(database, keep_hours=1)
    shop.execute(SCHEMA)
    shop.apply()
    insert(shop)
    shop.read()
    old, documents = shop.last["images"], list(shop.documents["images"])
    insert(shop)
    shop.read()
    low = OutboxMark.of(mark_of(shop)).low
    assert [each[1] for each in shop.rows(REGISTERED)] == [low]
    shop.last["images"], shop.documents["images"] = old, documents
    assert shop.read(most=0) == 0
    assert shop.rows(REGISTERED)[0][1] < low
    shop.read()
    assert shop.current() == shop.rows(TRUTH)


def test_a_mark_below_the_floor_stops_and_says_what_is_missing(shop: Shop) -> None:
    insert(shop)
    shop.read()
    old = shop.last["images"]
    insert(shop)
    shop.read()
    shop.last["images"] = old
    with pytest.raises(StreamRefused, match=r"up to 10 only, and those up to 20 were deleted") as refused:
        shop.read()
    assert "penstock state reset FILE --stream images" in refused.value.next_step


def test_a_stream_that_begins_after_documents_were_deleted_says_so_once(shop: Shop) -> None:
    insert(shop)
    shop.read()
    other = Shop(shop.url, pipeline="other")
    other.apply()
    source = other.source()
    content = source.content("images")
    assert source.prepare("images", content, None) == [
        "documents up to 10 were read by others and deleted: the stream begins with what is kept"
    ]
    assert source.prepare("images", content, None) == []


def test_an_outbox_that_was_made_again_is_another_one(shop: Shop) -> None:
    insert(shop)
    shop.read()
    shop.execute("DROP SCHEMA penstock_outbox CASCADE")
    with pytest.raises(StreamRefused, match="there is no outbox in schema penstock_outbox"):
        shop.read()
    shop.apply()
    insert(shop, 100)
    with pytest.raises(StreamRefused, match="is not the one that the stream was read from"):
        shop.read()


def test_ids_that_are_given_again_stop_the_stream(shop: Shop) -> None:
    insert(shop)
    shop.read()
    shop.execute("ALTER TABLE penstock_outbox.outbox ALTER id RESTART")
    insert(shop, 1)
    with pytest.raises(StreamRefused, match="has given ids up to 1, and the stream was read up to 10"):
        shop.read()


def test_the_outbox_is_not_truncated(shop: Shop) -> None:
    insert(shop)
    with pytest.raises(Exception, match="the outbox is not truncated"):
        shop.execute("TRUNCATE penstock_outbox.outbox")
    with shop.connect() as connection:
        connection.execute("SET session_replication_role TO 'replica'")
        with pytest.raises(Exception, match="the outbox is not truncated"):
            connection.execute("TRUNCATE penstock_outbox.outbox")
    assert shop.read() == 10


def test_who_holds_back_the_deletion_is_named(database: str) -> None:
    shop = Shop(database, {"images": IMAGES}, warn_after=0.001)
    shop.execute(SCHEMA)
    shop.apply()
    insert(shop, 3)
    source = shop.source()
    with shop.connect() as late:
        late.execute("INSERT INTO images VALUES (100)")
        content = source.content("images")
        ceiling = source.ceiling("images", content, "run")
        assert ceiling is not None
        left = source.remaining("images", content, None, ceiling)
        assert left.rows == 3
        assert left.warning is not None
        assert f"pid {late.info.backend_pid} (user penstock, idle in transaction)" in left.warning
        assert "INSERT INTO images VALUES (100)" in left.warning
    ceiling = source.ceiling("images", content, "run")
    assert ceiling is not None
    assert source.remaining("images", content, None, ceiling).warning is None

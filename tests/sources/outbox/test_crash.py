"""A server that acknowledges what a crash can undo: nothing is delivered that is gone afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.harness.postgres import PostgresServer
from tests.sources.outbox.shops import SCHEMA, TRUTH, Shop

IMAGES = "INSERT INTO images SELECT n, 'image' FROM generate_series({}, {}) n"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Its log reaches the disk late: synchronous_commit is off."""
    with PostgresServer({"wal_writer_delay": "2s", "synchronous_commit": "off"}) as server:
        yield server


def test_what_was_delivered_is_there_after_a_crash(server: PostgresServer) -> None:
    shop = Shop(server.database())
    shop.execute(SCHEMA)
    shop.apply()
    with shop.connect(autocommit=True) as application:

        def write() -> None:
            application.execute(IMAGES.format(1, 10).encode())

        # The first commit of a connection wakes the writer of the log. The registration is raised durably, and with it
        # all before it: the crash comes before that.
        application.execute("INSERT INTO posts VALUES (1)")
        assert shop.read(prepared=write, releases=False) == 11
        server.crash()
    server.start()
    assert shop.rows("SELECT count(*) FROM images") == [(10,)]
    assert shop.rows("SELECT count(*) FROM penstock_outbox.outbox") == [(11,)]
    shop.execute(IMAGES.format(11, 20))
    assert shop.read() == 10
    assert shop.current() == shop.rows(TRUTH)


def test_a_load_delivers_nothing_that_a_crash_undoes(server: PostgresServer) -> None:
    """A transaction that a range shows would be gone after the crash, and its document with it."""
    shop = Shop(server.database(), first_load=True)
    shop.execute(SCHEMA, IMAGES.format(1, 1), "CREATE TABLE other (n int)")
    shop.apply()
    with shop.connect(autocommit=True) as application:
        # The first commit of a connection wakes the writer of the log.
        application.execute("INSERT INTO other VALUES (1)")
        # After the slice was planned, and before its first range is read.
        late = Once(lambda: application.execute(IMAGES.format(2, 10).encode()), calls=2)
        shop.read(most=1, releases=False, meanwhile=late)
        server.crash()
    server.start()
    assert len(shop.current()) == 10, "the range showed them"
    assert shop.rows("SELECT count(*) FROM images") == [(10,)]


def test_a_table_that_a_crash_fills_again_is_not_taken_for_empty(server: PostgresServer) -> None:
    """The slice is planned while a deletion is visible that a crash would undo."""
    shop = Shop(server.database(), first_load=True)
    shop.execute(SCHEMA, IMAGES.format(1, 5), "CREATE TABLE other (n int)")
    shop.apply()
    with shop.connect(autocommit=True) as application:
        application.execute("INSERT INTO other VALUES (1)")
        shop.read(most=1, releases=False, meanwhile=Once(lambda: application.execute(b"DELETE FROM images")))
        server.crash()
    server.start()
    shop.read()
    assert shop.current() == shop.rows(TRUTH)


class Once:
    """Calls something at one of its own calls."""

    def __init__(self, action: Callable[[], object], calls: int = 1) -> None:
        self.action, self.left = action, calls

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.action()

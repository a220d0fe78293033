"""Rows from a replica: never before it has what was planned at the primary, and never from another database."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from tests.harness.postgres import PostgresServer
from tests.sources.servers.machines import Replica, until
from tests.sources.servers.pipelines import ORDERS, Shop, arrive
from tests.sources.servers.slices import ids, orders, planned
from tests.sources.tables import execute, rows, source

from penstock.core.ranges import Range
from penstock.errors import StreamFailed
from penstock.links.postgres.failures import statement_error


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
def replica(primary: PostgresServer) -> Iterator[Replica]:
    with Replica(primary, {"max_standby_streaming_delay": "200ms"}) as server:
        yield server


@pytest.fixture
def url(primary: PostgresServer, replica: Replica) -> Iterator[str]:
    """A database with ten orders, which the replica has."""
    url = primary.database()
    execute(url, ORDERS)
    arrive(url, 10)
    replica.catch_up()
    yield url
    replica.resume()
    primary.drop(urlsplit(url).path.removeprefix("/"))


def at(server: PostgresServer, url: str) -> str:
    return server.url(urlsplit(url).path.removeprefix("/"))


class TestALag:
    def test_a_run_fails_and_the_next_brings_every_row_once(self, url: str, replica: Replica, shop: Shop) -> None:
        streams = ("orders", "kinds")
        shop.write(url, streams, replica=at(replica, url), replica_wait=0.3)
        shop.ran()
        replica.pause()
        arrive(url, 10)
        execute(url, "INSERT INTO kinds VALUES (6, 'late')")
        done = shop.run()
        assert done.exit_code == 1
        assert f"the replica at 127.0.0.1:{replica.port}" in done.output
        assert "has not replayed what was planned: it is at" in " ".join(done.output.split())
        assert "bytes behind" in done.output
        assert "raise `replica_wait`, or remove `replica`" in " ".join(done.output.split())
        assert (shop.ids(), shop.ids("kinds")) == ([*range(1, 11)], [*range(1, 6)])
        arrive(url, 10)
        replica.resume()
        shop.ran()
        shop.ran()
        assert (shop.ids(), shop.ids("kinds")) == ([*range(1, 31)], [*range(1, 7)])

    @pytest.mark.parametrize("stream", ["orders", "kinds"])
    def test_it_is_waited_for_before_the_snapshot_is_taken(self, url: str, replica: Replica, stream: str) -> None:
        replica.pause()
        execute(url, "DELETE FROM kinds")
        arrive(url, 10)
        execute(url, "INSERT INTO kinds SELECT generate_series(1, 20)")
        origin = orders(url, at(replica, url), replica_wait=60)
        slice_ = planned(origin, stream)
        resumed = threading.Timer(0.5, replica.resume)
        resumed.start()
        began = time.monotonic()
        assert ids(origin, slice_) == [*range(1, 21)]
        assert time.monotonic() - began >= 0.4
        resumed.join()

    def test_rows_come_from_the_replica(self, url: str, replica: Replica) -> None:
        origin = orders(url, at(replica, url))
        by_id, whole = planned(origin), planned(origin, "kinds")
        replica.catch_up()
        replica.pause()
        execute(url, "UPDATE orders SET note = 'new'", "DELETE FROM kinds")
        with origin.reading(by_id) as reading:
            [part] = reading.parts
            assert "new" not in reading.reader.open(part).read_all()["note"].to_pylist()
        assert ids(origin, whole) == [*range(1, 6)]

    def test_a_table_that_is_not_there_yet_is_waited_for(self, url: str, replica: Replica) -> None:
        replica.pause()
        execute(url, "CREATE TABLE fresh (id int PRIMARY KEY); INSERT INTO fresh VALUES (1)")
        origin = source(url, {"fresh": {"cursor": "id", "unique": True}}, replica=at(replica, url), replica_wait=0)
        with pytest.raises(StreamFailed, match="has not replayed what was planned"):
            ids(origin, planned(origin, "fresh"))
        replica.resume()
        replica.catch_up()
        assert ids(origin, planned(origin, "fresh")) == [1]


class TestAStandbyAlone:
    def test_what_it_has_replayed_is_what_there_is(self, url: str, replica: Replica) -> None:
        origin = orders(at(replica, url), horizon={"lag": 0})
        replica.pause()
        arrive(url, 10)
        slice_ = planned(origin)
        [[replayed]] = rows(replica.url(), "SELECT pg_last_wal_replay_lsn()::text")
        assert json.loads(slice_.plan)["lsn"] == replayed
        assert origin._session.server.standby
        assert ids(origin, slice_) == [*range(1, 11)]

    def test_several_behind_one_address(self, url: str, replica: Replica) -> None:
        """Planned at one that is ahead, read at one that is behind."""
        replica.pause()
        arrive(url, 10)
        ahead, behind = orders(url), orders(at(replica, url), replica_wait=0)
        with pytest.raises(StreamFailed, match="has not replayed"):
            ids(behind, planned(ahead))

    def test_one_that_lags_behind_a_mark_is_not_compared(self, url: str, replica: Replica) -> None:
        """It would seem to miss rows that were delivered."""
        replica.pause()
        arrive(url, 10)
        mark = planned(orders(url)).upto
        assert mark
        behind = orders(at(replica, url), replica_wait=0)
        content = behind.content("orders")
        columns = behind.compared_columns("orders", content)
        with pytest.raises(StreamFailed, match="has not replayed"):
            behind.compared_rows("orders", content, mark, columns)
        replica.resume()
        replica.catch_up()
        assert behind.compared_rows("orders", content, mark, columns).summarize(Range(None, None)).rows == 20

    def test_a_conflict_with_recovery_has_its_next_step(self, url: str, replica: Replica) -> None:
        execute(url, "CREATE TABLE wide (id int PRIMARY KEY, c text)")
        execute(url, "INSERT INTO wide SELECT g, repeat(md5(g::text), 20000) FROM generate_series(1, 60) g")
        replica.catch_up()
        origin = source(url, {"wide": {"cursor": "id", "unique": True}}, replica=at(replica, url))
        slice_ = planned(origin, "wide")
        replica.catch_up()
        with origin.reading(slice_) as reading:
            batches = reading.reader.open(reading.parts[0])
            batches.read_next_batch()
            execute(url, "DELETE FROM wide", "VACUUM wide")
            [[lsn]] = rows(url, "SELECT pg_current_wal_insert_lsn()")
            until(replica.url(), f"SELECT pg_last_wal_receive_lsn() >= '{lsn}'")
            time.sleep(1)
            with pytest.raises(StreamFailed) as ended:
                batches.read_all()
        assert "the replica canceled a statement that blocked replay" in ended.value.what
        assert "hot_standby_feedback" in ended.value.next_step

    def test_a_conflict_before_the_first_row(self) -> None:
        said = "ERROR:  canceling statement due to conflict with recovery\nDETAIL:  …"
        error = statement_error("40001", said, where="h", table="t", stream="s")
        assert isinstance(error, StreamFailed)
        assert "max_standby_streaming_delay" in error.next_step


class TestAnotherDatabase:
    def test_a_replica_of_another_server_is_refused_by_name(self, url: str, database: str, shop: Shop) -> None:
        shop.write(url, replica=database)
        done = shop.run()
        assert done.exit_code == 2
        said = " ".join(done.output.split())
        for cluster in (url, database):
            [[system]] = rows(cluster, "SELECT system_identifier::text FROM pg_control_system()")
            assert system in said
        assert "point `replica` at a replica of the server at `url`, or remove it" in said
        assert not list((shop.folder / "out").glob("orders/*.parquet"))

    def test_a_replica_that_cannot_be_reached(self, url: str, shop: Shop) -> None:
        shop.write(url, replica="postgresql://me:x@127.0.0.1:1/shop")
        done = shop.run()
        assert done.exit_code == 3
        assert "listens on that port, or correct `replica`" in " ".join(done.output.split())

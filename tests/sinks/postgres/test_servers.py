"""A server that goes away or is locked while a run is under way: who is to blame, and which exit code it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from tests.engine.pipeline import At
from tests.harness.postgres import PostgresServer
from tests.sinks.postgres.deliveries import Deliveries
from tests.sinks.postgres.runs import PipelineRuns, open_sink, open_source
from tests.sources.tables import execute, rows

from penstock.core.messages import Eof
from penstock.core.slices import Part
from penstock.errors import ConnectionFailed, StreamFailed
from penstock.sinks.postgres.ledger import CREATE_LOCK_ID
from penstock.sinks.postgres.staging import tag_of
from penstock.testing.contracts.delivery import after, table

SOURCE = "CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 5)"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that may be stopped."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def there(server: PostgresServer) -> str:
    return server.database()


# ---------------------------------------------------------------- locks


def test_who_makes_the_ledger_is_named(database: str) -> None:
    """A run that takes over while the one before is frozen in its first transaction."""
    orders = Deliveries(database, pipeline="contract", more={"lock_timeout": 0.2})
    with closing(orders.sink) as sink, psycopg.connect(database) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [CREATE_LOCK_ID])
        with pytest.raises(StreamFailed) as failed:
            sink.writer(after(None), "a1")
        pid = other.info.backend_pid
        assert failed.value.what.startswith(
            "timed out after 0.2 s waiting for a lock on the ledger in penstock_sink, "
            f"held by process {pid} of the server (user penstock, idle in transaction for "
        )
        assert f"SELECT pg_terminate_backend({pid})" in failed.value.next_step


# ---------------------------------------------------------------- what is left behind

STAGED = "SELECT relname FROM pg_class WHERE relname ~ '^s_[0-9a-f]{16}_' ORDER BY 1"


def test_a_run_that_finds_nothing_new_drops_what_is_dead(database: str) -> None:
    """A frozen run's table could not be dropped while it was written to; the slice is in by now."""
    execute(database, SOURCE)
    moving = PipelineRuns()

    def run() -> list[str]:
        return moving.run("copy", open_source(database, cursor="id", unique=True), open_sink(database, into="copies.t"))

    execute(database, "CREATE SCHEMA copies")
    assert run() == []
    tag = tag_of("copy", "t")
    dead, alive = f"s_{tag}_1_frozen", f"s_{tag}_2_frozen"
    others = f"s_{tag_of('other', 't')}_1_frozen"
    for name in (dead, alive, others):
        execute(database, f"CREATE UNLOGGED TABLE penstock_sink.{name} (id int)")
    with psycopg.connect(database) as frozen:
        frozen.execute(f"INSERT INTO penstock_sink.{dead} VALUES (1)".encode())
        slices = len(moving.outcomes)
        assert run() == [], "what is still written to is left, without waiting"
        assert len(rows(database, STAGED)) == 3
    assert run() == []
    assert rows(database, STAGED) == sorted([(alive,), (others,)])
    assert len(moving.outcomes) == slices, "no slice was made for it"


# ---------------------------------------------------------------- a server that goes away


def copied(source: str, sink: str, point: str, action: Callable[[], Any], time: int = 1) -> tuple[PipelineRuns, Eof]:
    moving = PipelineRuns()
    moving.run("copy", open_source(source, cursor="id", unique=True), open_sink(sink), probe=At(point, action, time))
    assert moving.eof is not None
    return moving, moving.eof


@pytest.mark.parametrize("point", ["engine.leased", "gate.asked", "gate.moved"])
def test_a_sink_that_goes_down_in_mid_run(database: str, server: PostgresServer, there: str, point: str) -> None:
    execute(database, SOURCE)
    try:
        moving, eof = copied(database, there, point, server.stop)
    finally:
        server.start()
    assert eof.exit_code == 3
    assert "was lost" in str(eof.reason)
    assert eof.next_step == (
        "see that the server is up, then run the same command again; it resumes from the stored mark"
    )
    assert moving.run("copy", open_source(database, cursor="id", unique=True), open_sink(there)) == []
    assert len(rows(there, "SELECT FROM t")) == 5


def test_a_sink_that_crashes_has_lost_what_was_staged(database: str, server: PostgresServer, there: str) -> None:
    """Unlogged tables are empty after a crash: no mistake of anyone's in counting."""
    execute(database, SOURCE)

    def crash() -> None:
        server.crash()
        server.start()

    moving, eof = copied(database, there, "gate.moved", crash)
    assert eof.exit_code == 3
    assert "was restarted after a crash, and the rows staged there are gone" in str(eof.reason)
    assert moving.run("copy", open_source(database, cursor="id", unique=True), open_sink(there)) == []
    assert len(rows(there, "SELECT FROM t")) == 5


def test_a_worker_that_cannot_connect_says_what_is_wrong(server: PostgresServer, there: str) -> None:
    with closing(Deliveries(there, pipeline="contract").sink) as sink:
        writer = sink.writer(after(None), "a1")
        server.stop()
        try:
            with pytest.raises(ConnectionFailed) as failed:
                writer.write(table(1).to_reader(), Part(0, "{}"))
        finally:
            server.start()
    assert "the connection to PostgreSQL at 127.0.0.1" in failed.value.what
    assert "INTERNAL" not in failed.value.what
    assert failed.value.next_step.startswith("see that the server is up")
    assert (failed.value.pipeline, failed.value.stream) == ("contract", "orders")

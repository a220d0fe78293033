"""A pooler in transaction mode: nothing that is set here reaches its other clients, and nothing of ours is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.harness.postgres import PostgresServer
from tests.sources.servers.machines import Pooler
from tests.sources.servers.pipelines import ORDERS, Shop, arrive
from tests.sources.tables import execute, rows, source

from penstock.errors import ConnectionFailed
from penstock.links.postgres.transactions import SETTINGS
from penstock.ports import Budget

#: what penstock sets, besides what says how values look
OTHERS = ("default_transaction_read_only", "statement_timeout", "application_name", "row_security")


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer) -> Iterator[Pooler]:
    """Two connections to each database for everyone."""
    with Pooler(postgres_server, size=2) as pooler:
        yield pooler


@pytest.fixture
def pooled(database: str, pooler: Pooler) -> str:
    """The address of the database by way of the pooler."""
    execute(database, ORDERS)
    return pooler.url(urlsplit(database).path.removeprefix("/"))


def settings(pooled: str) -> list[dict[str, Any]]:
    """What both of the pooler's connections have set, as two other clients see it at the same time."""
    names = ", ".join(f"'{name}'" for name in (*SETTINGS, *OTHERS))
    asked = f"SELECT pg_backend_pid(), json_object_agg(name, setting) FROM pg_settings WHERE name IN ({names})"
    found = {}
    with psycopg.connect(pooled, application_name="x") as one, psycopg.connect(pooled, application_name="x") as two:
        for client in (one, two):
            [(pid, said)] = client.execute(asked.encode()).fetchall()
            found[pid] = said
    assert len(found) == 2
    return [found[pid] for pid in sorted(found)]


def backends(url: str) -> set[int]:
    return {
        pid
        for [pid] in rows(
            url,
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
        )
    }


def test_runs_leave_no_setting_and_no_broken_connection_behind(database: str, pooled: str, shop: Shop) -> None:
    before = settings(pooled)
    pids = backends(database)
    assert len(pids) == 2
    shop.write(pooled, ("orders", "kinds"), statement_timeout=60)
    for number in range(1, 4):
        arrive(database, 10)
        shop.ran()
        assert shop.ids() == [*range(1, 10 * number + 1)]
        assert shop.ids("kinds") == [*range(1, 6)]
    assert settings(pooled) == before
    assert backends(database) == pids
    execute(pooled, "INSERT INTO kinds VALUES (7, 'others may write')")


def test_what_others_set_does_not_reach_us(database: str, pooled: str) -> None:
    execute(
        database,
        "CREATE SCHEMA evil; CREATE TABLE t (id int PRIMARY KEY, at timestamptz, n interval)",
        "CREATE INDEX ON t (at, id)",
    )
    execute(database, "INSERT INTO t VALUES (1, '2024-05-06 07:08:09+00', '1 day')")
    with psycopg.connect(pooled, autocommit=True) as other:
        with psycopg.connect(pooled, autocommit=True) as second:
            for client in (other, second):
                client.execute("BEGIN")
            for client in (other, second):
                client.execute(
                    "SET search_path = evil; SET TimeZone = 'Asia/Tokyo'; SET IntervalStyle = 'postgres';"
                    " SET default_transaction_isolation = 'repeatable read'; COMMIT"
                )
        origin = source(pooled, {"t": {"cursor": "at", "tiebreaker": "id"}})
        content = origin.content("t")
        ceiling = origin.ceiling("t", content, "run")
        assert ceiling is not None
        planned = origin.plan("t", content, None, ceiling, Budget(bytes=1 << 20))
    assert planned is not None
    assert "2024-05-06 07:08:09+00" in planned.upto.text


def test_a_statement_that_fails_does_not_keep_the_connection(database: str, pooled: str) -> None:
    origin = source(pooled, {"orders": {"cursor": "id", "unique": True, "where": "nonsense = 1"}})
    for _ in range(3):
        assert origin._session.find_error(psycopg.sql.SQL("SELECT nonsense"), user_statement=True)
        assert origin._session.find_error(psycopg.sql.SQL("SELECT 'x'::int"))
    idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
    assert rows(database, idle) == [(0,)]


def test_a_pool_that_is_too_small_is_named(pooled: str, pooler: Pooler) -> None:
    origin = source(pooled)
    origin.connect()
    with psycopg.connect(pooled) as one, psycopg.connect(pooled) as two:
        for client in (one, two):
            client.execute("SELECT 1")
        pooler.tell("SET query_wait_timeout = 1")
        with pytest.raises(ConnectionFailed) as waited:
            origin.content("orders")
        pooler.tell("SET query_wait_timeout = 120")
    assert "query_wait_timeout" in waited.value.what
    assert "pool size" in waited.value.next_step


def test_a_start_up_option_that_a_pooler_does_not_pass_on(pooled: str) -> None:
    with pytest.raises(ConnectionFailed) as refused:
        source(pooled + "?options=-c%20geqo%3Doff").connect()
    assert "take that parameter out of `url`" in refused.value.next_step

"""The PostgreSQL that the other tests stand on."""

from urllib.parse import urlsplit

import psycopg
import pytest
from tests.harness.postgres import PostgresServer


def test_a_database_is_fresh_and_durability_is_off(database: str) -> None:
    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_stat_user_tables").fetchone()
        prepared = connection.execute("SHOW max_prepared_transactions").fetchone()
        fsync = connection.execute("SHOW fsync").fetchone()
    assert (tables, prepared, fsync) == ((0,), ("10",), ("off",))


def test_a_wrong_password_is_refused(postgres_server: PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres_server.url(password="wrong"))


def test_a_database_is_dropped_under_whoever_is_connected(postgres_server: PostgresServer) -> None:
    url = postgres_server.database()
    with psycopg.connect(url) as connection:
        postgres_server.drop(urlsplit(url).path[1:])
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_stop_and_start_keep_data_and_port_and_leaving_removes_all() -> None:
    with PostgresServer() as server:
        url = server.database()
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (1,)
        directory = server.directory
    assert not directory.exists()

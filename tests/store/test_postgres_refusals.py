"""No server is a failed connection, a schema that is not ours is refused, and no password ever shows."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.contracts.store_contract import NOW, after, deliver, take
from tests.harness.postgres import PostgresServer, free_port

from penstock import __version__
from penstock.errors import ConnectionFailed, PenstockError, StoreRefused
from penstock.store import location, open_store
from penstock.store.schema import HEAD

UNCHANGED = "It was not changed, and it is not taken for an empty one."
KEPT = "Nothing was lost: what was recorded before stays recorded."
LOOK = "Next: see that the server runs and that host, port, database, user and password are right, then run again"


def failed(url: str, kind: type[PenstockError]) -> str:
    with pytest.raises(kind) as error:
        open_store(url).close()
    return str(error.value)


def run_sql(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def name(url: str) -> str:
    parts = urlsplit(url)
    return f"in database {parts.path[1:]} on {parts.hostname}:{parts.port} as user {parts.username}"


@contextmanager
def role(server: PostgresServer, url: str) -> Iterator[str]:
    """The same database, as somebody who may do nothing in it."""
    run_sql(url, "CREATE ROLE guest LOGIN PASSWORD 'guest'")
    yield server.url(urlsplit(url).path[1:], user="guest", password="guest")
    run_sql(url, "DROP OWNED BY guest", "DROP ROLE guest")


def test_nobody_listens() -> None:
    port = free_port()
    message = failed(f"postgresql://me:hunter2@127.0.0.1:{port}/db", ConnectionFailed)
    assert message.startswith(f"the store in database db on 127.0.0.1:{port} as user me does not answer: ")
    assert "Connection refused" in message
    assert message.endswith(f"\n{KEPT}\n{LOOK}")
    assert "hunter2" not in message


def test_wrong_password(postgres_server: PostgresServer) -> None:
    url = postgres_server.url(password="hunter2")
    message = failed(url, ConnectionFailed)
    assert message.startswith(f"the store {name(url)} does not answer: ")
    assert 'password authentication failed for user "penstock"' in message
    assert "hunter2" not in message


def test_no_such_database(postgres_server: PostgresServer) -> None:
    url = postgres_server.url("nowhere")
    assert 'database "nowhere" does not exist' in failed(url, ConnectionFailed)


@pytest.mark.parametrize("password", ["hunter2/x", "hunter2@x", "12/hunter2", "%zzhunter2"])
def test_a_password_that_is_not_encoded_does_not_spill(password: str) -> None:
    assert failed(f"postgresql://me:{password}@127.0.0.1/db", StoreRefused) == (
        "the store's URL is not one that Postgres understands\n"
        "Nothing was changed.\n"
        "Next: write postgresql://user:password@host:port/database, with special characters in user and "
        "password percent-encoded"
    )


def test_a_schema_with_tables_of_others(database: str) -> None:
    run_sql(database, "CREATE SCHEMA penstock", "CREATE TABLE penstock.theirs (x int)")
    assert failed(database, StoreRefused) == (
        f"the store {name(database)} cannot be made: the schema penstock holds the tables theirs, which are "
        "not penstock's\n"
        f"{UNCHANGED}\n"
        "Next: name another database for the store, or move those tables to another schema"
    )


def test_an_empty_schema_is_used(database: str) -> None:
    run_sql(database, "CREATE SCHEMA penstock", "CREATE TABLE public.leases (theirs int)")
    with closing(open_store(database.replace("postgresql:", "postgres:"))) as store:
        assert take(store).epoch == 1


def test_a_newer_store(database: str) -> None:
    open_store(database).close()
    run_sql(
        database,
        "UPDATE penstock.revision SET version_num = '9999'",
        "UPDATE penstock.meta SET value = '9.8.7'",
    )
    assert failed(database, StoreRefused) == (
        f"the store {name(database)} was written by penstock 9.8.7 (revision 9999); this is penstock "
        f"{__version__} (revision {HEAD})\n"
        f"{UNCHANGED}\n"
        "Next: upgrade penstock to at least that version"
    )


def test_damage_that_shows_later(database: str) -> None:
    with closing(open_store(database)) as store:
        run_sql(database, "DROP TABLE penstock.history")
        with pytest.raises(StoreRefused) as error:
            store.history("shop", "orders")
    assert str(error.value) == (
        f'the store {name(database)} is damaged: relation "penstock.history" does not exist\n'
        f"{UNCHANGED}\n"
        "Next: restore the schema penstock from a backup; or rename it and run `penstock state recover "
        "FILE`, which rebuilds it from what the sink holds"
    )


def test_no_right_to_create_the_schema(database: str, postgres_server: PostgresServer) -> None:
    with role(postgres_server, database) as guest:
        message = failed(guest, StoreRefused)
    assert message == (
        f"the store {name(guest)} cannot be read and written: permission denied for database "
        f"{urlsplit(guest).path[1:]}\n"
        f"{UNCHANGED}\n"
        "Next: let this user create the schema penstock, or give it all rights on it and its tables"
    )


def test_no_right_to_the_schema(database: str, postgres_server: PostgresServer) -> None:
    open_store(database).close()
    with role(postgres_server, database) as guest:
        message = failed(guest, StoreRefused)
    assert "cannot be read and written: permission denied for schema penstock\n" in message


def test_a_row_that_stays_locked(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "LOCK_WAIT_SECONDS", 0.3)
    with closing(open_store(database)) as store, psycopg.connect(database) as other:
        store.release(take(store))
        other.execute("SELECT FROM penstock.leases FOR UPDATE")
        with pytest.raises(StoreRefused) as error:
            take(store)
    assert str(error.value) == (
        f"the store {name(database)} is busy: another process has been writing to it for more than 0.3 s\n"
        "Nothing was lost: nothing was written.\n"
        "Next: end or continue that process, then run again"
    )


def test_a_connection_that_is_cut_between_two_calls_is_opened_again(database: str) -> None:
    with closing(open_store(database)) as store:
        lease = take(store)
        run_sql(
            database,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()",
        )
        deliver(store, lease, after(None, 1))


def test_a_connection_that_is_cut_inside_a_call(database: str) -> None:
    with closing(open_store(database)) as store:
        take(store)

        def cut(_: object) -> bool:
            run_sql(
                database,
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = current_database()",
            )
            return True

        heir = take(store, "a").owner
        with pytest.raises(ConnectionFailed, match="terminating connection due to administrator command"):
            store.acquire("shop", type(heir)("b", "h", 1), now=NOW, ttl=1, gone=cut)


def test_what_is_acknowledged_is_on_disk(database: str) -> None:
    # The test server is set to synchronous_commit = off, which may forget.
    from penstock.store.postgres import PostgresDatabase

    engine = PostgresDatabase(database).engine()
    with engine.connect() as connection:
        settings = connection.exec_driver_sql(
            "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')"
        ).one()
    engine.dispose()
    assert tuple(settings) == ("on", "30s")

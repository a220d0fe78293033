"""A store in a Postgres database, in the schema `penstock`: reaching it, and what Postgres' errors mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, Engine, create_engine, func, inspect, select
from sqlalchemy.schema import CreateSchema

from penstock.errors import ConnectionFailed, PenstockError, StoreRefused
from penstock.store import location
from penstock.store.location import NOTHING_LOST, StoreLocation, list_tables, one_line
from penstock.store.schema import APPLICATION_ID, REVISION_TABLE, SCHEMA

#: seconds to wait for a server that does not answer, unless the URL says otherwise
CONNECT_SECONDS = 10
#: a table, column or schema that should be there; data or an index that is broken
DAMAGED_STATES = frozenset({"42P01", "42703", "3F000", "XX001", "XX002"})
#: no privilege; a server that only reads
FORBIDDEN_STATES = frozenset({"42501", "25006"})
#: classes: connection, authorization, no such database, out of resources, shut down
UNREACHABLE_CLASSES = frozenset({"08", "28", "3D", "53", "57"})
#: the server ended a transaction that did nothing for too long, and the connection with it
IDLE_TIMEOUT = "25P03"

SETTINGS = """
select set_config('lock_timeout', %(lock)s, false),
       -- a frozen process must not keep the lease row locked for ever
       set_config('idle_in_transaction_session_timeout', %(idle)s, false),
       -- a server may be set up to acknowledge what it can still forget
       set_config('synchronous_commit',
                  coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'),
                  false)
"""


@dataclass(frozen=True)
class PostgresDatabase(StoreLocation):
    """One database on a server."""

    #: with the password in it: never shown
    url: str = field(repr=False)
    schema: str | None = SCHEMA

    def __post_init__(self) -> None:
        try:
            terms = self._terms()
            # A password with / or @ in it spills into the port, the host and the database, which we show.
            clear = str(terms.get("port", "5432")).replace(",", "").isdigit() and "@" not in (
                f"{terms.get('host', '')}{terms.get('dbname', '')}"
            )
        except psycopg.ProgrammingError:
            clear = False
        if not clear:
            raise StoreRefused(
                "the store's URL is not one that Postgres understands",
                safe="Nothing was changed.",
                next_step="write postgresql://user:password@host:port/database, with special characters in "
                "user and password percent-encoded",
            )

    @property
    def name(self) -> str:
        return f"in {self._database}"

    @property
    def address(self) -> str:
        terms = self._terms()
        return "postgresql:" + json.dumps([str(terms.get(name, "")) for name in ("host", "port", "dbname", "user")])

    @property
    def restore_hint(self) -> str:
        return (
            f"restore the schema {SCHEMA} from a backup; or rename it and run `penstock state recover FILE`, "
            "which rebuilds it from what the sink holds"
        )

    @property
    def replace_hint(self) -> str:
        return (
            f"rename the schema: `ALTER SCHEMA {SCHEMA} RENAME TO {SCHEMA}_old`; then run `penstock state recover "
            "FILE`, which makes a new store from what the sink holds"
        )

    def missing(self) -> str | None:
        engine = self.engine()
        try:
            with engine.connect() as connection:
                made = inspect(connection).has_table(REVISION_TABLE, schema=SCHEMA)
        finally:
            engine.dispose()
        return None if made else self._database

    def engine(self) -> Engine:
        return create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            isolation_level="READ COMMITTED",  # whatever the server's default: we lock what must not change
            pool_pre_ping=True,
            hide_parameters=True,
            use_native_hstore=False,
            execution_options={"schema_translate_map": {None: SCHEMA}},
        )

    def lock_schema(self, connection: Connection) -> None:
        connection.execute(select(func.pg_advisory_xact_lock(APPLICATION_ID)))

    def admit_tables(self, connection: Connection, tables: Sequence[str]) -> None:
        if tables:
            raise self.refused(
                f"cannot be made: the schema {SCHEMA} holds the tables {list_tables(tables)}, which are not penstock's",
                "name another database for the store, or move those tables to another schema",
            )
        if not inspect(connection).has_schema(SCHEMA):
            connection.execute(CreateSchema(SCHEMA))

    def explain(self, error: BaseException | None) -> PenstockError | None:
        if not isinstance(error, psycopg.Error):
            return None
        state = error.sqlstate
        if state in DAMAGED_STATES:
            return self.damaged(_message(error))
        if state in FORBIDDEN_STATES:
            return self.refused(
                f"cannot be read and written: {_message(error)}",
                f"let this user create the schema {SCHEMA}, or give it all rights on it and its tables",
            )
        if state == "53100":
            return self.refused(
                "cannot be written: the server's disk is full",
                "free some space there, then run again",
                safe=NOTHING_LOST,
            )
        if state == "55P03":
            return self.busy("end or continue that process, then run again")
        operational = isinstance(error, psycopg.OperationalError)
        if state == IDLE_TIMEOUT or (operational and (state is None or state[:2] in UNREACHABLE_CLASSES)):
            return self._unreachable(error)
        return None

    # ------------------------------------------------------------ inside

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(
            self.url,
            fallback_application_name="penstock",
            connect_timeout=self._terms().get("connect_timeout", CONNECT_SECONDS),
        )
        try:
            connection.autocommit = True
            wait = int(location.LOCK_WAIT_SECONDS * 1000)
            # Less than the others wait, so that they get their turn.
            connection.execute(SETTINGS, {"lock": f"{wait}ms", "idle": f"{wait * 2 // 3}ms"})
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise
        return connection

    def _terms(self) -> dict[str, Any]:
        return conninfo_to_dict(self.url)

    def _unreachable(self, error: psycopg.Error) -> ConnectionFailed:
        return ConnectionFailed(
            f"the store {self.name} does not answer: {_message(error)}",
            safe=NOTHING_LOST,
            next_step="see that the server runs and that host, port, database, user and password are right, "
            "then run again",
        )

    @property
    def _database(self) -> str:
        terms = self._terms()
        host, port = terms.get("host", "localhost"), terms.get("port", 5432)
        user = f" as user {terms['user']}" if "user" in terms else ""
        return f"database {terms.get('dbname', '')} on {host}:{port}{user}"


def _message(error: psycopg.Error) -> str:
    return error.diag.message_primary or one_line(error)

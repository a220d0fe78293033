"""Connections to a server, and sessions that run read-only queries on them.

Every query is a transaction of its own with fixed settings, so that a key has the same text in every process. Nothing
is left behind in a pooler's connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from psycopg import conninfo, sql

from penstock.errors import ConnectionFailed
from penstock.links.postgres.failures import (
    connect_error,
    connection_lost,
    driver_error,
    is_connection_error,
    statement_error,
)
from penstock.links.postgres.literals import to_text
from penstock.links.postgres.transactions import (
    EMPTY_QUERY,
    REFUSAL_STATES,
    SETTINGS,
    Identity,
    ServerState,
    VisibleFacts,
    identify_server,
    roll_back,
    run_query,
    server_query,
    set_config_calls,
    transaction_settings,
)

__all__ = [
    "OLDEST_VERSION",
    "READER_SUFFIX",
    "SETTINGS",
    "Identity",
    "ServerState",
    "Session",
    "Target",
    "VisibleFacts",
    "connect",
]

#: the oldest major version that the statements support
OLDEST_VERSION = 12

#: end of the application name of sessions that only read rows: a horizon does not wait for them
READER_SUFFIX = " (penstock reads)"
#: a server truncates longer names
MAX_APPLICATION_NAME_BYTES = 63

#: defaults of the URL's parameters: a connection that a proxy dropped, or a dead server, is noticed within a minute
KEEPALIVE_DEFAULTS: Mapping[str, int] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A database to connect to."""

    #: for libpq; holds the password
    conninfo: str = field(repr=False)
    #: for messages: host and port, database, user
    where: str
    user: str | None
    application_name: str | None = None
    #: the option that holds the URL
    key: str = "url"

    @classmethod
    def of(cls, url: str, *, key: str = "url", **parameters: str | int | None) -> Target:
        """From the URL in the option `key`; a parameter that is None keeps the URL's value."""
        try:
            parameters_of_url = conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            # Most messages of libpq repeat parts of the URL, which may be parts of the password.
            unknown = str(error).strip() if "URI query parameter" in str(error) else "it is not a PostgreSQL URL"
            raise ConnectionFailed(
                f"`{key}` cannot be read: {unknown}",
                next_step="write postgresql://user:password@host:port/database, with @ in a password as %40",
            ) from None
        given = {name: value for name, value in parameters.items() if value is not None}
        merged: dict[str, Any] = {**KEEPALIVE_DEFAULTS, **parameters_of_url, **given, "client_encoding": "UTF8"}
        host = merged.get("host") or merged.get("hostaddr") or "the local socket"
        user, application_name = merged.get("user"), merged.get("application_name")
        where = [f"{host}:{merged.get('port') or 5432}"]
        where += [
            f"{word} {merged[name]}" for name, word in (("dbname", "database"), ("user", "user")) if merged.get(name)
        ]
        return cls(conninfo.make_conninfo(**merged), ", ".join(where), user and str(user), application_name, key)

    def for_reading(self) -> Target:
        """The same target for sessions that only read rows, recognizable in `pg_stat_activity`."""
        plain = (self.application_name or "").encode("ascii", "replace").decode()
        name = plain[: MAX_APPLICATION_NAME_BYTES - len(READER_SUFFIX)] + READER_SUFFIX
        return replace(
            self, conninfo=conninfo.make_conninfo(self.conninfo, application_name=name), application_name=name
        )


def connect(target: Target, *, again: bool = False) -> psycopg.Connection[Any]:
    """Connect, without prepared statements and outside transactions. `again`: this is a reconnect."""
    try:
        connection = psycopg.connect(target.conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise connect_error(target.where, str(error), key=target.key, again=again) from None
    version = connection.info.server_version // 10000
    if version < OLDEST_VERSION:
        connection.close()
        raise ConnectionFailed(
            f"PostgreSQL at {target.where} is version {version}; penstock needs {OLDEST_VERSION} or later",
            next_step="upgrade the server, or read from a newer one",
        )
    return connection


class Session:
    """One connection; every query on it is a transaction of its own, in one round trip.

    Reconnects once if an idle connection has gone stale. The same database must answer every time, on the same
    timeline. `server` is the server that answered last, with its position just before.
    """

    server: ServerState

    def __init__(self, target: Target, *, statement_timeout: float | None = None) -> None:
        self.target = target
        self._settings = set_config_calls(
            transaction_settings(statement_timeout=statement_timeout, application_name=target.application_name)
        )
        self._connection: psycopg.Connection[Any] | None = None
        self._open()

    @property
    def identity(self) -> Identity:
        return self.server.identity

    def _open(self, *, again: bool = False) -> None:
        connection = connect(self.target, again=again)
        try:
            self.version = connection.info.server_version // 10000
            self.user = connection.info.user
            self.visible, self.server = identify_server(connection, self._settings)
            self._preamble = to_text(server_query(self.visible, self._settings))
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise connect_error(self.target.where, str(error), key=self.target.key, again=again) from error
            raise
        self._connection = connection

    def rows(
        self, query: sql.Composed | sql.SQL, *, table: str | None = None, stream: str | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a short answer. Errors name the table, or else the database."""
        try:
            return self._answer(query)
        except psycopg.Error as error:
            raise self._error(error, table, stream) from error

    def find_error(self, query: sql.Composed | sql.SQL, *, user_statement: bool = False) -> str | None:
        """Run a statement and return the server's objection to its values; None: there is none.

        `user_statement`: a user has written a part of it. It must be a single, valid statement.
        """
        expected: tuple[type[psycopg.Error], ...] = (psycopg.DataError,)
        if user_statement:
            expected = (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError)
        try:
            self._answer(query, alone=user_statement)
        except expected as error:
            return str(error).splitlines()[0]
        except psycopg.Error as error:
            raise self._error(error) from error
        return None

    def describe_query(self, query: sql.Composed | sql.SQL) -> list[tuple[str, int, int]]:
        """Run a query and return the name, the type's oid and its modifier of each column of the answer."""
        described: list[tuple[str, int, int]] = []
        try:
            self._answer(query, alone=True, described=described)
        except psycopg.Error as error:
            raise self._error(error) from error
        return described

    def rows_if_permitted(self, query: sql.Composed | sql.SQL) -> list[tuple[Any, ...]] | None:
        """All rows of an answer that the server may hide from the role; None: it does."""
        try:
            return self._answer(query)
        except psycopg.Error as error:
            if error.sqlstate in REFUSAL_STATES:
                return None
            raise self._error(error) from error

    def refresh_server(self) -> ServerState:
        """Ask which server answers, and for its position."""
        self.rows(EMPTY_QUERY)
        return self.server

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _answer(
        self,
        query: sql.Composed | sql.SQL,
        *,
        alone: bool = False,
        described: list[tuple[str, int, int]] | None = None,
    ) -> list[tuple[Any, ...]]:
        try:
            return self._run(query, alone=alone, described=described)
        except psycopg.OperationalError:
            if self._connection is None or not self._connection.broken:
                raise
        before = self.server
        self.close()
        self._open(again=True)
        self._check_same_server(before, self.server)
        return self._run(query, alone=alone, described=described)

    def _run(
        self, query: sql.Composed | sql.SQL, *, alone: bool, described: list[tuple[str, int, int]] | None = None
    ) -> list[tuple[Any, ...]]:
        connection = self._connection
        if connection is None:
            raise connection_lost(self.target.where, "it has been closed")
        try:
            server, rows = run_query(connection, self._preamble, query, alone=alone, described=described)
        except psycopg.Error:
            roll_back(connection)
            raise
        self._check_same_server(self.server, server)
        self.server = server
        return rows

    def _check_same_server(self, before: ServerState, now: ServerState) -> None:
        """ConnectionFailed if another server answers: facts about one do not hold for another."""
        change = None
        if not now.identity.same(before.identity):
            change = "another database answers there now"
        elif now.standby != before.standby:
            change = "a standby answers there now" if now.standby else "the standby there has become a primary"
        elif now.timeline and before.timeline and now.timeline != before.timeline:
            change = f"the server has gone from timeline {before.timeline} to {now.timeline} (a failover or a restore)"
        if change:
            self.close()
            raise connection_lost(self.target.where, change)

    def _error(self, error: psycopg.Error, table: str | None = None, stream: str | None = None) -> Exception:
        table = table or self.identity.database
        if not error.sqlstate and not is_connection_error(error):
            return driver_error(table, str(error), stream=stream)
        return statement_error(error.sqlstate, str(error), where=self.target.where, table=table, stream=stream)

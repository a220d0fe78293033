"""Connecting: where to, and who answers.

Every question is a transaction of its own that only reads, in one dialect, so that a key's text means the same in every
process; nothing is left behind in a pooler's connection.
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

#: the oldest server that the statements are written for
OLDEST_VERSION = 12

#: how the application name ends of sessions that only read rows, so that a horizon need not wait for them
READER_SUFFIX = " (penstock reads)"
#: bytes of an application_name that a server keeps
MAX_APPLICATION_NAME_BYTES = 63

#: unless the URL says otherwise: what a proxy forgets, or a server that died without a word, is noticed in a minute
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
    #: for people: host and port, database, user
    where: str
    user: str | None
    application_name: str | None = None
    #: the option that leads here
    key: str = "url"

    @classmethod
    def of(cls, url: str, *, key: str = "url", **parameters: str | int | None) -> Target:
        """From a URL, which the option `key` holds; parameters that are None leave what the URL says."""
        try:
            said = conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            # Most of libpq's complaints repeat pieces of the URL, which may be pieces of the password.
            unknown = str(error).strip() if "URI query parameter" in str(error) else "it is not a PostgreSQL URL"
            raise ConnectionFailed(
                f"`{key}` cannot be read: {unknown}",
                next_step="write postgresql://user:password@host:port/database, with @ in a password as %40",
            ) from None
        given = {name: value for name, value in parameters.items() if value is not None}
        merged: dict[str, Any] = {**KEEPALIVE_DEFAULTS, **said, **given, "client_encoding": "UTF8"}
        host = merged.get("host") or merged.get("hostaddr") or "the local socket"
        user, application_name = merged.get("user"), merged.get("application_name")
        named = [f"{host}:{merged.get('port') or 5432}"]
        named += [
            f"{word} {merged[name]}" for name, word in (("dbname", "database"), ("user", "user")) if merged.get(name)
        ]
        return cls(conninfo.make_conninfo(**merged), ", ".join(named), user and str(user), application_name, key)

    def for_reading(self) -> Target:
        """The same, under a name that tells it apart in `pg_stat_activity` as one that only reads rows."""
        plain = (self.application_name or "").encode("ascii", "replace").decode()
        name = plain[: MAX_APPLICATION_NAME_BYTES - len(READER_SUFFIX)] + READER_SUFFIX
        return replace(
            self, conninfo=conninfo.make_conninfo(self.conninfo, application_name=name), application_name=name
        )


def connect(target: Target, *, again: bool = False) -> psycopg.Connection[Any]:
    """A new connection outside transactions; no statement is ever prepared on it. `again`: there was one before."""
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
    """One connection; every question on it is a transaction of its own, in one round trip.

    Reconnects once if an idle connection has gone stale. The same database must answer every time, on the same
    timeline; `server` is who answered last, and how far it was just before.
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

    @property
    def timeline(self) -> int | None:
        """The server's timeline; None where it will not tell."""
        return self.server.timeline

    @property
    def standby(self) -> bool:
        return self.server.standby

    @property
    def lsn(self) -> str | None:
        """How far the server had written, or replayed, when it was last asked anything; None: it will not tell."""
        return self.server.lsn

    def _open(self, *, again: bool = False) -> None:
        connection = connect(self.target, again=again)
        try:
            self.version = connection.info.server_version // 10000
            self.user = connection.info.user
            self.tells, self.server = identify_server(connection, self._settings)
            self._greeting = to_text(server_query(self.tells, self._settings))
        except psycopg.Error as error:
            connection.close()
            raise connect_error(self.target.where, str(error), key=self.target.key, again=again) from error
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def rows(self, query: sql.Composed | sql.SQL, *, table: str, stream: str | None = None) -> list[tuple[Any, ...]]:
        """All rows of a short answer."""
        try:
            return self._answer(query)
        except psycopg.Error as error:
            raise self._failed(error, table, stream) from error

    def check(self, query: sql.Composed | sql.SQL) -> str | None:
        """Run a statement for its effect; what the server has against its values, or None."""
        try:
            self._answer(query)
        except psycopg.DataError as error:
            return str(error).splitlines()[0]
        except psycopg.Error as error:
            raise self._failed(error, self.identity.database, None) from error
        return None

    def refuses(self, query: sql.Composed | sql.SQL) -> str | None:
        """What the server has against a statement that a user has written; None: it is one, and only one."""
        try:
            self._answer(query, alone=True)
        except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as error:
            return str(error).splitlines()[0]
        except psycopg.Error as error:
            raise self._failed(error, self.identity.database, None) from error
        return None

    def told(self, query: sql.Composed | sql.SQL) -> list[tuple[Any, ...]] | None:
        """All rows of an answer that the server may withhold; None: it does."""
        try:
            return self._answer(query)
        except psycopg.Error as error:
            if error.sqlstate in REFUSAL_STATES:
                return None
            raise self._failed(error, self.identity.database, None) from error

    def look(self) -> ServerState:
        """Who answers, and how far it is now."""
        try:
            self._answer(EMPTY_QUERY)
        except psycopg.Error as error:
            raise self._failed(error, self.identity.database, None) from error
        return self.server

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _answer(self, query: sql.Composed | sql.SQL, *, alone: bool = False) -> list[tuple[Any, ...]]:
        try:
            return self._rows(query, alone=alone)
        except psycopg.OperationalError:
            if self._connection is None or not self._connection.broken:
                raise
        before = self.server
        self.close()
        self._open(again=True)
        self._same(before, self.server)
        return self._rows(query, alone=alone)

    def _rows(self, query: sql.Composed | sql.SQL, *, alone: bool = False) -> list[tuple[Any, ...]]:
        connection = self._connection
        if connection is None:
            raise connection_lost(self.target.where, "it has been closed")
        try:
            server, rows = run_query(connection, self._greeting, query, alone=alone)
        except psycopg.Error:
            roll_back(connection)
            raise
        self._same(self.server, server)
        self.server = server
        return rows

    def _same(self, before: ServerState, now: ServerState) -> None:
        """Whoever answers must be who answered before: what is known of one says nothing about another."""
        said = None
        if not now.identity.same(before.identity):
            said = "another database answers there now"
        elif now.standby != before.standby:
            said = "a standby answers there now" if now.standby else "the standby there has become a primary"
        elif now.timeline and before.timeline and now.timeline != before.timeline:
            said = f"the server has gone from timeline {before.timeline} to {now.timeline} (a failover or a restore)"
        if said:
            self.close()
            raise connection_lost(self.target.where, said)

    def _failed(self, error: psycopg.Error, table: str, stream: str | None) -> Exception:
        if not error.sqlstate and not is_connection_error(error):
            return driver_error(table, str(error), stream=stream)
        return statement_error(error.sqlstate, str(error), where=self.target.where, table=table, stream=stream)

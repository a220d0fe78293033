"""Connecting: where to, under which settings, and who answers.

Every session speaks one dialect, so that a key's text means the same in every process; and it only reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import conninfo, sql

from penstock.errors import ConnectionFailed
from penstock.links.postgres.failures import failed, lost, unreachable

#: the oldest server that the statements are written for
OLDEST = 12

#: how values look as text, and what a session may do; the same on every connection, ours and the workers'
SETTINGS: Mapping[str, str] = {
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
    # Nothing that a user has put into another schema can stand for an operator or a function of ours.
    "search_path": "pg_catalog",
    "default_transaction_read_only": "on",
    # A slice may take its time between two statements of a transaction that holds a snapshot.
    "idle_in_transaction_session_timeout": "0",
    # Compiling costs more than it saves: our statements are copies and index probes.
    "jit": "off",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A database to connect to."""

    #: for libpq; holds the password
    conninfo: str = field(repr=False)
    #: for people: host and port, database, user
    where: str
    user: str | None

    @classmethod
    def of(cls, url: str, **parameters: str | int | None) -> Target:
        """From a URL; parameters that are None leave what the URL says."""
        try:
            said = conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            # Most of libpq's complaints repeat pieces of the URL, which may be pieces of the password.
            unknown = str(error).strip() if "URI query parameter" in str(error) else "it is not a PostgreSQL URL"
            raise ConnectionFailed(
                f"`url` cannot be read: {unknown}",
                next_step="write postgresql://user:password@host:port/database, with @ in a password as %40",
            ) from None
        given = {name: value for name, value in parameters.items() if value is not None}
        merged: dict[str, Any] = {**said, **given, "client_encoding": "UTF8"}
        host = merged.get("host") or merged.get("hostaddr") or "the local socket"
        user = merged.get("user")
        named = [f"{host}:{merged.get('port') or 5432}"]
        named += [
            f"{word} {merged[key]}" for key, word in (("dbname", "database"), ("user", "user")) if merged.get(key)
        ]
        return cls(conninfo.make_conninfo(**merged), ", ".join(named), str(user) if user else None)


@dataclass(frozen=True, slots=True)
class Identity:
    """Which database answers, whatever address it has."""

    #: the cluster's system identifier; None where the server will not tell us
    system: str | None
    #: the database's oid in that cluster
    oid: str
    #: its name, for people
    database: str

    def same(self, other: Identity) -> bool:
        """Whether both are one database, however it is called now; by name where the server tells no more."""
        if self.system is None or other.system is None:
            return (self.oid, self.database) == (other.oid, other.database)
        return (self.system, self.oid) == (other.system, other.oid)


class Session:
    """One connection outside transactions. Reconnects once if an idle connection has gone stale."""

    #: the server's timeline; None where it will not tell
    timeline: int | None = None

    def __init__(self, target: Target, *, statement_timeout: float | None = None) -> None:
        self.target = target
        self._statement_timeout = statement_timeout
        self._connection: psycopg.Connection[Any] | None = None
        self._open()

    def _open(self) -> None:
        try:
            connection = psycopg.connect(self.target.conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise unreachable(self.target.where, str(error)) from None
        try:
            self.version = connection.info.server_version // 10000
            chosen = settings(version=self.version, statement_timeout=self._statement_timeout)
            self.identity = introduce(connection, chosen, self.target)
            self.user = connection.info.user
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
        """What the server has against a statement that a user has written; None: it is one."""
        try:
            self._answer(query)
        except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as error:
            return str(error).splitlines()[0]
        except psycopg.Error as error:
            raise self._failed(error, self.identity.database, None) from error
        return None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _answer(self, query: sql.Composed | sql.SQL) -> list[tuple[Any, ...]]:
        try:
            return self._rows(query)
        except psycopg.OperationalError:
            if self._connection is None or not self._connection.broken:
                raise
        self._reopen()
        return self._rows(query)

    def _rows(self, query: sql.Composed | sql.SQL) -> list[tuple[Any, ...]]:
        if self._connection is None:
            raise lost(self.target.where, "it has been closed")
        return self._connection.execute(query).fetchall()

    def _reopen(self) -> None:
        before = self.identity
        self.close()
        self._open()
        if not self.identity.same(before):
            self.close()
            raise lost(self.target.where, "another database answers there now")

    def _failed(self, error: psycopg.Error, table: str, stream: str | None) -> Exception:
        return failed(error.sqlstate, str(error), where=self.target.where, table=table, stream=stream)


def settings(*, version: int | None = None, statement_timeout: float | None = None) -> dict[str, str]:
    """The settings of a session; a version is needed for those that older servers do not know."""
    chosen = dict(SETTINGS)
    if version is not None and version >= 14:
        chosen["idle_session_timeout"] = "0"
    if statement_timeout is not None:
        chosen["statement_timeout"] = str(max(1, round(statement_timeout * 1000)))
    return chosen


def greeting(chosen: Mapping[str, str], *, local: bool, with_system: bool) -> sql.Composed:
    """One statement that sets everything and asks who answers: (system, oid, database).

    As a SELECT and not as start-up options, because poolers pass those on only in part.
    """
    calls = [
        sql.SQL("pg_catalog.set_config({}, {}, {})").format(sql.Literal(name), sql.Literal(value), sql.Literal(local))
        for name, value in chosen.items()
    ]
    system = "(SELECT system_identifier::text FROM pg_catalog.pg_control_system())" if with_system else "NULL::text"
    return sql.SQL(
        "SELECT {}, d.oid::text, d.datname::text, {} FROM pg_catalog.pg_database d "
        "WHERE d.datname = pg_catalog.current_database()"
    ).format(sql.SQL(system), sql.SQL(", ").join(calls))


def introduce(connection: psycopg.Connection[Any], chosen: Mapping[str, str], target: Target) -> Identity:
    """Set a new connection up and learn which database it leads to."""
    version = connection.info.server_version // 10000
    if version < OLDEST:
        raise ConnectionFailed(
            f"PostgreSQL at {target.where} is version {version}; penstock needs {OLDEST} or later",
            next_step="upgrade the server, or read from a newer one",
        )
    try:
        try:
            row = connection.execute(greeting(chosen, local=False, with_system=True)).fetchone()
        except psycopg.errors.InsufficientPrivilege:
            row = connection.execute(greeting(chosen, local=False, with_system=False)).fetchone()
    except psycopg.Error as error:
        raise unreachable(target.where, str(error)) from error
    if row is None:
        raise lost(target.where, "the server does not say which database this is")
    return Identity(system=row[0], oid=row[1], database=row[2])

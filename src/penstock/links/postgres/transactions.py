"""Read-only transactions: each one makes its own settings and asks which server answers.

A pooler shares one server connection among many clients: a setting that outlives its transaction would reach other
clients and be lost to us, and another server may answer the next transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql

from penstock.links.postgres.literals import load_statement, to_text

PACKAGE = "penstock.links.postgres"

#: begins every transaction: it only reads committed data, whatever the role's defaults are
BEGIN_READ_ONLY = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
#: the same for a transaction with temporary tables
BEGIN_READ_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
#: the same for a transaction that imports a snapshot
BEGIN_IN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
#: a query that is run only to learn which server answers
EMPTY_QUERY = sql.SQL("SELECT")

#: text form of values and limits of a transaction; the same on the connections of the driver and of the workers
SETTINGS: Mapping[str, str] = {
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
    # Operators and functions that a user has created in another schema must not replace built-in ones.
    "search_path": "pg_catalog",
    # A transaction that holds a snapshot may be idle for a long time.
    "idle_in_transaction_session_timeout": "0",
    # Compiling costs more than it saves: our statements are copies and index lookups.
    "jit": "off",
    # Parts are read in parallel already; the server's own parallel workers would cost half as much CPU time again.
    "max_parallel_workers_per_gather": "0",
}

#: SQLSTATEs of a server that does not show a fact: not permitted, unknown, unsupported, not now, no such file
REFUSAL_STATES = ("42501", "42883", "0A000", "55000", "58P01")

_SYSTEM = "(SELECT system_identifier::text FROM pg_catalog.pg_control_system())"
# After a promotion the name of the log file has the new timeline at once; the control file only after a checkpoint.
_TIMELINE = (
    "CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN ('x' || pg_catalog.left(pg_catalog.pg_walfile_name("
    "pg_catalog.pg_current_wal_insert_lsn()), 8))::pg_catalog.bit(32)::pg_catalog.int4 END"
)
# The receiver's timeline is the newest, and hidden from roles without pg_read_all_stats.
_STANDBY_TIMELINE = (
    "CASE WHEN pg_catalog.pg_is_in_recovery() THEN GREATEST("
    "(SELECT timeline_id FROM pg_catalog.pg_control_checkpoint()), "
    "(SELECT min_recovery_end_timeline FROM pg_catalog.pg_control_recovery()), "
    "(SELECT received_tli FROM pg_catalog.pg_stat_wal_receiver)) END"
)
_LSN = (
    "CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() "
    "ELSE pg_catalog.pg_current_wal_insert_lsn() END::text"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A database, independent of its address."""

    #: the cluster's system identifier; None if the server does not show it
    system: str | None
    #: the database's oid in that cluster
    oid: str
    #: its name, for messages
    database: str

    def same(self, other: Identity) -> bool:
        """Whether both are one database, even after a rename; compares names if a system identifier is unknown."""
        if self.system is None or other.system is None:
            return (self.oid, self.database) == (other.oid, other.database)
        return (self.system, self.oid) == (other.system, other.oid)

    def __str__(self) -> str:
        return f"database {self.database} (oid {self.oid}) of cluster {self.system or 'unknown'}"


@dataclass(frozen=True, slots=True)
class ServerState:
    """The server that answered, and its position in the log."""

    identity: Identity
    standby: bool
    #: None if the server does not show it
    timeline: int | None
    #: the end of what it has written, or replayed; None if the server does not show it
    lsn: str | None


@dataclass(frozen=True, slots=True)
class VisibleFacts:
    """The facts that a server shows to a role; hidden ones are not asked for again."""

    system: bool = True
    timeline: bool = True
    lsn: bool = True
    #: a standby's timeline needs another query than a primary's
    standby: bool = False


def transaction_settings(
    *,
    statement_timeout: float | None = None,
    application_name: str | None = None,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The settings of a transaction."""
    chosen = {**SETTINGS, **(more or {})}
    if statement_timeout is not None:
        chosen["statement_timeout"] = str(max(1, round(statement_timeout * 1000)))
    if application_name is not None:
        chosen["application_name"] = application_name
    return chosen


def set_config_calls(chosen: Mapping[str, str]) -> sql.Composed:
    """The calls that make settings for the current transaction, for a SELECT list."""
    calls = [
        sql.SQL("pg_catalog.set_config({}, {}, true)").format(sql.Literal(name), sql.Literal(value))
        for name, value in chosen.items()
    ]
    return sql.SQL(", ").join(calls)


def begin_statement(chosen: Mapping[str, str], snapshot: str | None = None, *, writes: bool = False) -> str:
    """Begin a transaction, import an exported snapshot if there is one, and make the settings.

    `writes`: it may create temporary tables.
    """
    first = [BEGIN_READ_WRITE if writes else BEGIN_READ_ONLY]
    if snapshot is not None:
        first = [BEGIN_IN_SNAPSHOT, to_text(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))]
    return ";\n".join([*first, to_text(sql.SQL("SELECT ") + set_config_calls(chosen))])


def server_query(visible: VisibleFacts, more: sql.Composed | None = None) -> sql.Composed:
    """Ask which server answers, for `read_server_state`, and evaluate `more`, such as `set_config_calls`, after it.

    A SELECT instead of start-up options, because poolers pass on only some of those.
    """
    timeline = _STANDBY_TIMELINE if visible.standby else _TIMELINE
    return load_statement(PACKAGE, "server_state").format(
        system=sql.SQL(_SYSTEM if visible.system else "NULL::text"),
        timeline=sql.SQL(timeline if visible.timeline else "NULL::int4"),
        lsn=sql.SQL(_LSN if visible.lsn else "NULL::text"),
        more=sql.SQL(", ") + more if more else sql.SQL(""),
    )


def read_server_state(row: Any) -> ServerState:
    """The answer to `server_query`."""
    system, oid, database, standby, timeline, lsn = row[:6]
    return ServerState(Identity(system, oid, database), standby, timeline, lsn)


def identify_server(connection: psycopg.Connection[Any], chosen: sql.Composed) -> tuple[VisibleFacts, ServerState]:
    """Ask a new connection which server it leads to, and find out which facts that server shows."""
    visible, server = _find_visible_facts(connection, chosen, standby=False)
    return _find_visible_facts(connection, chosen, standby=True) if server.standby else (visible, server)


def _find_visible_facts(
    connection: psycopg.Connection[Any], chosen: sql.Composed, *, standby: bool
) -> tuple[VisibleFacts, ServerState]:
    def ask(visible: VisibleFacts) -> ServerState | None:
        try:
            return run_query(connection, to_text(server_query(visible, chosen)), EMPTY_QUERY)[0]
        except psycopg.Error as error:
            roll_back(connection)
            if error.sqlstate in REFUSAL_STATES:
                return None
            raise

    visible = VisibleFacts(standby=standby)
    server = ask(visible)
    if server is None:
        none = VisibleFacts(system=False, timeline=False, lsn=False, standby=standby)
        shown = {fact: ask(replace(none, **{fact: True})) is not None for fact in ("system", "timeline", "lsn")}
        visible = replace(none, **shown)
        server = ask(visible)
    if server is None:
        raise psycopg.OperationalError("the server does not say which database this is")
    return visible, server


def run_query(
    connection: psycopg.Connection[Any],
    preamble: str,
    query: sql.Composed | sql.SQL,
    *,
    alone: bool = False,
    described: list[tuple[str, int, int]] | None = None,
) -> tuple[ServerState, list[tuple[Any, ...]]]:
    """Run a query in a transaction of its own, in one message with the preamble (a `server_query`).

    With `alone` the query gets a message of its own: the extended protocol refuses more than one statement. Then
    `described` receives the name, the type's oid and its modifier of each column.
    """
    begin = f"{BEGIN_READ_ONLY};\n{preamble}"
    # On lines of its own, because a statement may end in a comment.
    text = begin if alone else f"{begin}\n;\n{query.as_string(connection)}\n;\nCOMMIT"
    cursor = connection.execute(text.encode())
    cursor.nextset()
    server = read_server_state(cursor.fetchone())
    if alone:
        answer = connection.execute(query, binary=True)
        if described is not None and answer.pgresult is not None and answer.description is not None:
            modifiers = map(answer.pgresult.fmod, range(len(answer.description)))
            described += [
                (each.name, each.type_code, mod) for each, mod in zip(answer.description, modifiers, strict=True)
            ]
        rows = answer.fetchall()
        connection.commit()
        return server, rows
    cursor.nextset()
    return server, cursor.fetchall()


def roll_back(connection: psycopg.Connection[Any]) -> None:
    """Roll back a failed transaction, unless the connection is broken."""
    if not connection.broken:
        with suppress(psycopg.OperationalError):
            connection.rollback()

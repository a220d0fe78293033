"""The first words of every transaction: settings for it alone, and the question who answers.

A pooler hands one server connection to many clients: what is set for longer than a transaction would reach the others,
and be gone for us; and the next transaction may be answered by another server. So each is set up and asked anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from penstock.links.postgres.literals import statement, written

ROOM = "penstock.links.postgres"

#: how every transaction of ours begins: whatever the role's own defaults are, it only reads what is committed
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
#: the same for a transaction that joins a snapshot
JOIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

#: how values look as text, and what a transaction may do; the same on every connection, ours and the workers'
SETTINGS: Mapping[str, str] = {
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
    # Nothing that a user has put into another schema can stand for an operator or a function of ours.
    "search_path": "pg_catalog",
    # A slice may take its time between two statements of a transaction that holds a snapshot.
    "idle_in_transaction_session_timeout": "0",
    # Compiling costs more than it saves: our statements are copies and index probes.
    "jit": "off",
    # Parts are read side by side as it is; the server's own helpers would take half as much CPU time again.
    "max_parallel_workers_per_gather": "0",
}

#: SQLSTATEs of a server that will not answer a question: not permitted, not known, not supported, not now, no such file
WITHHELD = ("42501", "42883", "0A000", "55000", "58P01")

_SYSTEM = "(SELECT system_identifier::text FROM pg_catalog.pg_control_system())"
# A primary's is in the name of its log file at once after a promotion; the control file has it only after a checkpoint.
_TIMELINE = (
    "CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN ('x' || pg_catalog.left(pg_catalog.pg_walfile_name("
    "pg_catalog.pg_current_wal_insert_lsn()), 8))::pg_catalog.bit(32)::pg_catalog.int4 END"
)
# The receiver's is the newest, and hidden from roles without pg_read_all_stats.
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


@dataclass(frozen=True, slots=True)
class Server:
    """Who answered, and how far it was."""

    identity: Identity
    #: it replays what another server writes
    standby: bool
    #: None where it will not tell
    timeline: int | None
    #: the end of what it has written, or replayed; None where it will not tell
    lsn: str | None


@dataclass(frozen=True, slots=True)
class Tells:
    """What a server tells a role; what it withholds is not asked again."""

    system: bool = True
    timeline: bool = True
    lsn: bool = True
    #: a standby's timeline is asked for in another way than a primary's
    standby: bool = False


#: what may be withheld
QUESTIONS = ("system", "timeline", "lsn")


def settings(
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


def setting(chosen: Mapping[str, str]) -> sql.Composed:
    """The calls that set everything for this transaction alone, for a SELECT list."""
    calls = [
        sql.SQL("pg_catalog.set_config({}, {}, true)").format(sql.Literal(name), sql.Literal(value))
        for name, value in chosen.items()
    ]
    return sql.SQL(", ").join(calls)


def opening(chosen: Mapping[str, str], snapshot: str | None = None) -> str:
    """Begins a transaction, joins a snapshot that another one has exported, and sets everything."""
    first = [BEGIN]
    if snapshot is not None:
        first = [JOIN, written(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))]
    return ";\n".join([*first, written(sql.SQL("SELECT ") + setting(chosen))])


def who(tells: Tells, more: sql.Composed | None = None) -> sql.Composed:
    """Asks who answers, for `answered`, and for more, such as `setting`, which comes after it.

    As a SELECT and not as start-up options, because poolers pass those on only in part.
    """
    timeline = _STANDBY_TIMELINE if tells.standby else _TIMELINE
    return statement(ROOM, "who").format(
        system=sql.SQL(_SYSTEM if tells.system else "NULL::text"),
        timeline=sql.SQL(timeline if tells.timeline else "NULL::int4"),
        lsn=sql.SQL(_LSN if tells.lsn else "NULL::text"),
        more=sql.SQL(", ") + more if more else sql.SQL(""),
    )


def answered(row: Any) -> Server:
    """The answer to `who`."""
    system, oid, database, standby, timeline, lsn = row[:6]
    return Server(Identity(system, oid, database), standby, timeline, lsn)

"""Errors of the server while writing, as penstock's own errors, each with a fitting next step.

The server's details quote whole rows; the messages name the table, the column, the constraint and the key only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import psycopg
from psycopg import sql

from penstock.errors import PenstockError, StreamFailed, StreamRefused
from penstock.links.postgres.failures import connection_lost, driver_error, first_line, is_connection_error
from penstock.links.postgres.literals import TableName, load_statement, to_text
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.ledger import CREATE_LOCK_ID
from penstock.sinks.postgres.merge import UnfitValue

#: SQLSTATE of a lock that was not granted in time
LOCK_TIMEOUT = "55P03"
#: SQLSTATEs of conflicts with other transactions: another try may succeed
CONFLICTS = ("40001", "40P01")
_NUL = 'invalid byte sequence for encoding "UTF8": 0x00'
#: the place that COPY names
_COPY_COLUMN = re.compile(r"COPY \S+, line \d+, column (\S+)")
_TYPE = re.compile(r"\btype ([a-z][\w ]*?)(?:\(|:|$)")
#: classes and codes of SQLSTATE that blame a row: data, integrity, a view's check, a trigger's own, an index' limit
_ROW_STATES = ("22", "23", "44000", "P0001", "54000")
_ROW_REASONS: Mapping[str, str] = {
    "22001": "a text is too long",
    "22003": "a number is out of range",
    "22007": "a value cannot be read as a date or time",
    "22008": "a date or time is out of range",
    "22021": "a text has a character that the database cannot hold",
    "22P05": "a text has a character that the database cannot hold",
    "23502": "may not be NULL",
    "23503": "a foreign key has no matching row",
    "23505": "duplicate value for a unique constraint",
    "23514": "a check constraint fails",
    "23P01": "conflict with an existing row (exclusion constraint)",
    "54000": "a value is too long for an index",
}


def explain_failure(error: psycopg.Error, *, where: str, table: str) -> PenstockError:
    """The error for a statement that failed."""
    state, why = error.sqlstate or "", first_line(str(error))
    if is_connection_error(error):
        return connection_lost(where, str(error))
    if not state:
        return driver_error(table, str(error), stream=None)
    if is_row_error(error):
        return explain_bad_row(table, explain_row_error(error))
    if state == "42501":
        return StreamRefused(f"{table} cannot be written: {why}", next_step="grant what is missing, then run again")
    if state == "25006":
        return StreamRefused(
            f"{table} cannot be written: the server or the role is read-only",
            next_step="point `url` at the primary, or let the role write (default_transaction_read_only)",
        )
    if state == "3F000":
        return StreamRefused(
            f"there is no schema for {table}",
            next_step="create it, or name another with `schema` of the sink or `into` of the stream",
        )
    if state == "57014":
        what, step = (
            "the server ended a statement that took too long",
            "raise `statement_timeout` of the sink, or the role's own",
        )
        return StreamFailed(f"{table}: {what}", next_step=f"{step}, then run again")
    if state in ("53100", "53200"):
        full = "the disk of the server is full" if state == "53100" else "the server is out of memory"
        return StreamFailed(f"{table} cannot be written: {full}", next_step="free space on the server, then run again")
    if state in CONFLICTS:
        return StreamFailed(f"{table}: others write the same rows at the same time", next_step="run again")
    step = "correct the cause that the server gives, then run again"
    return StreamFailed(f"{table} cannot be written: {why}", next_step=step)


def explain_copy_failure(text: str, staging: str, *, where: str, is_connection: bool) -> PenstockError:
    """The error for a COPY into a staging table; `is_connection`: the driver says that the connection failed."""
    if is_connection and "ERROR:" not in text:
        return connection_lost(where, text)
    if _NUL in first_line(text):
        column = _COPY_COLUMN.search(text)
        return StreamFailed(
            f"{f'column {column[1]}' if column else 'a column'} has a string with a NUL character (0x00), which "
            "Postgres cannot store",
            next_step="remove it at the source, or leave the column out with `shape` on the stream, then run again",
        )
    step = "correct the cause that the server gives, then run again"
    return StreamFailed(f"rows could not be staged in {staging}: {first_line(text)}", next_step=step)


# ---------------------------------------------------------------- rows


def is_row_error(error: BaseException) -> bool:
    """Whether a row is at fault, so that the rest of its slice could be written without it."""
    return isinstance(error, UnfitValue) or (
        isinstance(error, psycopg.Error) and state_of(error).startswith(_ROW_STATES)
    )


def state_of(error: psycopg.Error | UnfitValue) -> str:
    return (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""


def explain_row_error(error: psycopg.Error | UnfitValue, column: str | None = None) -> str:
    """Why a row was rejected. The server's own words quote values, so they are not used."""
    if isinstance(error, UnfitValue):
        return str(error)
    state, diag = state_of(error), error.diag
    column = diag.column_name or column
    why = _ROW_REASONS.get(state)
    if state.startswith("23"):
        why = f"{why or 'a constraint fails'}{f' ({diag.constraint_name})' if diag.constraint_name else ''}"
    elif why is None and state.startswith("22"):
        type_ = _TYPE.search(diag.message_primary or "")
        why = f"a value cannot be read as {type_[1] if type_ else 'the type of its column'}"
    elif why is None:
        return first_line(str(error))
    return f"column {column}: {why}" if column else why


def explain_value_error(state: str) -> str:
    """Why a column does not hold a value; an empty state: it would change it."""
    if not state:
        return "does not hold the value exactly"
    unread = "the value cannot be read as this type" if state.startswith("22") else "a constraint fails"
    return _ROW_REASONS.get(state, unread)


def explain_bad_row(table: str, why: str, key: str = "", *, quarantines: bool = True) -> StreamFailed:
    """The error for a rejected row; `key` is empty if the row was not found."""
    at = f", in the row with key {key}" if key else ""
    step = "correct the row at the source, or the table, then run again"
    other = "; or set `bad_rows: quarantine` on the stream: such rows are quarantined, and the others are written"
    return StreamFailed(f"{table}: {why}{at}", next_step=step + (other if quarantines else ""))


# ---------------------------------------------------------------- locks


def explain_lock_timeout(
    connection: Connection, what: str, seconds: float, tables: Sequence[TableName]
) -> StreamFailed:
    """The error for a lock that was not granted in time, with the session that holds it."""
    blocker = find_blocker(connection, tables)
    if blocker is None:
        who, step = "", "run again, or raise `lock_timeout`: the session that held it has ended in the meantime"
    else:
        pid, session = blocker
        who = f", held by {session}"
        step = f"wait until that session ends, or end it: SELECT pg_terminate_backend({pid}); then run again"
    return StreamFailed(f"timed out after {seconds:g} s waiting for a lock on {what}{who}", next_step=step)


def find_blocker(connection: Connection, tables: Sequence[TableName]) -> tuple[int, str] | None:
    """The session that has held a lock on one of the tables for the longest time: its pid, and a description."""
    query = load_statement(__package__, "blockers").format(
        tables=sql.Literal([to_text(table.sql) for table in tables]), create_lock=sql.Literal(CREATE_LOCK_ID)
    )
    row = connection.execute(query).fetchone()
    if row is None:
        return None
    pid, user, state, seconds = row
    about = f"{f'user {user}, ' if user else ''}{state or 'active'}{f' for {seconds} s' if seconds is not None else ''}"
    return pid, f"process {pid} of the server ({about})"

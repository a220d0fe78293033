"""What the server said to a write, as our own errors, each with a next step that fits.

The server's details quote whole rows; what is shown is the table, the column, the constraint and the key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg

from penstock.errors import PenstockError, StreamFailed, StreamRefused
from penstock.links.postgres.failures import connection_lost, driver_error, first_line, is_connection_error
from penstock.sinks.postgres.filling import Unfit
from penstock.sinks.postgres.reasons import is_of_a_row, reason_of

if TYPE_CHECKING:
    from penstock.sinks.postgres.blocking import Blocker
    from penstock.sinks.postgres.sifting import Bad
    from penstock.sinks.postgres.writer import PostgresWriter

_NUL = 'invalid byte sequence for encoding "UTF8": 0x00'
#: what COPY says of the place
_COLUMN = re.compile(r"COPY \S+, line \d+, column (\S+)")
#: a lock was not given in time
LOCK_TIMEOUT = "55P03"
#: another transaction was in the way: the same again may work
RETRIED = ("40001", "40P01")


def failed(error: psycopg.Error, *, where: str, table: str, pipeline: str, stream: str) -> PenstockError:
    """A statement failed."""
    state = error.sqlstate or ""
    if is_connection_error(error):
        return connection_lost(where, str(error)).at(pipeline=pipeline, stream=stream)
    if not state:
        return driver_error(table, str(error), stream=stream).at(pipeline=pipeline)
    if is_of_a_row(error):
        return bad_row(error, None, table=table, pipeline=pipeline, stream=stream)
    what, step, refused = _said(error, state, table)
    kind = StreamRefused if refused else StreamFailed
    return kind(what, next_step=step, pipeline=pipeline, stream=stream)


def locked(table: str, seconds: float, by: Blocker | None, *, pipeline: str, stream: str) -> StreamFailed:
    """A lock was not given in time; `by`: who holds it, if that could be seen."""
    if by is None:
        who, step = "", "run again, or raise `lock_timeout`: the session that held it has ended meanwhile"
    else:
        who = f", held by {by}"
        step = f"wait until that session ends, or end it: SELECT pg_terminate_backend({by.pid}); then run again"
    return StreamFailed(
        f"timed out after {seconds:g} s waiting for a lock on {table}{who}",
        next_step=step,
        pipeline=pipeline,
        stream=stream or None,
    )


def bad_row(error: psycopg.Error | Unfit, bad: Bad | None, *, table: str, pipeline: str, stream: str) -> StreamFailed:
    """A row of a slice was not taken; `bad` if it was found."""
    why = bad.reason if bad else reason_of(error)
    at = f", in the row with key {bad.key}" if bad and bad.key else ""
    return StreamFailed(
        f"{table}: {why}{at}",
        next_step="correct the row at the source, or the table, then run again; or set `bad_rows: quarantine` on the "
        "stream: such rows are put aside, and the others go on",
        pipeline=pipeline,
        stream=stream,
    )


def too_many(bad: Bad, most: int, *, table: str, pipeline: str, stream: str) -> StreamFailed:
    """More rows of one slice were not taken than are put aside."""
    return StreamFailed(
        f"{table}: more than {most} rows of one slice cannot be written; the first: {bad.reason}, key {bad.key or '?'}",
        next_step="this is no matter of single rows: correct the table or the stream, then run again",
        pipeline=pipeline,
        stream=stream,
    )


def _said(error: psycopg.Error, state: str, table: str) -> tuple[str, str, bool]:
    if state == "42501":
        return f"{table} cannot be written: {first_line(str(error))}", "grant what is missing, then run again", True
    if state == "25006":
        return (
            f"{table} cannot be written: the server, or the role, only reads",
            "point `url` at the primary, or let the role write (default_transaction_read_only)",
            True,
        )
    if state == "3F000":
        return (
            f"there is no schema for {table}",
            "create it, or name another with `schema` of the sink or `into` of the stream",
            True,
        )
    if state == "57014":
        return (
            f"{table}: the server ended a statement that took too long",
            "raise `statement_timeout` of the sink, or the role's own, then run again",
            False,
        )
    if state in ("53100", "53200"):
        full = "the disk of the server is full" if state == "53100" else "the server has no memory left"
        return f"{table} cannot be written: {full}", "make room on the server, then run again", False
    if state in RETRIED:
        return f"{table}: others write the same rows at the same time", "run again", False
    return (
        f"{table} cannot be written: {first_line(str(error))}",
        "correct what the server names, then run again",
        False,
    )


def broken_off(said: str, writer: PostgresWriter, *, connection: bool) -> PenstockError:
    """A COPY into the table of an attempt broke off; `connection`: the driver says that the connection did."""
    words = first_line(said)
    if connection and "ERROR:" not in said:
        return connection_lost(writer.target.where, said).at(pipeline=writer.pipeline, stream=writer.stream)
    if _NUL in words:
        column = _COLUMN.search(said)
        where = f"column {column[1]}" if column else "a column"
        return StreamFailed(
            f"{where} has a text with a NUL character (0x00), which no Postgres text can hold",
            next_step="take it out at the source, or leave the column out with `shape` on the stream, then run again",
            pipeline=writer.pipeline,
            stream=writer.stream,
        )
    return StreamFailed(
        f"rows could not be put aside in {writer.staging.schema}.{writer.staging.name}: {words}",
        next_step="correct what the server names, then run again",
        pipeline=writer.pipeline,
        stream=writer.stream,
    )

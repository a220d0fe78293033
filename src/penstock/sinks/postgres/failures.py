"""What the server said to a write, as our own errors, each with a next step that fits.

The server's details quote whole rows; what is shown is the table, the column, the constraint and the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from penstock.errors import PenstockError, StreamFailed, StreamRefused
from penstock.links.postgres.failures import lost, reason

if TYPE_CHECKING:
    from penstock.sinks.postgres.writer import PostgresWriter

#: classes and codes of SQLSTATE that mean the connection, not the statement
_CONNECTION = ("08", "25P03", "57P01", "57P02", "57P03", "57P05", "53300")
#: another transaction was in the way: the same again may work
RETRIED = ("40001", "40P01")


def failed(error: psycopg.Error, *, where: str, table: str, pipeline: str, stream: str) -> PenstockError:
    """A statement of a commit failed."""
    state = error.sqlstate or ""
    if not state or state.startswith(_CONNECTION):
        return lost(where, str(error)).at(pipeline=pipeline, stream=stream)
    what, step, refused = _said(error, state, table)
    kind = StreamRefused if refused else StreamFailed
    return kind(what, next_step=step, pipeline=pipeline, stream=stream)


def _said(error: psycopg.Error, state: str, table: str) -> tuple[str, str, bool]:
    diag = error.diag
    column = f"column {diag.column_name} of " if diag.column_name else ""
    if state.startswith("23"):
        named = f" ({diag.constraint_name})" if diag.constraint_name else ""
        kinds = {
            "23502": "may not be NULL",
            "23503": "a foreign key is not met",
            "23505": "a value is there already that must be unique",
            "23514": "a check is not met",
        }
        why = kinds.get(state, "a constraint is not met")
        return (
            f"{column}{table}: {why}{named}",
            "correct the rows at the source, or the constraint, then run again",
            False,
        )
    if state == "42501":
        return f"{table} cannot be written: {reason(str(error))}", "grant what is missing, then run again", True
    if state == "25006":
        return (
            f"{table} cannot be written: the server, or the role, only reads",
            "point `url` at the primary, or let the role write (default_transaction_read_only)",
            True,
        )
    if state == "55P03":
        return (
            f"{table} is locked by another session for longer than `lock_timeout`",
            "see who holds it (pg_locks), or raise `lock_timeout`, then run again",
            False,
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
        f"{column}{table} cannot be written: {reason(str(error))}",
        "correct what the server names, then run again",
        False,
    )


def broken_off(said: str, writer: PostgresWriter) -> PenstockError:
    """A COPY into the table of an attempt broke off."""
    words = reason(said)
    if "ERROR:" not in said:
        return lost(writer.target.where, said).at(pipeline=writer.pipeline, stream=writer.stream)
    return StreamFailed(
        f"rows could not be put aside in {writer.staging.schema}.{writer.staging.name}: {words}",
        next_step="correct what the server names, then run again",
        pipeline=writer.pipeline,
        stream=writer.stream,
    )

"""Errors of statements that write: the outbox, its registrations, and triggers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from penstock.errors import UNTOUCHED, PenstockError, StreamFailed, StreamRefused
from penstock.links.postgres.failures import connection_lost, driver_error, first_line, is_connection_error

_UNCHANGED = "Nothing was changed."


@contextmanager
def explained(where: str, what: str, stream: str | None = None) -> Iterator[None]:
    """Turn errors of the server into penstock's own. `what` cannot be done: `triggers cannot be applied`."""
    try:
        yield
    except psycopg.Error as error:
        raise _explain(error, where, what, stream) from error


def _explain(error: psycopg.Error, where: str, what: str, stream: str | None) -> PenstockError:
    state, why = error.sqlstate or "", first_line(str(error))
    if is_connection_error(error):
        return connection_lost(where, str(error))
    if not state:
        return driver_error(what, str(error), stream=stream)
    if state == "42501":
        return StreamRefused(
            f"{what}: {why}",
            safe=_UNCHANGED,
            next_step="grant what is missing (a role that creates triggers owns the tables, and may create a schema in "
            "the database), then run again",
            stream=stream,
        )
    if state in ("55P03", "40P01", "25P04"):
        return StreamFailed(
            f"{what}: timed out waiting for a lock: {why}",
            safe=_UNCHANGED,
            next_step="see who holds the table (pg_locks), or raise `lock_timeout` of the source, then run again",
            stream=stream,
        )
    if state == "25006":
        return StreamRefused(
            f"{what}: the server or the role is read-only",
            safe=_UNCHANGED,
            next_step="point `url` at the primary",
            stream=stream,
        )
    if state == "57014":
        return StreamFailed(
            f"{what}: the server ended a statement: {why}",
            safe=_UNCHANGED,
            next_step="raise `statement_timeout` of the source, then run again",
            stream=stream,
        )
    return StreamFailed(
        f"{what}: {why}",
        safe=_UNCHANGED,
        next_step="correct the cause that the server gives, then run again",
        stream=stream,
    )


def no_outbox(schema: str, stream: str | None = None) -> StreamRefused:
    """The refusal where the outbox has not been created."""
    return StreamRefused(
        f"there is no outbox in schema {schema}",
        safe=UNTOUCHED,
        next_step="`penstock triggers apply FILE` creates it, with the triggers that fill it",
        stream=stream,
    )

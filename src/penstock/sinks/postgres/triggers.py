"""A table's own triggers: switched off while a slice is merged. Foreign keys are checked all the same.

In the transaction of the merge: nobody else ever sees them off, and whatever ends it sets them back. Other writers of
the table wait for its end, because the server locks the table against them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from penstock.errors import StreamFailed
from penstock.links.postgres.literals import load_statement
from penstock.sinks.postgres.ledger import ROOM
from penstock.sinks.postgres.target import Target


@contextmanager
def still(connection: psycopg.Connection[Any], target: Target, *, on: bool) -> Iterator[None]:
    """Within it the triggers do not run, unless they are to; at its end they are as they were.

    An error leaves them to the end of the transaction, which it must bring about.
    """
    if on:
        yield
        return
    found = connection.execute(load_statement(ROOM, "triggers").format(oid=sql.Literal(int(target.oid)))).fetchall()
    for schema, table, name, _ in found:
        connection.execute(_switched(schema, table, "DISABLE", name))
    yield
    if found:
        # A table cannot be altered while checks of its rows are still to come.
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for schema, table, name, always in found:
        connection.execute(_switched(schema, table, "ENABLE ALWAYS" if always else "ENABLE", name))


def keeps_out(connection: psycopg.Connection[Any], target: Target, missing: int, rows: int) -> StreamFailed | None:
    """Say that a trigger has kept rows out, where rows were not written and a trigger can be the reason."""
    found = connection.execute(
        load_statement(ROOM, "before_triggers").format(oid=sql.Literal(int(target.oid)))
    ).fetchall()
    if not found:
        return None
    named = ", ".join(f"{name} (BEFORE {events})" for name, events in found)
    what = f"its trigger {named} returns" if len(found) == 1 else f"one of its triggers returns: {named}; it returns"
    return StreamFailed(
        f"{target.name} did not take {missing} of {rows} rows: {what} NULL for them",
        next_step="let the trigger return the row, set `triggers: false` on the stream, or "
        "leave such rows out with `where` in the stream's `shape`, then run again",
    )


def keepers(connection: psycopg.Connection[Any], target: Target) -> list[str]:
    """The triggers that run now and can keep a row from being deleted."""
    query = load_statement(ROOM, "before_triggers").format(oid=sql.Literal(int(target.oid)))
    return [name for name, events in connection.execute(query).fetchall() if "DELETE" in events]


def rows_stay(target: Target, rows: int, triggers: Sequence[str]) -> StreamFailed:
    """Say that a full refresh could not delete rows that its source no longer has."""
    which = f"its trigger {triggers[0]} returns" if len(triggers) == 1 else f"a trigger returns ({', '.join(triggers)})"
    return StreamFailed(
        f"{target.name} keeps {rows} rows that the full refresh deletes: {which} NULL for them",
        next_step="let the trigger return OLD, or set `triggers: false` on the stream, then run again",
        safe="Nothing was replaced: readers see the refresh before.",
    )


def _switched(schema: str, table: str, how: str, name: str) -> sql.Composed:
    # Each by itself: one in a partition may be in another state than the one that it is a copy of.
    return sql.SQL("ALTER TABLE ONLY {} {} TRIGGER {}").format(
        sql.Identifier(schema, table), sql.SQL(how), sql.Identifier(name)
    )

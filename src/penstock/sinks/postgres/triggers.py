"""A table's own triggers: disabled while a slice is merged, if the stream says so. Foreign keys are still checked.

They are disabled in the transaction of the merge: no other session sees them disabled, and the end of the transaction
always restores them. Other writers of the table wait for its end, because the server locks the table against them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import sql

from penstock.errors import StreamFailed
from penstock.links.postgres.literals import load_statement
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.target import Target


@contextmanager
def disable_triggers(connection: Connection, target: Target) -> Iterator[None]:
    """Disable the triggers, and restore them at the end; after an error the end of the transaction restores them."""
    query = load_statement(__package__, "triggers").format(oid=sql.Literal(int(target.oid)))
    triggers = connection.execute(query).fetchall()
    for schema, table, name, _ in triggers:
        connection.execute(_switch(schema, table, "DISABLE", name))
    yield
    if triggers:
        # A table cannot be altered while deferred checks of its rows are pending.
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for schema, table, name, always in triggers:
        connection.execute(_switch(schema, table, "ENABLE ALWAYS" if always else "ENABLE", name))


def check_not_suppressed(connection: Connection, target: Target, missing: int, rows: int) -> None:
    """StreamFailed if a trigger can be the reason that rows were not written."""
    triggers = _list_before_triggers(connection, target)
    if not triggers:
        return
    names = ", ".join(f"{name} (BEFORE {events})" for name, events in triggers)
    what = f"its trigger {names} returns" if len(triggers) == 1 else f"one of its triggers returns: {names}; it returns"
    raise StreamFailed(
        f"{target.name} did not take {missing} of {rows} rows: {what} NULL for them",
        next_step="let the trigger return the row, set `triggers: false` on the stream, or "
        "leave such rows out with `where` in the stream's `shape`, then run again",
    )


def delete_rows(connection: Connection, target: Target, which: sql.Composable) -> int:
    """Delete rows (aliased `t`) and return their number; StreamFailed if a trigger has kept some of them."""
    name = target.name.sql
    deleted = connection.execute(sql.SQL("DELETE FROM {} t WHERE {}").format(name, which)).rowcount
    triggers = [name for name, events in _list_before_triggers(connection, target) if "DELETE" in events]
    if not triggers:
        return deleted
    row = connection.execute(sql.SQL("SELECT count(*) FROM {} t WHERE {}").format(name, which)).fetchone()
    if row and row[0]:
        one = len(triggers) == 1
        which_one = f"its trigger {triggers[0]} returns" if one else f"a trigger returns ({', '.join(triggers)})"
        raise StreamFailed(
            f"{target.name} keeps {row[0]} rows that the full refresh deletes: {which_one} NULL for them",
            next_step="let the trigger return OLD, or set `triggers: false` on the stream, then run again",
            safe="Nothing was replaced: readers still see the previous refresh.",
        )
    return deleted


def _list_before_triggers(connection: Connection, target: Target) -> list[tuple[str, str]]:
    """The enabled triggers that can suppress the write of a row, each with its events."""
    query = load_statement(__package__, "before_triggers").format(oid=sql.Literal(int(target.oid)))
    return connection.execute(query).fetchall()


def _switch(schema: str, table: str, how: str, name: str) -> sql.Composed:
    # Each by itself: a partition's copy of a trigger may be in another state than the original.
    return sql.SQL("ALTER TABLE ONLY {} {} TRIGGER {}").format(
        sql.Identifier(schema, table), sql.SQL(how), sql.Identifier(name)
    )

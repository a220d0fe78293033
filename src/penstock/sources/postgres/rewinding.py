"""Going back along the cursor to a value that a user names, in Postgres' own text."""

from __future__ import annotations

from dataclasses import replace

from psycopg import sql

from penstock.core.marks import Mark
from penstock.core.ranges import Key
from penstock.errors import StreamRefused
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import row_of, typed_literal
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.marks import KeysetMark, bound, read


def place(session: Session, stream: str, content: TableContent, at: Mark | None, to: str) -> Mark | None:
    """The mark just below all rows whose cursor is `to` or more; None: the beginning, if there is no row below."""
    reset = f"run `penstock state reset FILE --stream {stream}` to read the table from the beginning"

    def refuse(why: str, next_step: str) -> StreamRefused:
        return StreamRefused(f"it cannot be rewound to {to!r}: {why}", next_step=next_step, stream=stream)

    if content.mode != "keyset":
        raise refuse("it has no cursor and is read whole in every run", "run the pipeline: that reads all of it")
    cursor = content.key[0]
    value = typed_literal(to, cursor.type)
    wrong = session.check(sql.SQL("SELECT {} IS NULL").format(value))
    if wrong:
        named = f"name a value of {cursor.column}, which is {cursor.type}, as Postgres writes it"
        raise refuse(wrong, f"{named}; or {reset}")
    mark = read(at) if at else None
    if not isinstance(mark, KeysetMark):
        raise refuse("its first load is not through yet", f"let runs finish the load first, or {reset}")
    below = _below(session, stream, content, value)
    if below is None:
        return None
    if mark.key is None or _comes_after(session, content, below, mark.key):
        raise refuse(
            f"its mark, {mark.words()}, is not there yet, and rows would be left out",
            f"name a value of {cursor.column} that lies behind the mark",
        )
    return (mark if below == mark.key else replace(mark, key=below, ties=None)).mark()


def _below(session: Session, stream: str, content: TableContent, value: sql.Composed) -> Key | None:
    """The greatest key whose cursor is less than a value."""
    keys = [sql.Identifier("t", column.column) for column in content.key]
    query = sql.SQL("SELECT {} FROM {} AS t WHERE {} < {} ORDER BY {} LIMIT 1").format(
        sql.SQL(", ").join(sql.SQL("{}::text").format(key) for key in keys),
        content.table.sql,
        keys[0],
        value,
        sql.SQL(", ").join(sql.SQL("{} DESC").format(key) for key in keys),
    )
    rows = session.rows(query, table=str(content.table), stream=stream)
    return tuple(rows[0]) if rows else None


def _comes_after(session: Session, content: TableContent, key: Key, mark: Key) -> bool:
    query = sql.SQL("SELECT {} > {}").format(row_of(bound(content.key, key)), row_of(bound(content.key, mark)))
    return bool(session.rows(query, table=str(content.table))[0][0])

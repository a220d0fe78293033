"""Finds the mark for a cursor value that a user rewinds to, in Postgres' own text."""

from __future__ import annotations

from dataclasses import replace

from psycopg import sql

from penstock.core.marks import Mark
from penstock.core.ranges import Key
from penstock.errors import StreamRefused
from penstock.links.postgres.literals import row_of, typed_literal
from penstock.sources.postgres.marks import KeysetMark, read
from penstock.sources.postgres.stream import TableStream


def find_mark(stream: TableStream, at: Mark | None, to: str) -> Mark | None:
    """The mark just below all rows whose cursor is `to` or more; None: the beginning, if there is no row below."""
    content = stream.content
    reset = f"run {stream.reset_command} to read the table from the beginning"

    def refuse(why: str, next_step: str) -> StreamRefused:
        return StreamRefused(f"the stream cannot be rewound to {to!r}: {why}", next_step=next_step, stream=stream.name)

    if content.mode != "keyset":
        raise refuse("it has no cursor and is read whole in every run", "run the pipeline: that reads all of it")
    cursor = content.key[0]
    value = typed_literal(to, cursor.type)
    wrong = stream.session.find_error(sql.SQL("SELECT {} IS NULL").format(value))
    if wrong:
        named = f"name a value of {cursor.column}, which is {cursor.type}, as Postgres writes it"
        raise refuse(wrong, f"{named}; or {reset}")
    mark = read(at) if at else None
    if not isinstance(mark, KeysetMark):
        raise refuse("its first load is not finished yet", f"let runs finish the load first, or {reset}")
    below = _highest_key_below(stream, value)
    if below is None:
        return None
    if mark.key is None or _is_after(stream, below, mark.key):
        raise refuse(
            f"its mark, {mark.describe()}, is not there yet, and rows would be left out",
            f"name a value of {cursor.column} that lies behind the mark",
        )
    return (mark if below == mark.key else replace(mark, key=below, ties=None)).mark()


def _highest_key_below(stream: TableStream, value: sql.Composed) -> Key | None:
    content = stream.content
    query = sql.SQL("SELECT {} FROM {} AS t WHERE {} < {} ORDER BY {} LIMIT 1").format(
        content.key_texts, content.table.sql, content.cursor_sql, value, content.descending
    )
    rows = stream.rows(query)
    return tuple(rows[0]) if rows else None


def _is_after(stream: TableStream, key: Key, mark: Key) -> bool:
    literals = stream.content.literals
    return bool(stream.rows(sql.SQL("SELECT {} > {}").format(row_of(literals(key)), row_of(literals(mark))))[0][0])

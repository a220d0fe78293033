"""Finds the mark from which a stream goes on after another program, from the key that it had read up to."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.core.documents import Document
from penstock.core.ranges import Key
from penstock.errors import StreamRefused
from penstock.links.postgres.literals import row_of, typed_literal
from penstock.sources.postgres.horizon import horizons
from penstock.sources.postgres.stream import TableStream


def find_key(stream: TableStream, texts: Sequence[str], ceiling: Document | None) -> Key:
    """The highest key of the table up to the one that was read; StreamRefused if rows below it may still come.

    The key itself may be gone: its row was changed since, and has a higher key.
    """
    content = stream.content
    names = ", ".join(content.key_names)

    def refuse(why: str, next_step: str) -> StreamRefused:
        at = ", ".join(texts)
        return StreamRefused(f"it cannot go on behind {names} = {at}: {why}", next_step=next_step, stream=stream.name)

    if content.mode != "keyset":
        raise refuse("the stream has no cursor", "add `cursor` to the stream, or leave it out: it is read whole")
    if len(texts) != len(content.key):
        raise refuse(
            f"the stream's key has {len(content.key)} columns, and {len(texts)} values were saved",
            "give the stream the cursor and the tiebreaker that the other program reads by",
        )
    literals = [typed_literal(text, column.type) for text, column in zip(texts, content.key, strict=True)]
    wrong = stream.session.find_error(sql.SQL("SELECT {}").format(row_of(literals)))
    if wrong:
        raise refuse(wrong, "check that the saved state belongs to this table")
    query = sql.SQL("SELECT {} FROM {} AS t WHERE {} <= {} ORDER BY {} LIMIT 1").format(
        content.key_texts, content.table.sql, row_of(content.key_sql), row_of(literals), content.descending
    )
    found = stream.rows(query)
    if not found:
        raise refuse(
            f"{content.table} has no row up to there",
            "check that the saved state belongs to this database; or leave the stream out, so that its first run "
            "reads all rows",
        )
    key: Key = tuple(found[0])
    highest = horizons.highest_key(ceiling) if ceiling else None
    if highest is None or _is_above(stream, key, highest):
        raise refuse(
            "transactions are open that may have written rows below it, which would never be delivered",
            "wait until they have ended and run the command again; then look for their rows below this key, which the "
            "other program has passed over, or leave the stream out, so that its first run reads all rows",
        )
    return key


def _is_above(stream: TableStream, key: Key, other: Key) -> bool:
    literals = stream.content.literals
    return bool(stream.rows(sql.SQL("SELECT {} > {}").format(row_of(literals(key)), row_of(literals(other))))[0][0])

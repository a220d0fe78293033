"""What may have been missed below a mark, as far as a cheap look at its boundary tells. Warns, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from penstock.core.marks import Mark
from penstock.core.ranges import Key
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import row_of, to_text
from penstock.sources.postgres import marks
from penstock.sources.postgres.content import TableContent, names
from penstock.sources.postgres.identity import TableIdentity
from penstock.sources.postgres.load import loading
from penstock.sources.postgres.load.pieces import Stream
from penstock.sources.postgres.plan import highest
from penstock.sources.postgres.statements import filtered

#: rows that share the mark's cursor value are counted up to here; more would take longer than a look may
MOST_TIES = 1000


def ties(session: Session, stream: str, content: TableContent, key: Key) -> int | None:
    """Rows that share a key's cursor value, up to the key; None: there are too many to count, or it needs none."""
    cursor, *tiebreaker = [sql.Identifier("t", column.column) for column in content.key]
    if not tiebreaker:
        return None
    value, *rest = marks.bound(content.key, key)
    conditions = [
        sql.SQL("{} = {}").format(cursor, value),
        sql.SQL("{} <= {}").format(row_of(tiebreaker), row_of(rest)),
        *filtered(content),
    ]
    query = sql.SQL("SELECT count(*) FROM (SELECT FROM {} AS t WHERE {} LIMIT {}) x").format(
        content.table.sql, sql.SQL(" AND ").join(conditions), sql.Literal(MOST_TIES + 1)
    )
    [[count]] = session.rows(query, table=str(content.table), stream=stream)
    return int(count) if count <= MOST_TIES else None


def warnings(at: Stream, after: Mark, now: TableIdentity) -> Iterator[str]:
    """What an operator should know of rows below a mark."""
    session, stream, content, mark = at.session, at.name, at.content, marks.read(after)
    if not isinstance(mark, marks.KeysetMark) or mark.key is None:
        return
    cursor, value = content.key[0].column, mark.key[0]
    if mark.ties is not None:
        count = ties(session, stream, content, mark.key)
        late = (count if count is not None else MOST_TIES) - mark.ties
        if late > 0:
            rows = "1 row" if late == 1 else f"{late} rows"
            yield (
                f"{rows} with {cursor} {value} appeared below the mark after it was made (the same {cursor}, a lower "
                f"{', '.join(names(content.key)[1:])}), and may have been missed; `penstock rewind FILE --stream "
                f"{stream} --to {to_text(sql.Literal(value))}` delivers every row from there again"
            )
    if mark.table and mark.table.oid == now.oid and mark.table.file != now.file:
        top = highest(session, stream, content)
        if top and top.key != mark.key and highest(session, stream, content, after=mark.key) is None:
            yield (
                f"{content.table} was emptied or rewritten since the mark was made, and its highest {cursor}, "
                f"{top.key[0]}, lies below the mark ({cursor} {value}): rows that were put in below it are not read; "
                f"`penstock state reset FILE --stream {stream}` reads the table from the beginning"
            )
    if at.skips_hidden and mark.leaves and (hidden := loading.skipped(at, mark)):
        yield (
            f"rows from below the mark are left out (`hidden_partitions: skip`): user {session.user} may not read "
            f"{', '.join(map(str, hidden))}, attached since, by its own name"
        )

"""How many rows a run still has before it: a few are counted along the index, many are estimated and not read."""

from __future__ import annotations

import math

from psycopg import sql

from penstock.core.documents import Document
from penstock.core.ranges import Key, Range
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import load_statement, row_of, to_text
from penstock.links.postgres.types import without_modifier
from penstock.ports import Remaining
from penstock.sources.postgres.catalog import ROOM, describe
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.horizon import horizons
from penstock.sources.postgres.marks import KeysetMark, bound
from penstock.sources.postgres.plan import key_range
from penstock.sources.postgres.spread import COUNTED, NUMBERS, expected
from penstock.sources.postgres.statements import matched

#: tables and what is stored like one: beginning to read them costs little
_HEAPS = ("r", "p", "m")


def of_keyset(
    session: Session, stream: str, content: TableContent, after: KeysetMark | None, ceiling: Document
) -> Remaining:
    """The rows of a keyset stream between a mark and the run's ceiling."""
    key = horizons.key(ceiling)
    if key is None:
        return Remaining(0, exact=True)
    return of_range(session, stream, content, Range(after.key if after else None, key))


def with_held_back(
    session: Session, stream: str, content: TableContent, left: Remaining, ceiling: Document
) -> Remaining:
    """The same with the rows above the ceiling that may not be read yet, and who keeps them from it."""
    beyond = horizons.held(ceiling)
    return horizons.noted(left, ceiling, of_range(session, stream, content, beyond).rows if beyond else None)


def of_range(session: Session, stream: str, content: TableContent, range_: Range) -> Remaining:
    """The rows of a keyset stream between a mark and the run's ceiling."""
    if range_.after == range_.upto:
        return Remaining(0, exact=True)
    keys = [sql.Identifier("t", column.column) for column in content.key]
    query = load_statement(ROOM, "counted").format(
        table=content.table.sql,
        # Of many rows, as the planner takes it: it walks along the index then, and does not fetch and sort them all.
        whole=key_range(content.key, range_),
        key=sql.SQL(", ").join(keys),
        most=sql.Literal(COUNTED),
        cursor=sql.Literal(content.key[0].column),
        name=sql.Literal(to_text(content.table.sql)),
        matched=matched(content),
    )
    [(passed, count, known)] = session.rows(query, table=str(content.table), stream=stream)
    if passed < COUNTED:
        return Remaining(count, exact=True)
    if range_.after is None or range_.upto is None:
        found: int | None = expected(session, stream, content, _filled(content))
    elif known:
        found = _by_statistics(session, stream, content, range_.after, range_.upto)
    else:
        found = _by_place(session, stream, content, range_.after, range_.upto)
    return Remaining(max(count, found) if found is not None else None)


def of_table(session: Session, stream: str, content: TableContent) -> Remaining:
    """The rows of a table that is read whole.

    One that nobody has analyzed is begun to be counted: the planner takes it for ten pages, however empty it is.
    """
    table = describe(session, content.table, (), stream=stream)
    if table is not None and table.rows is None and table.kind in _HEAPS:
        query = sql.SQL(
            "SELECT count(*), count(*) FILTER (WHERE x.matched) FROM (SELECT {} FROM {} AS t LIMIT {}) x"
        ).format(sql.SQL("({}) AS matched").format(matched(content)), content.table.sql, sql.Literal(COUNTED))
        [(passed, count)] = session.rows(query, table=str(content.table), stream=stream)
        if passed < COUNTED:
            return Remaining(count, exact=True)
    return Remaining(expected(session, stream, content, matched(content)))


def _filled(content: TableContent) -> sql.Composed:
    """Rows that have a cursor and that `where` lets through."""
    return sql.SQL("{} IS NOT NULL AND {}").format(sql.Identifier("t", content.key[0].column), matched(content))


def _by_statistics(session: Session, stream: str, content: TableContent, after: Key, upto: Key) -> int:
    """Rows above the mark's cursor, and those that share it and come later.

    Asked of the cursor alone: the planner takes the two sides of a row comparison for independent.
    """
    cursor = sql.Identifier("t", content.key[0].column)
    low, *ties = bound(content.key, after)
    above = sql.SQL("{0} > {1} AND {0} <= {2} AND {3}").format(
        cursor, low, bound(content.key, upto)[0], matched(content)
    )
    rows = expected(session, stream, content, above)
    if ties:
        members = [sql.Identifier("t", column.column) for column in content.key[1:]]
        beside = sql.SQL("{} = {} AND {} > {} AND {}").format(
            cursor, low, row_of(members), row_of(ties), matched(content)
        )
        rows += expected(session, stream, content, beside)
    return rows


def _by_place(session: Session, stream: str, content: TableContent, after: Key, upto: Key) -> int | None:
    """As if the cursor were spread evenly, for a table that nobody has analyzed; None if it has no numbers."""
    spelling = NUMBERS.get(without_modifier(content.key[0].type))
    if spelling is None:
        return None
    cursor = sql.Identifier("t", content.key[0].column)
    low, high = (sql.SQL(spelling).format(bound(content.key, key)[0]) for key in (after, upto))
    lowest = sql.SQL("(SELECT {} FROM {} AS t WHERE {} ORDER BY {} LIMIT 1)").format(
        sql.SQL(spelling).format(cursor), content.table.sql, sql.SQL("{} IS NOT NULL").format(cursor), cursor
    )
    query = sql.SQL("SELECT ({1} - {0}) / nullif({1} - {2}, 0)").format(low, high, lowest)
    [[share]] = session.rows(query, table=str(content.table), stream=stream)
    if share is None or not math.isfinite(share):
        return None
    rows = expected(session, stream, content, _filled(content))
    return int(min(1.0, max(0.0, float(share))) * rows)

"""Estimates the rows that a run has left: few are counted along the index, many are estimated without reading them."""

from __future__ import annotations

import math

from psycopg import sql

from penstock.core.documents import Document
from penstock.core.ranges import Key, Range
from penstock.links.postgres.literals import load_statement, row_of, to_text
from penstock.links.postgres.types import without_modifier
from penstock.ports import Remaining
from penstock.sources.postgres.histogram import MAX_COUNTED_ROWS, NUMBERS
from penstock.sources.postgres.horizon import horizons
from penstock.sources.postgres.stream import PACKAGE, TableStream


def add_held_back(stream: TableStream, left: Remaining, ceiling: Document) -> Remaining:
    """Add the rows above the ceiling that may not be read yet, and the transaction that holds them back."""
    beyond = horizons.held_range(ceiling)
    return horizons.add_horizon(left, ceiling, estimate_range(stream, beyond).rows if beyond else None)


def estimate_range(stream: TableStream, range_: Range) -> Remaining:
    """The rows of a range of keys."""
    content = stream.content
    if range_.after == range_.upto:
        return Remaining(0, exact=True)
    query = load_statement(PACKAGE, "counted").format(
        table=content.table.sql,
        # A condition of many rows for the planner: it walks along the index then, and does not fetch and sort them all.
        whole=content.range_sql(range_),
        key=content.ascending,
        most=sql.Literal(MAX_COUNTED_ROWS),
        cursor=sql.Literal(content.key[0].column),
        name=sql.Literal(to_text(content.table.sql)),
        matched=content.filter_sql,
    )
    [(passed, count, analyzed)] = stream.rows(query)
    if passed < MAX_COUNTED_ROWS:
        return Remaining(count, exact=True)
    if range_.after is None or range_.upto is None:
        rows: int | None = stream.expected_rows(_rows_with_cursor(stream))
    elif analyzed:
        rows = _estimate_by_statistics(stream, range_.after, range_.upto)
    else:
        rows = _estimate_by_distance(stream, range_.after, range_.upto)
    return Remaining(max(count, rows) if rows is not None else None)


def estimate_table(stream: TableStream) -> Remaining:
    """The rows of a whole table.

    Starts to count a table that was never analyzed: the planner assumes ten pages, even if it is empty.
    """
    table, content = stream.describe(), stream.content
    if table is not None and table.rows is None and table.kind in ("r", "p", "m"):
        query = sql.SQL(
            "SELECT count(*), count(*) FILTER (WHERE x.matched) FROM (SELECT ({}) AS matched FROM {} AS t LIMIT {}) x"
        ).format(content.filter_sql, content.table.sql, sql.Literal(MAX_COUNTED_ROWS))
        [(passed, count)] = stream.rows(query)
        if passed < MAX_COUNTED_ROWS:
            return Remaining(count, exact=True)
    return Remaining(stream.expected_rows(content.filter_sql))


def _rows_with_cursor(stream: TableStream) -> sql.Composed:
    return sql.SQL("{} IS NOT NULL AND {}").format(stream.content.cursor_sql, stream.content.filter_sql)


def _estimate_by_statistics(stream: TableStream, after: Key, upto: Key) -> int:
    """Rows above the mark's cursor, and later rows that share it.

    Asks about the cursor alone: the planner treats the two sides of a row comparison as independent.
    """
    content = stream.content
    low, *ties = content.literals(after)
    above = sql.SQL("{0} > {1} AND {0} <= {2} AND {3}").format(
        content.cursor_sql, low, content.literals(upto)[0], content.filter_sql
    )
    rows = stream.expected_rows(above)
    if ties:
        beside = sql.SQL("{} = {} AND {} > {} AND {}").format(
            content.cursor_sql, low, row_of(content.key_sql[1:]), row_of(ties), content.filter_sql
        )
        rows += stream.expected_rows(beside)
    return rows


def _estimate_by_distance(stream: TableStream, after: Key, upto: Key) -> int | None:
    """Assume evenly spread cursor values in a table that was never analyzed; None if they are not numbers."""
    content = stream.content
    number = NUMBERS.get(without_modifier(content.key[0].type))
    if number is None:
        return None
    low, high = (sql.SQL(number).format(content.literals(key)[0]) for key in (after, upto))
    lowest = sql.SQL("(SELECT {} FROM {} AS t WHERE {cursor} IS NOT NULL ORDER BY {cursor} LIMIT 1)").format(
        sql.SQL(number).format(content.cursor_sql), content.table.sql, cursor=content.cursor_sql
    )
    query = sql.SQL("SELECT ({1} - {0}) / nullif({1} - {2}, 0)").format(low, high, lowest)
    [[share]] = stream.rows(query)
    if share is None or not math.isfinite(share):
        return None
    return int(min(1.0, max(0.0, float(share))) * stream.expected_rows(_rows_with_cursor(stream)))

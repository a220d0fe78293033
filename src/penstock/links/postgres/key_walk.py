"""Walks over a key of a table, along an index: the keys at which a range is cut. The server compares, never Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from penstock.core.ranges import Key, Range
from penstock.links.postgres.literals import load_statement, row_of, typed_literal
from penstock.links.postgres.transactions import PACKAGE


@dataclass(frozen=True, slots=True)
class Cut:
    """A key at which a slice may be cut."""

    key: Key
    #: rows of the slice up to the key
    rows: int


def range_condition(columns: Sequence[sql.Composable], types: Sequence[str], range_: Range) -> sql.Composed:
    """The rows of a range, as row comparisons: the form that an index can serve. Of an open side it says nothing."""
    comparisons = [
        sql.SQL("{} {} {}").format(row_of(columns), sql.SQL(sign), row_of(_literals(key, types)))
        for sign, key in ((">", range_.after), ("<=", range_.upto))
        if key is not None
    ]
    if range_.after is not None and range_.upto is not None and len(columns) > 1:
        # For the planner, which treats the two comparisons as independent: it expects a quarter of the table.
        low, high = _literals(range_.after, types)[0], _literals(range_.upto, types)[0]
        comparisons.append(sql.SQL("{} BETWEEN {} AND {}").format(columns[0], low, high))
    return sql.SQL(" AND ").join(comparisons) if comparisons else sql.SQL("true").format()


def _literals(key: Key, types: Sequence[str]) -> list[sql.Composed]:
    return [typed_literal(text, type_) for text, type_ in zip(key, types, strict=True)]


def walk_steps(
    run: Callable[[sql.Composed], Sequence[tuple[Any, ...]]],
    table: sql.Composable,
    key: Sequence[sql.Composable],
    *,
    whole: sql.Composable,
    below: sql.Composable,
    step: int,
    most: int,
) -> tuple[list[Cut], int]:
    """The keys at every step, and the number of rows after the last; one statement, and so one snapshot.

    `key` has columns of table `t`; `whole` is the condition of the range, and `below` that of its upper end alone.
    """
    aliases = [f"k{number}" for number in range(len(key))]
    query = load_statement(PACKAGE, "cuts").format(
        names=sql.SQL(", ").join(map(sql.Identifier, aliases)),
        key=sql.SQL(", ").join(key),
        key_row=row_of(key),
        cut=row_of([sql.Identifier("cuts", alias) for alias in aliases]),
        table=table,
        whole=whole,
        below=below,
        step=sql.Literal(step),
        most=sql.Literal(most),
        texts=sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(alias)) for alias in aliases),
        nothing=sql.SQL(", ").join([sql.SQL("NULL::text")] * len(aliases)),
    )
    rows = run(query)
    cuts = sorted((Cut(tuple(texts), count) for count, *texts in rows if texts[0] is not None), key=lambda c: c.rows)
    [rest] = [count for count, *texts in rows if texts[0] is None]
    return cuts, rest

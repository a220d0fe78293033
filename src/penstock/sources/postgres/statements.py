"""The one statement that a part is, as SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg import sql

from penstock.core.content import Column
from penstock.core.documents import parse
from penstock.core.ranges import Key, Range
from penstock.core.slices import Part
from penstock.links.postgres.column_sql import is_no_list, select_expression
from penstock.links.postgres.literals import TableName
from penstock.sources.postgres.content import KeyColumn, TableContent, declared, form_of
from penstock.sources.postgres.marks import bound
from penstock.sources.postgres.plan import cursor_bounds, key_range

#: the last column of what is fetched where arrays are read as lists: how many of the row's arrays are none
FLAG = "_penstock_misshapen"


def condition(content: TableContent, part: Part) -> sql.Composed:
    """The rows of a part, as SQL about table `t`."""
    return sql.SQL(" AND ").join([*_place(content, part), *filtered(content)])


def filtered(content: TableContent) -> list[sql.Composed]:
    """The user's own condition, if there is one. On lines of its own: it may end in a comment."""
    return [sql.SQL("(\n{}\n)").format(sql.SQL(content.where))] if content.where else []


def matched(content: TableContent) -> sql.Composed:
    """What is true of the rows that the user's condition lets through: all of them if there is none."""
    return sql.SQL(" AND ").join(filtered(content)) if content.where else sql.SQL("{}").format(sql.SQL("true"))


def of_part(content: TableContent, part: Part) -> TableContent:
    """The content as a part reads it: from a partition, where it names one."""
    table = parse(part.terms).get("table")
    return replace(content, table=TableName.read(table, "")) if table else content


def _place(content: TableContent, part: Part) -> list[sql.Composed]:
    terms = parse(part.terms)
    if "load" in terms:
        return [*_of_load(terms), *_up_to(content, tuple(terms["horizon"]))]
    if content.mode == "keyset":
        range_ = _range(terms)
        return [
            key_range(content.key, range_),
            *cursor_bounds(content.key, range_),
            *_of_partitions(terms.get("leaves")),
        ]
    return _blocks(*((block, 0) if block is not None else None for block in (terms["from_block"], terms["to_block"])))


def _range(terms: Mapping[str, Any]) -> Range:
    return Range(*(tuple(key) if key is not None else None for key in (terms["after"], terms["upto"])))


def _of_load(terms: Mapping[str, Any]) -> list[sql.Composed]:
    """A range of a first load's own key, or of blocks."""
    if terms["load"] == "blocks":
        return _blocks(terms["from"], terms["to"])
    columns = [KeyColumn(*pair) for pair in zip(terms["columns"], terms["types"], strict=True)]
    range_ = _range(terms)
    return [key_range(columns, range_), *cursor_bounds(columns, range_)]


def _up_to(content: TableContent, horizon: Key) -> list[sql.Composed]:
    """Rows at or below a key; and what follows from it about the cursor alone, for the planner's sake."""
    cursor, high = sql.Identifier("t", content.key[0].column), bound(content.key, horizon)[0]
    alone = [sql.SQL("{} <= {}").format(cursor, high)] if len(content.key) > 1 else []
    return [key_range(content.key, Range(None, horizon)), *alone]


def _of_partitions(oids: Sequence[str] | None) -> list[sql.Composed]:
    """Rows of the partitions that the slice's mark speaks of: any other gets a load of its own."""
    return [sql.SQL("t.tableoid = ANY ({}::oid[])").format(sql.Literal(list(oids)))] if oids else []


def _blocks(start: Sequence[object] | None, end: Sequence[object] | None) -> list[sql.Composed]:
    """Rows from one place of the table up to, and without, another: each a block and an offset in it."""
    sides = [
        sql.SQL("t.ctid {} {}::tid").format(sql.SQL(sign), sql.Literal(f"({place[0]},{place[1]})"))
        for sign, place in ((">=", start), ("<", end))
        if place is not None
    ]
    return sides or [sql.SQL("{}").format(sql.SQL("true"))]


def asked(column: Column) -> sql.Composed:
    """What stands in the SELECT list for a column."""
    return select_expression(column.name, declared(column), form_of(column), domain=column.base is not None)


def select(content: TableContent, where: sql.Composed) -> sql.Composed:
    """The one statement that a part is; literals only, because bound parameters switch COPY off."""
    columns = [asked(column) for column in content.columns]
    flags = [sql.SQL("{}::int").format(is_no_list(c.name)) for c in content.columns if form_of(c).element]
    if flags:
        columns.append(sql.SQL("{} AS {}").format(sql.SQL(" + ").join(flags), sql.Identifier(FLAG)))
    return sql.SQL("SELECT {} FROM {} AS t WHERE {}").format(sql.SQL(", ").join(columns), content.table.sql, where)

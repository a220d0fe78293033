"""The one statement that a part is, as SQL."""

from __future__ import annotations

from psycopg import sql

from penstock.core.documents import parse
from penstock.core.ranges import Range
from penstock.core.slices import Part
from penstock.links.postgres.types import outside, selected
from penstock.sources.postgres.content import Content
from penstock.sources.postgres.plan import cursor_bounds, key_range

#: the last column of what is fetched: whether a value of the row does not fit its Arrow type
FLAG = "_penstock_outside"


def condition(content: Content, part: Part) -> sql.Composed:
    """The rows of a part, as SQL about table `t`."""
    return sql.SQL(" AND ").join([*_place(content, part), *filtered(content)])


def filtered(content: Content) -> list[sql.Composed]:
    """The user's own condition, if there is one. On lines of its own: it may end in a comment."""
    return [sql.SQL("(\n{}\n)").format(sql.SQL(content.where))] if content.where else []


def _place(content: Content, part: Part) -> list[sql.Composed]:
    terms = parse(part.terms)
    if content.mode == "keyset":
        keys = (tuple(key) if key is not None else None for key in (terms["after"], terms["upto"]))
        range_ = Range(*keys)
        return [key_range(content.key, range_), *cursor_bounds(content.key, range_)]
    sides = [
        sql.SQL("t.ctid {} {}::tid").format(sql.SQL(sign), sql.Literal(f"({terms[name]},0)"))
        for sign, name in ((">=", "from_block"), ("<", "to_block"))
        if terms[name] is not None
    ]
    return sides or [sql.SQL("{}").format(sql.SQL("true"))]


def select(content: Content, where: sql.Composed) -> sql.Composed:
    """The one statement that a part is; literals only, because bound parameters switch COPY off."""
    flags = [check for column in content.columns if (check := outside(column.name, column.type))]
    columns = [selected(column.name, column.type) for column in content.columns]
    if flags:
        columns.append(sql.SQL("({}) AS {}").format(sql.SQL(" OR ").join(flags), sql.Identifier(FLAG)))
    return sql.SQL("SELECT {} FROM {} AS t WHERE {}").format(sql.SQL(", ").join(columns), content.table.sql, where)

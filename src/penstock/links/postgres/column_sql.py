"""What a SELECT asks for so that a column's values arrive exactly, and how it finds those that cannot."""

from __future__ import annotations

from collections.abc import Mapping

from psycopg import sql

from penstock.core.types import Plain, Type
from penstock.links.postgres.literals import typed_literal
from penstock.links.postgres.types import NOT_NUMBERS, Form, without_modifier

#: bytes that a value of each type takes as Arrow; strings, binaries and lists are measured
_WIDTHS: Mapping[Type, int] = {
    Plain.BOOL: 1,
    Plain.INT16: 2,
    **dict.fromkeys((Plain.INT32, Plain.FLOAT32, Plain.DATE), 4),
    **dict.fromkeys((Plain.INT64, Plain.FLOAT64, Plain.TIME, Plain.TIMESTAMP, Plain.TIMESTAMPTZ), 8),
}
#: bytes of the offset that each string, binary or list also takes
_OFFSET = 4


def select_expression(name: str, base: str, form: Form, *, domain: bool) -> sql.Composed:
    """What stands in the SELECT list for a column.

    Every type that arrives is a built-in one: the driver learns the others once, and does not know what came later.
    """
    column = sql.Identifier(name)
    there = sql.SQL("{} IS DISTINCT FROM NULL").format(column)  # not IS NOT NULL: a composite is its members there
    if form.printed:
        return sql.SQL("CASE WHEN {} THEN {} END AS {}").format(there, _printed(column), column)
    element = form.element
    if element is None:
        return sql.SQL("{} AS {}").format(
            _value(column, form.cast or (without_modifier(base) if domain else None)), column
        )
    if element.printed:
        # Printed as a whole, because elements cast one by one would be printed otherwise (an inet with its mask).
        value = _value(_printed(column), "text[]")
    elif element.cast or domain:
        value = _value(column, f"{element.cast}[]" if element.cast else without_modifier(base))
    else:
        value = sql.Composed([column])
    fits = sql.SQL("{} AND NOT {}").format(there, is_no_list(name))
    return sql.SQL("CASE WHEN {} THEN {} END AS {}").format(fits, value, column)


def is_no_list(name: str) -> sql.Composed:
    """Whether an array is no list, as SQL: it has more than one dimension, or does not begin at 1. Never NULL."""
    return sql.SQL("((array_ndims({0}) > 1 OR array_lower({0}, 1) <> 1) IS TRUE)").format(sql.Identifier(name))


def unfit_condition(name: str, base: str, form: Form) -> sql.Composed | None:
    """Whether a row's value does not fit its type, as SQL; None: every value does. NULL fits. Never NULL."""
    column = sql.Identifier(name)
    if form.element is not None:
        inner = _unfit(column, base.removesuffix("[]"), form.element, array=True)
        return sql.SQL("({} OR {})").format(is_no_list(name), inner) if inner else is_no_list(name)
    return _unfit(column, base, form, array=False)


def _unfit(column: sql.Identifier, base: str, form: Form, *, array: bool) -> sql.Composed | None:
    each = sql.SQL("ANY ({})" if array else "({})")
    if form.bounds is not None:
        low, high = (typed_literal(bound, without_modifier(base)) for bound in form.bounds)
        value = each.format(column)
        return sql.SQL("(({0} > {2} OR {1} < {2}) IS TRUE)").format(low, high, value)
    if form.misfits:
        value = each.format(_value(column, "text[]" if array else "text"))
        same = (sql.SQL("{} = {}").format(sql.Literal(word), value) for word in NOT_NUMBERS)
        return sql.SQL("(({}) IS TRUE)").format(sql.SQL(" OR ").join(same))
    return None


def size_expression(name: str, form: Form) -> sql.Composed:
    """About how many bytes a row's value takes as Arrow, as SQL."""
    if form.type not in (Plain.STRING, Plain.BINARY) and form.element is None:
        return sql.SQL("{}").format(sql.Literal(_WIDTHS.get(form.type, 16)))
    # Not pg_column_size: it would give the compressed size of a large value.
    value = sql.SQL("{}" if form.type is Plain.BINARY else "{}::text").format(sql.Identifier(name))
    return sql.SQL("coalesce(octet_length({}), 0) + {}").format(value, sql.Literal(_OFFSET))


def _printed(column: sql.Composable) -> sql.Composed:
    """By the type's own output function; a cast to text is another for some (inet, xml, what users make)."""
    return sql.SQL("concat({})").format(column)


def _value(value: sql.Composable, cast: str | None) -> sql.Composed:
    return sql.SQL("{}::{}").format(value, sql.SQL(cast)) if cast else sql.Composed([value])

"""SQL expressions of the fold: values of fields before and after ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from psycopg import sql

from penstock.sinks.postgres.state.fields import Entity, Field


def is_known(entity: Entity) -> sql.Composed:
    """Whether anything is known of an entity: a row `w` of `penstock_work`."""
    tests: list[sql.Composable] = [sql.SQL("{} IS NOT NULL").format(each.of("w")) for each in entity.scalars]
    tests += [sql.SQL("cardinality({}) > 0").format(each.of("w")) for each in entity.multi]
    return sql.SQL("({})").format(sql.SQL(" OR ").join(tests or [sql.SQL("false")]))


def early_value(each: Field) -> sql.Composed:
    """The value of a field in a row `e` of `early_ops`."""
    if not each.is_multi:
        return each.read(sql.SQL("e.fields -> 'scalars' ->> {}").format(sql.Literal(each.name)))
    return sql.SQL("ARRAY(SELECT {} FROM jsonb_array_elements_text(e.fields -> 'multi' -> {}) v (value))").format(
        each.read(sql.SQL("v.value")), sql.Literal(each.name)
    )


def new_value(each: Field, values: sql.Composable) -> sql.Composed:
    """A field of a row `w`, as it is in some last values, if they have it."""
    name = sql.Literal(each.name)
    read = each.read(sql.SQL("{} ->> {}").format(values, name))
    return sql.SQL("CASE WHEN {} ? {} THEN {} ELSE {} END").format(values, name, read, each.of("w"))


def set_multi(each: Field) -> sql.Composed:
    """A field with several values: those before, without the removed ones, and the added ones."""
    added, removed = (sql.Identifier("p", f"{kind}{each.number}") for kind in "ar")
    before = sql.SQL("CASE WHEN e.gone IS NULL THEN {} END").format(each.of("w"))
    merged = _merge_values(
        each,
        before,
        sql.SQL("coalesce({}, '{{}}')").format(added),
        sql.SQL("coalesce({}, '{{}}')").format(removed),
    )
    return sql.SQL(
        "{own} = CASE WHEN {added} IS NULL AND {removed} IS NULL THEN coalesce({before}, '{{}}') ELSE {merged} END"
    ).format(own=each.work, added=added, removed=removed, before=before, merged=merged)


def _merge_values(each: Field, before: sql.Composable, added: sql.Composable, removed: sql.Composable) -> sql.Composed:
    order = sql.SQL("z.v" if each.is_ordered else 'z.v::text COLLATE "C"')
    # EXCEPT hashes its rows: an entity may have many thousand values.
    return sql.SQL(
        "ARRAY(SELECT z.v FROM (SELECT {read} AS v FROM (SELECT v::text AS v FROM unnest({before}) v "
        "EXCEPT SELECT v FROM unnest({added} || {removed}) v UNION ALL SELECT v FROM unnest({added}) v) y) z "
        "WHERE z.v IS NOT NULL ORDER BY {order})"
    ).format(before=before, added=added, removed=removed, read=each.read(sql.SQL("y.v")), order=order)


def after_pieces(each: Field, ops: Sequence[tuple[str, Field, str | None]]) -> sql.Composed:
    """A field after the ops of a filter, one after the other."""
    own = [(what, value) for what, field_, value in ops if field_ == each]
    if not each.is_multi:
        return each.read(sql.SQL("{}::text").format(sql.Literal(own[-1][1])))
    last = {value: what for what, value in own}
    added, removed = (
        sql.SQL("{}::text[]").format(sql.Literal([value for value, what in last.items() if what == kind]))
        for kind in ("add", "remove")
    )
    return _merge_values(each, each.of("w"), added, removed)


def settled_value(each: Field) -> sql.Composed:
    """A field of a fan-out after it has decided: of a row `k`, with last values `l` where the fan-out has any."""
    name = sql.Literal(each.name)
    return sql.SQL(
        "CASE WHEN l.fields ? {name} THEN {value} WHEN k.moved AND NOT k.wrote @> ARRAY[{number}] THEN NULL "
        "ELSE k.{own} END AS {own}"
    ).format(
        name=name,
        value=each.read(sql.SQL("l.fields ->> {}").format(name)),
        number=sql.Literal(each.number),
        own=each.work,
    )


def result(kind: str, each: Field) -> sql.Identifier:
    return sql.Identifier(f"{kind}{each.number}")


def commas(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)

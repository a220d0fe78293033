"""Create a stream's table, add columns that it lacks, and widen columns that became wider at the source.

A column gets the source's own type if this database has it, otherwise a type that holds all of its values; a comment
then names the type at the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from psycopg import sql

from penstock.core import widening
from penstock.core.content import Column, Content
from penstock.core.types import INTEGERS, Decimal, Type
from penstock.links.postgres.literals import join_identifiers, load_statement
from penstock.links.postgres.types import form_for, is_known_type, number_type, postgres_type, without_modifier
from penstock.links.postgres.write_connection import Connection
from penstock.sinks.postgres.columns import CHANGE, OUTPUT_ONLY
from penstock.sinks.postgres.options import StreamConfig
from penstock.sinks.postgres.target import Target

#: types whose values name objects of the source's own database, which need not exist here
_REFERENCES = frozenset(
    {"regclass", "regcollation", "regconfig", "regdictionary", "regnamespace", "regoper", "regoperator", "regproc"}
    | {"regprocedure", "regrole", "regtype", "aclitem"}
)
#: the postgres source's words for types that are not built in
_KINDS = frozenset(
    kind + array for kind in ("enum", "composite", "range", "multirange", "extension") for array in ("", "[]")
)
#: a type with a modifier as `format_type` spells it; a built-in type with any other modifier is not used
_MODIFIED = re.compile(r"[^()]*(\(\d+(,-?\d+)?\)[^()]*)?")
#: types whose modifier is a length, or digits of a second
_LIMITED = frozenset(
    {"character varying", "character", "bit varying", "interval"}
    | {f"{kind} {zone} time zone" for kind in ("time", "timestamp") for zone in ("with", "without")}
)
#: the names of those types without a limit; `character` alone is one letter
_UNLIMITED: Mapping[str, str] = {"character": "bpchar"}
_LIMIT = re.compile(r"\((\d+)\)")


def list_changes(
    connection: Connection,
    config: StreamConfig,
    content: Content,
    before: Content | None,
    target: Target | None,
    name: str,
) -> list[sql.Composed]:
    """The statements that make the table as the stream needs it; empty: it is so already.

    `before` is the content of the last slice that was committed; None: there is none. `name` is the stream's, for the
    table's comment.
    """
    table, marker = config.table, config.deleted_at
    wanted = [column for column in content.columns if column.name != CHANGE]
    missing = [column for column in wanted if target is None or target.column(column.name) is None]
    types = find_types(connection, missing)
    columns = dict(types)
    if marker and (target is None or target.column(marker) is None):
        columns[marker] = "timestamp with time zone"
    definitions = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_)) for name, type_ in columns.items()]
    changes = []
    if target is None:
        key = [sql.SQL("PRIMARY KEY ({})").format(join_identifiers(config.key))] if config.key else []
        parts = sql.SQL(", ").join([*definitions, *key])
        changes.append(sql.SQL("CREATE TABLE {} ({})").format(table.sql, parts))
        changes.append(_comment("TABLE", table.sql, f"penstock: {name}"))
    elif definitions:
        parts = sql.SQL(", ").join(sql.SQL("ADD COLUMN {}").format(each) for each in definitions)
        changes.append(sql.SQL("ALTER TABLE {} {}").format(table.sql, parts))
    for column in missing:
        origin = column.origin
        # Another system's own word for the same type says nothing.
        if origin and (column.base or is_known_type(origin)) and origin != types[column.name]:
            at = sql.Identifier(table.schema, table.name, column.name)
            changes.append(_comment("COLUMN", at, f"{origin} at the source"))
    for name, type_ in find_wider(connection, content, before, target):
        widen = sql.SQL("ALTER TABLE {0} ALTER COLUMN {1} TYPE {2} USING {1}::{2}")
        changes.append(widen.format(table.sql, sql.Identifier(name), sql.SQL(type_)))
    return changes


def find_wider(
    connection: Connection, content: Content, before: Content | None, target: Target | None
) -> list[tuple[str, str]]:
    """The columns that became wider at the source and are narrower in the table, each with its new type."""
    if before is None or target is None:
        return []
    old = {column.name: column for column in before.columns}
    changed = [c for c in content.columns if c.name in old and c.described != old[c.name].described]
    if not changed:
        return []
    types, old_types = find_types(connection, changed), find_types(connection, [old[c.name] for c in changed])
    return [(name, type_) for name, type_ in types.items() if must_widen(target, name, old_types[name], type_)]


def must_widen(target: Target, name: str, was: str, now: str) -> bool:
    column = target.column(name)
    if column is None or column.type == now:
        return False
    # Every value has a printed form. A column whose type differed from the source's before is the user's choice.
    is_text = now == "text" or (now == "text[]" and column.free.endswith("[]"))
    return (is_text and column.type == was) or widens(column.type, now)


def _comment(what: str, name: sql.Identifier, text: str) -> sql.Composed:
    return sql.SQL("COMMENT ON {} {} IS {}").format(sql.SQL(what), name, sql.Literal(text))


# ---------------------------------------------------------------- types


def find_types(connection: Connection, columns: Sequence[Column]) -> dict[str, str]:
    """The type of each new column: the source's own if this database has it, otherwise one that holds its values."""
    origins = [
        column.origin for column in columns if column.base and column.origin and not is_known_type(column.origin)
    ]
    here: dict[str, str] = {}
    if origins:
        here = dict(
            connection.execute(load_statement(__package__, "types").format(types=sql.Literal(origins))).fetchall()
        )
    return {column.name: _choose_type(column, here) for column in columns}


def _choose_type(column: Column, here: Mapping[str, str]) -> str:
    origin, base = column.origin, column.base
    if origin and base and _is_writable(base) and here.get(origin) == base:
        return origin
    # A domain that this database does not have becomes its base type.
    for type_ in (origin, base):
        if type_ and _is_writable(type_) and _is_built_in(type_) and _becomes(type_, column.type):
            return type_
    fallback = postgres_type(column.type)
    if fallback is None:
        raise ValueError(f"{column.type} has no form in Postgres")  # `check` has refused it before
    return fallback


def _is_writable(type_: str) -> bool:
    return without_modifier(type_).removesuffix("[]") not in _REFERENCES | OUTPUT_ONLY


def _is_built_in(type_: str) -> bool:
    # An array in a domain in an array is not an array of arrays, and the kinds of other types are not types.
    return (
        is_known_type(type_) and bool(_MODIFIED.fullmatch(type_)) and not type_.endswith("[][]") and type_ not in _KINDS
    )


def _becomes(origin: str, type_: Type) -> bool:
    """Whether a source that names a Postgres type means what Postgres means by it."""
    try:
        form_for(origin, type_)
    except ValueError:
        return False
    return True


def widens(was: str, now: str) -> bool:
    """Whether `now` is another type than `was` and holds each of its values. Types are as `format_type` spells them."""
    if was == now:
        return False
    if was.endswith("[]") and now.endswith("[]"):
        return widens(was[:-2], now[:-2])
    before, after = number_type(was), number_type(now)
    if before is not None and after is not None:
        return widening.widens(before, after)
    if now == "numeric":
        return isinstance(before, Decimal) or before in INTEGERS
    kind, limit = _LIMIT.sub("", was), _LIMIT.search(was)
    if kind == "character varying" and now in ("character varying", "text"):
        return True
    if kind not in _LIMITED or limit is None:
        return False
    if now == _UNLIMITED.get(kind, kind):
        return True
    higher = _LIMIT.search(now)
    return higher is not None and _LIMIT.sub("", now) == kind and int(limit[1]) < int(higher[1])

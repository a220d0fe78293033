"""The table that a stream lands in, as the server describes it. Asks, and judges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.links.postgres.literals import TableName, load_statement


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of the table."""

    name: str
    #: as `format_type` spells it, with its modifier
    type: str
    #: what lies behind domains, also those of an array's elements; None: `type` itself says it
    base: str | None
    #: the same without a modifier
    free: str
    #: a modifier limits its values, or a part of them
    limited: bool
    #: a part of them: of a composite, a range, or an array in a domain in an array
    inner: bool
    #: what lies behind is a type of Postgres' own
    built_in: bool
    #: text is cast to it by a function, which reads it otherwise than the type itself does
    converted: bool
    #: the collation of its own, as SQL names it; None: the database's, or none
    collation: str | None
    #: the operator of an extension by which its values are equal, as SQL names it; None: `=`
    equals: str | None
    not_null: bool
    #: it has a default, or counts by itself
    filled: bool
    #: a: always, d: by default; '': it does not count by itself
    identity: str
    #: it is worked out from others
    generated: bool


@dataclass(frozen=True, slots=True)
class Target:
    """A table."""

    name: TableName
    oid: str
    #: relkind: r, p, v, m or f
    kind: str
    may_use_schema: bool
    may_insert: bool
    may_update: bool
    may_delete: bool
    may_select: bool
    #: our role, or one that it belongs to, owns it
    owned: bool
    #: the same of its partitions, and of tables that inherit from it
    owns_below: bool
    columns: tuple[TargetColumn, ...]
    #: the columns of each unique index that a merge can go by
    uniques: tuple[frozenset[str], ...]

    @property
    def is_table(self) -> bool:
        return self.kind in ("r", "p")

    @property
    def is_readable(self) -> bool:
        return self.is_table and self.may_select

    def column(self, name: str) -> TargetColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    def unique_by(self, key: tuple[str, ...]) -> bool:
        return frozenset(key) in self.uniques


def describe(connection: psycopg.Connection[Any], name: TableName) -> Target | None:
    """One table; None if there is none of that name."""
    query = load_statement(__package__, "target").format(schema=sql.Literal(name.schema), name=sql.Literal(name.name))
    row = connection.execute(query).fetchone()
    if row is None:
        return None
    said = dict(row[0])
    columns = tuple(TargetColumn(**column) for column in said.pop("columns"))
    uniques = tuple(frozenset(columns) for columns in said.pop("uniques"))
    return Target(name=name, columns=columns, uniques=uniques, **said)


def holds_more(connection: psycopg.Connection[Any], name: TableName, rows: int) -> bool:
    """Whether a table has more than this many rows."""
    query = sql.SQL("SELECT EXISTS (SELECT FROM {} OFFSET {})").format(name.sql, sql.Literal(rows))
    row = connection.execute(query).fetchone()
    return bool(row and row[0])


def may_create_in(connection: psycopg.Connection[Any], schema: str) -> bool | None:
    """Whether tables can be made in a schema; None: there is none of that name."""
    row = connection.execute(
        "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s", [schema]
    ).fetchone()
    return bool(row[0]) if row else None


def references(connection: psycopg.Connection[Any], tables: Sequence[TableName]) -> list[tuple[TableName, TableName]]:
    """Which of the tables refer to which others of them."""
    query = load_statement(__package__, "references").format(
        schemas=sql.Literal([table.schema for table in tables]), names=sql.Literal([table.name for table in tables])
    )
    found = connection.execute(query).fetchall()
    return [(TableName(schema, name), TableName(of, parent)) for schema, name, of, parent in found]

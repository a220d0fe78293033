"""What the database has: its tables, and one table as the validations need it. Asks, and judges nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from psycopg import sql

from penstock.core.names import nearest
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import TableName, load_statement
from penstock.sources.postgres.identity import TableIdentity

ROOM = "penstock.sources.postgres"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    #: as `format_type` spells it, with its modifier
    type: str
    not_null: bool
    may_select: bool
    #: built-in, extension or none: whose btree order values have; None: nobody asked
    order: str | None
    #: what a domain is made of, or the kind of a type that is not built in; None: `type` itself says it
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """A valid btree over whole rows and plain columns."""

    columns: tuple[str, ...]
    unique: bool
    primary: bool
    #: every column in the default order of its type, or every column in its exact reverse
    ascending: bool
    descending: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table, partitioned table, view, materialized view or foreign table."""

    name: TableName
    oid: str
    #: relkind: r, p, v, m or f
    kind: str
    #: pages of a plain heap; None: it is not one
    blocks: int | None
    #: rows as the statistics have them; None: never counted
    rows: int | None
    may_use_schema: bool
    #: on the whole table, not on columns alone
    may_select: bool
    #: row-level security hides rows from us
    row_security: bool
    #: other tables inherit from it, and a unique index does not cover theirs
    inherited: bool
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...]
    identity: TableIdentity

    @property
    def primary_key(self) -> tuple[str, ...]:
        return next((index.columns for index in self.indexes if index.primary), ())

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class Found:
    """A table that the catalog query came upon."""

    name: TableName
    #: in the schema to discover, and neither a view nor a partition
    discovered: bool
    primary_key: tuple[str, ...]


def describe(session: Session, name: TableName, key: Iterable[str], *, stream: str) -> Table | None:
    """One table; None if there is none of that name. Only `key` columns are asked for their order."""
    query = load_statement(ROOM, "describe").format(
        schema=sql.Literal(name.schema), name=sql.Literal(name.name), key=sql.Literal(list(key))
    )
    rows = session.rows(query, table=str(name), stream=stream)
    if not rows:
        return None
    said = rows[0][0]
    return Table(
        name=name,
        **{
            field: said[field]
            for field in (
                "oid",
                "kind",
                "blocks",
                "rows",
                "may_use_schema",
                "may_select",
                "row_security",
                "inherited",
            )
        },
        columns=tuple(Column(**column) for column in said["columns"]),
        indexes=tuple(Index(**{**index, "columns": tuple(index["columns"])}) for index in said["indexes"]),
        identity=TableIdentity.read(said),
    )


def tables(session: Session, schema: str | None, named: Sequence[TableName]) -> list[Found]:
    """The named tables that exist, and all of a schema if one is given."""
    query = load_statement(ROOM, "tables").format(
        schema=sql.Literal(schema),
        schemas=sql.Literal([name.schema for name in named]),
        names=sql.Literal([name.name for name in named]),
    )
    rows = session.rows(query, table="the catalog")
    return [Found(TableName(row[0], row[1]), bool(row[2]), tuple(row[3])) for row in rows]


def schemas(session: Session) -> list[str]:
    query = sql.SQL("SELECT nspname::text FROM pg_namespace ORDER BY 1")
    return [row[0] for row in session.rows(query, table="the catalog")]


def similar(session: Session, name: TableName) -> TableName | None:
    """The table a misspelt name most likely means: its namesake elsewhere, or the nearest in its schema."""
    known = [TableName(*row) for row in session.rows(load_statement(ROOM, "similar"), table="the catalog")]
    elsewhere = [other for other in known if other.name == name.name]
    if elsewhere:
        return elsewhere[0]
    beside = {other.name: other for other in known if other.schema == name.schema}
    near = nearest(name.name, beside)
    return beside[near] if near is not None else None


def excluded(name: TableName, patterns: Iterable[str]) -> bool:
    """Whether discovery leaves a table out."""
    return any(fnmatchcase(name.name, pattern) or fnmatchcase(str(name), pattern) for pattern in patterns)

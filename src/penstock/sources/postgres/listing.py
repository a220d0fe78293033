"""Lists the tables of a database: for the catalog of streams, and for suggestions. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from psycopg import sql

from penstock.core.names import nearest
from penstock.errors import StreamRefused
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import TableName, load_statement
from penstock.sources.postgres.stream import PACKAGE


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table in a list."""

    name: TableName
    #: in the schema to discover, and neither a view nor a partition
    discovered: bool
    primary_key: tuple[str, ...]


def list_tables(session: Session, schema: str | None, named: Sequence[TableName]) -> list[ListedTable]:
    """The named tables that exist, and all tables of a schema if one is given."""
    query = load_statement(PACKAGE, "tables").format(
        schema=sql.Literal(schema),
        schemas=sql.Literal([name.schema for name in named]),
        names=sql.Literal([name.name for name in named]),
    )
    rows = session.rows(query, table="the catalog")
    return [ListedTable(TableName(row[0], row[1]), bool(row[2]), tuple(row[3])) for row in rows]


def list_schemas(session: Session) -> list[str]:
    query = sql.SQL("SELECT nspname::text FROM pg_namespace ORDER BY 1")
    return [row[0] for row in session.rows(query, table="the catalog")]


def suggest_table(session: Session, name: TableName) -> TableName | None:
    """The table that a misspelled name most likely means: the same name elsewhere, or the nearest in its schema."""
    known = [TableName(*row) for row in session.rows(load_statement(PACKAGE, "similar"), table="the catalog")]
    elsewhere = [other for other in known if other.name == name.name]
    if elsewhere:
        return elsewhere[0]
    beside = {other.name: other for other in known if other.schema == name.schema}
    near = nearest(name.name, beside)
    return beside[near] if near is not None else None


def is_excluded(name: TableName, patterns: Iterable[str]) -> bool:
    """Whether discovery skips a table."""
    return any(fnmatchcase(name.name, pattern) or fnmatchcase(str(name), pattern) for pattern in patterns)


def missing_table_error(session: Session, stream: str, name: TableName) -> StreamRefused:
    near = suggest_table(session, name)
    hint = f"; did you mean {near}?" if near else ""
    step = f"set `table: {near}`" if near else f"correct `table` of the stream, or create {name}"
    return StreamRefused(
        f"there is no table {name} in database {session.identity.database}{hint}",
        next_step=step,
        stream=stream,
    )

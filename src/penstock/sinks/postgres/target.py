"""The table that a stream lands in, as the server describes it. Asks, and judges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from penstock.links.postgres.literals import TableName, load_statement
from penstock.links.postgres.tables import Column as TargetColumn
from penstock.links.postgres.tables import Table as Target
from penstock.links.postgres.tables import describe as describe_table

__all__ = ["Target", "TargetColumn", "describe", "holds_more", "may_create_in", "references"]


def describe(connection: psycopg.Connection[Any], name: TableName) -> Target | None:
    """One table; None if there is none of that name."""
    return describe_table(lambda query: connection.execute(query).fetchall(), name, writing=True)


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

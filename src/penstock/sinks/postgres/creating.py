"""Making a stream's table, and adding columns that it lacks: the types of the stream, never less than they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import sql

from penstock.core.documents import Document
from penstock.core.drift import columns_of
from penstock.links.postgres.literals import TableName, identifiers
from penstock.links.postgres.types import known
from penstock.sinks.postgres.fitting import CHANGE
from penstock.sinks.postgres.staging import sent
from penstock.sinks.postgres.target import Target


def type_of(column: Mapping[str, Any]) -> str:
    """The type of a new column: the source's own if that is Postgres' too, else what holds its Arrow type."""
    said = column.get("type")
    # A domain or an enum may not exist here; a type that is built in does.
    if isinstance(said, str) and known(said) and not column.get("base"):
        return said
    found = sent(str(column["arrow"]))
    if found is None:
        raise ValueError(f"{column['arrow']} has no form in Postgres")  # `check` has refused it before
    return found


def missing(content: Document, target: Target | None) -> list[Mapping[str, Any]]:
    """The stream's columns that the table has not."""
    wanted = [column for column in columns_of(content) if column["name"] != CHANGE]
    return [column for column in wanted if target is None or target.column(column["name"]) is None]


def create(name: TableName, columns: Sequence[tuple[str, str]], key: Sequence[str]) -> sql.Composed:
    """The statement that makes the table."""
    parts = [_column(*column) for column in columns]
    if key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(identifiers(key)))
    return sql.SQL("CREATE TABLE {} ({})").format(name.sql, sql.SQL(", ").join(parts))


def add(name: TableName, columns: Sequence[tuple[str, str]]) -> sql.Composed:
    """The statement that adds columns."""
    parts = (sql.SQL("ADD COLUMN {}").format(_column(*column)) for column in columns)
    return sql.SQL("ALTER TABLE {} {}").format(name.sql, sql.SQL(", ").join(parts))


def _column(name: str, type_: str) -> sql.Composed:
    return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_))

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


def type_of(column: Mapping[str, Any]) -> str | None:
    """The type of a new column: the source's own if that is Postgres' too, else what holds its Arrow type.

    None: there is none.
    """
    said, arrow = column.get("type"), str(column["arrow"])
    # A domain or an enum may not exist here; a type that is built in does.
    if isinstance(said, str) and known(said) and not column.get("base"):
        return said
    return sent(arrow)


def missing(content: Document, target: Target | None) -> list[Mapping[str, Any]]:
    """The stream's columns that the table has not."""
    wanted = [column for column in columns_of(content) if column["name"] != CHANGE]
    return [column for column in wanted if target is None or target.column(column["name"]) is None]


def create(name: TableName, content: Document, key: Sequence[str], more: Sequence[tuple[str, str]]) -> sql.Composed:
    """The statement that makes the table."""
    parts = [_column(column["name"], type_of(column) or "text") for column in missing(content, None)]
    parts += [_column(each, type_) for each, type_ in more]
    if key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(identifiers(key)))
    return sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(name.sql, sql.SQL(", ").join(parts))


def add(name: TableName, columns: Sequence[tuple[str, str]]) -> sql.Composed:
    """The statement that adds columns."""
    parts = (sql.SQL("ADD COLUMN IF NOT EXISTS {}").format(_column(*column)) for column in columns)
    return sql.SQL("ALTER TABLE {} {}").format(name.sql, sql.SQL(", ").join(parts))


def _column(name: str, type_: str) -> sql.Composed:
    return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_))

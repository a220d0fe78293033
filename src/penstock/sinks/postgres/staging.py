"""Where a slice's rows are put aside: a table of one attempt, in the types that the driver can send."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.documents import digest

#: which try of which part a row is of (upper 32 bits), and its place in the part (lower 32 bits)
PLACE = "_penstock_place"
#: rows of one part that can be told apart
MOST_ROWS = 1 << 32

_NAME = re.compile(r"s_([0-9a-f]{16})_(\d+)_(\w+)")


@dataclass(frozen=True, slots=True)
class Staging:
    """The table of one attempt at one slice."""

    schema: str
    #: of the pipeline and the stream, since names are short
    tag: str
    number: int
    attempt: str

    @classmethod
    def of(cls, schema: str, pipeline: str, stream: str, number: int, attempt: str) -> Staging:
        return cls(schema, tag_of(pipeline, stream), number, attempt)

    @property
    def name(self) -> str:
        return f"s_{self.tag}_{self.number}_{self.attempt}"

    def made(self, columns: Sequence[tuple[str, str]]) -> sql.Composed:
        """The statement that makes it. What a crash of the server empties is missed when its rows are counted."""
        parts = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_)) for name, type_ in columns]
        parts.append(sql.SQL("{} bigint NOT NULL").format(sql.Identifier(PLACE)))
        return sql.SQL("CREATE UNLOGGED TABLE IF NOT EXISTS {} ({}) WITH (autovacuum_enabled = off)").format(
            self.sql, sql.SQL(", ").join(parts)
        )

    # Last, because it hides the module from what follows.
    @property
    def sql(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)


def drop(connection: psycopg.Connection[Any], name: sql.Identifier) -> None:
    """Drop the table of an attempt, unless a try that was given up still writes to it: then it is left to a sweep."""
    with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable), connection.transaction():
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE NOWAIT").format(name))
        connection.execute(sql.SQL("DROP TABLE {}").format(name))


def tag_of(pipeline: str, stream: str) -> str:
    return digest(pipeline, stream)[:16]


def names(connection: psycopg.Connection[Any], schema: str) -> list[str]:
    """The tables of attempts, of whatever pipeline, that the role may drop."""
    query = sql.SQL(
        "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {} "
        "AND c.relname LIKE {} AND c.relkind = 'r' AND pg_has_role(c.relowner, 'USAGE')"
    ).format(sql.Literal(schema), sql.Literal("s\\_%"))
    return [name for (name,) in connection.execute(query).fetchall()]


def left(schema: str, names: Sequence[str], pipeline: str, stream: str, upto: int) -> list[sql.Identifier]:
    """Those of the names that are tables of attempts at slices up to a number."""
    found = ((name, _NAME.fullmatch(name)) for name in names)
    return [
        sql.Identifier(schema, name)
        for name, match in found
        if match and match[1] == tag_of(pipeline, stream) and int(match[2]) <= upto
    ]

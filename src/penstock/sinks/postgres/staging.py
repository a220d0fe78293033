"""Staging tables: one for each attempt at a slice, in the types that the driver can send."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql

from penstock.core.documents import digest
from penstock.links.postgres.write_connection import Connection

#: the column that tells rows apart: the attempt at a part (upper 32 bits), and the row's place in it (lower 32 bits)
PLACE = "_penstock_place"
#: rows of one part that can be told apart
MAX_PART_ROWS = 1 << 32
#: the schema of tables that end with their transaction
TEMPORARY = "pg_temp"

_NAME = re.compile(r"s_([0-9a-f]{16})_(\d+)_(\w+)")


@dataclass(frozen=True, slots=True)
class Staging:
    """The table of one attempt at one slice."""

    schema: str
    #: a digest of the pipeline and the stream, since names are short
    tag: str
    number: int
    attempt: str

    @classmethod
    def of(cls, schema: str, pipeline: str, stream: str, number: int, attempt: str) -> Staging:
        return cls(schema, tag_of(pipeline, stream), number, attempt)

    @property
    def name(self) -> str:
        return f"s_{self.tag}_{self.number}_{self.attempt}"

    def create(self, connection: Connection, columns: Sequence[tuple[str, str]]) -> None:
        """Create the table. A crash of the server empties it; the commit notices when it counts the rows."""
        parts = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_)) for name, type_ in columns]
        parts.append(sql.SQL("{} bigint NOT NULL").format(sql.Identifier(PLACE)))
        create = "CREATE UNLOGGED TABLE IF NOT EXISTS {} ({}) WITH (autovacuum_enabled = off)"
        if self.schema == TEMPORARY:
            create = "CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP"
        connection.execute(sql.SQL(create).format(self.sql, sql.SQL(", ").join(parts)))

    def remove_rows(self, connection: Connection, places: Sequence[int]) -> None:
        """Remove rows by their places."""
        if places:
            query = sql.SQL("DELETE FROM {} WHERE {} = ANY (%s)").format(self.sql, sql.Identifier(PLACE))
            connection.execute(query, [list(places)])

    # Last, because it hides the module from what follows.
    @property
    def sql(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)


def drop(connection: Connection, name: sql.Identifier) -> None:
    """Drop a staging table, unless an abandoned attempt still writes to it: a sweep drops it later."""
    with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable), connection.transaction():
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE NOWAIT").format(name))
        connection.execute(sql.SQL("DROP TABLE {}").format(name))


def tag_of(pipeline: str, stream: str) -> str:
    return digest(pipeline, stream)[:16]


def list_tables(connection: Connection, schema: str) -> list[str]:
    """The staging tables of all pipelines that the role may drop."""
    query = sql.SQL(
        "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {} "
        "AND c.relname LIKE {} AND c.relkind = 'r' AND pg_has_role(c.relowner, 'USAGE')"
    ).format(sql.Literal(schema), sql.Literal("s\\_%"))
    return [name for (name,) in connection.execute(query).fetchall()]


def select_tables(names: Sequence[str], pipeline: str, stream: str, upto: int) -> list[str]:
    """Those of the staging tables that belong to the stream's slices up to a number."""
    matches = [match for match in map(_NAME.fullmatch, names) if match]
    return [match[0] for match in matches if match[1] == tag_of(pipeline, stream) and int(match[2]) <= upto]

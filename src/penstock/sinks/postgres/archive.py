"""A stream's table under another name, so that the stream can begin again in a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from penstock.errors import StreamRefused
from penstock.links.postgres.literals import TableName, to_text
from penstock.sinks.postgres.ledger import Ledger

#: bytes that a name may have
NAME_BYTES = 63


def archive(connection: psycopg.Connection[Any], ledger: Ledger, stream: str, label: str) -> Sequence[str]:
    """Rename the table that the stream's rows went into, and forget its slices, in one transaction."""
    entry = ledger.read(connection, stream)
    if entry is None:
        return []
    table = entry.binding.now if entry.binding else None
    if table is None:
        ledger.forget(connection, stream)
        return ["the table that its rows went into is gone"]
    if others := ledger.others(connection, stream, to_text(table.sql)):
        raise StreamRefused(
            f"the table {table} cannot be renamed: {'/'.join(others[0])} fills it too",
            next_step="name another table for this stream with `into`",
            pipeline=ledger.pipeline,
            stream=stream,
        )
    new = TableName(table.schema, archive_name(table.name, label))
    connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(table.sql, sql.Identifier(new.name)))
    ledger.forget(connection, stream)
    return [f"the table {table} is {new} now, with all its rows; views and foreign keys on it stay with it"]


def archive_name(table: str, label: str) -> str:
    """The name of a table that was moved out of the way; cut between characters where it would be too long."""
    ending = f"_before_{label.lower()}"
    stem = table.encode()[: NAME_BYTES - len(ending)].decode(errors="ignore")
    return f"{stem}{ending}"

"""Reading a table whole: one exported snapshot that every part joins, the table cut into ranges of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.documents import Document, canonical
from penstock.core.slices import Part
from penstock.links.postgres.connection import ServerState, connect
from penstock.links.postgres.failures import statement_error
from penstock.links.postgres.transactions import (
    BEGIN_READ_ONLY,
    read_server_state,
    server_query,
    set_config_calls,
    transaction_settings,
)
from penstock.sources.postgres.catalog import Table
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.plan import LEAST_PART_BYTES
from penstock.sources.postgres.server.access import Outlet
from penstock.sources.postgres.shape import BLOCK_BYTES

#: servers before this one cannot look up a range of blocks
TID_RANGES = 14


@contextmanager
def snapshot(outlet: Outlet, content: TableContent, table: Table, *, stream: str) -> Iterator[str]:
    """Export a snapshot of now; it can be joined until the context ends.

    Each statement sees what is committed when it begins: the snapshot is taken once the server has all that was
    planned, and once the table is locked against TRUNCATE and rewriting, which no snapshot survives.
    """
    target = outlet.target
    with connect(target) as connection:
        try:
            outlet.needs.met(lambda: _begun(connection, outlet), connection.rollback, where=target.where)
            _lock(connection, content, table)
            name = _one(connection, sql.SQL("SELECT pg_export_snapshot()"))
        except psycopg.Error as error:
            raise statement_error(
                error.sqlstate, str(error), where=target.where, table=str(content.table), stream=stream
            ) from error
        yield name


def _begun(connection: psycopg.Connection[Any], outlet: Outlet) -> ServerState:
    connection.execute(BEGIN_READ_ONLY)
    chosen = set_config_calls(transaction_settings(application_name=outlet.target.application_name))
    return read_server_state(connection.execute(server_query(outlet.tells, chosen)).fetchone())


def parts(table: Table, plan: Document, *, version: int) -> list[Part]:
    """Ranges of blocks for the workers that were there when the slice was planned; the last has no end.

    Rows that arrive later lie beyond the snapshot wherever they are put.
    """
    most, count = plan.get("parts", 1), 1
    # A row's block is a system column, which permissions on columns do not reach.
    in_blocks = table.blocks is not None and table.may_select and version >= TID_RANGES
    if in_blocks and table.blocks is not None and isinstance(most, int):
        count = max(1, min(most, table.blocks * BLOCK_BYTES // LEAST_PART_BYTES))
    bounds: list[int | None] = [None]
    bounds += [(table.blocks or 0) * index // count for index in range(1, count)]
    bounds.append(None)
    return [
        Part(index, canonical({"from_block": start, "to_block": end}))
        for index, (start, end) in enumerate(pairwise(bounds))
    ]


def _lock(connection: psycopg.Connection[Any], content: TableContent, table: Table) -> None:
    """By LOCK where that is possible, which takes partitions in; a SELECT locks what it reads."""
    if table.may_select and table.kind in ("r", "p", "v"):
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(content.table.sql))
    else:
        first = sql.Identifier(content.columns[0].name)
        connection.execute(sql.SQL("SELECT {} FROM {} LIMIT 0").format(first, content.table.sql))


def _one(connection: psycopg.Connection[Any], query: sql.Composed | sql.SQL) -> Any:
    answer = connection.execute(query).fetchone()
    return answer[0] if answer else None

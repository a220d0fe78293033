"""Reads a whole table in one exported snapshot for all parts, each of which reads a range of blocks."""

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
from penstock.links.postgres.tables import BLOCK_BYTES, Table
from penstock.links.postgres.transactions import (
    BEGIN_READ_ONLY,
    read_server_state,
    server_query,
    set_config_calls,
    transaction_settings,
)
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.keyset import MIN_PART_BYTES
from penstock.sources.postgres.servers import ReadTarget

#: the first version that can look up a range of blocks
TID_RANGE_VERSION = 14


@contextmanager
def export_snapshot(source: ReadTarget, content: TableContent, table: Table, *, stream: str) -> Iterator[str]:
    """Export a snapshot that can be imported until the context ends.

    The snapshot is taken once the server has all that was planned, and once the table is locked against TRUNCATE and
    rewriting, which no snapshot survives.
    """
    target = source.target

    def begin() -> ServerState:
        connection.execute(BEGIN_READ_ONLY)
        chosen = set_config_calls(transaction_settings(application_name=target.application_name))
        return read_server_state(connection.execute(server_query(source.visible, chosen)).fetchone())

    with connect(target) as connection:
        try:
            source.required.wait_for(begin, connection.rollback, where=target.where)
            _lock(connection, content, table)
            [[name]] = connection.execute("SELECT pg_export_snapshot()").fetchall()
        except psycopg.Error as error:
            raise statement_error(
                error.sqlstate, str(error), where=target.where, table=str(content.table), stream=stream
            ) from error
        yield name


def make_parts(table: Table, plan: Document, *, version: int) -> list[Part]:
    """Ranges of blocks for the workers that there were when the slice was planned; the last one has no end.

    Rows that arrive later are not in the snapshot, wherever they are stored.
    """
    most, count = plan.get("parts", 1), 1
    # A row's block is a system column, which permissions on columns do not cover.
    in_blocks = table.blocks is not None and table.may_select and version >= TID_RANGE_VERSION
    if in_blocks and table.blocks is not None and isinstance(most, int):
        count = max(1, min(most, table.blocks * BLOCK_BYTES // MIN_PART_BYTES))
    bounds: list[int | None] = [None]
    bounds += [(table.blocks or 0) * index // count for index in range(1, count)]
    bounds.append(None)
    return [
        Part(index, canonical({"from_block": start, "to_block": end}))
        for index, (start, end) in enumerate(pairwise(bounds))
    ]


def _lock(connection: psycopg.Connection[Any], content: TableContent, table: Table) -> None:
    """Lock the table, with its partitions if LOCK is possible; a SELECT locks the tables that it reads."""
    if table.may_select and table.kind in ("r", "p", "v"):
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(content.table.sql))
    else:
        first = sql.Identifier(content.columns[0].name)
        connection.execute(sql.SQL("SELECT {} FROM {} LIMIT 0").format(first, content.table.sql))

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
from penstock.errors import StreamFailed
from penstock.links.postgres.connection import Target, introduce, settings
from penstock.links.postgres.failures import failed, unreachable
from penstock.links.postgres.literals import statement
from penstock.sources.postgres.catalog import ROOM, Table
from penstock.sources.postgres.content import Content
from penstock.sources.postgres.plan import LEAST_PART_BYTES, PARTS_PER_WORKER

#: servers before this one cannot look up a range of blocks
TID_RANGES = 14
BLOCK_BYTES = 8192


@contextmanager
def snapshot(target: Target, content: Content, table: Table, *, stream: str) -> Iterator[str]:
    """Export a snapshot of now; it can be joined until the context ends.

    The table is locked against TRUNCATE and rewriting, which other transactions' snapshots do not survive.
    """
    try:
        connection = psycopg.connect(target.conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise unreachable(target.where, str(error)) from None
    with connection:
        introduce(connection, settings(version=connection.info.server_version // 10000), target)
        try:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            _lock(connection, content, table)
            name = _one(connection, sql.SQL("SELECT pg_export_snapshot()"))
            changed = not _lockable(table) and _replaced(connection, table)
        except psycopg.Error as error:
            raise failed(
                error.sqlstate, str(error), where=target.where, table=str(content.table), stream=stream
            ) from error
        if changed:
            raise StreamFailed(
                f"{content.table} was truncated or rewritten at this moment",
                next_step="run again",
                stream=stream,
            )
        yield name
        # The transaction has nothing to commit; the connection's end is the snapshot's.


def parts(table: Table, plan: Document, *, version: int) -> list[Part]:
    """Ranges of blocks for the workers that were there when the slice was planned; the last has no end.

    Rows that arrive later lie beyond the snapshot wherever they are put.
    """
    workers = plan.get("workers", 1)
    count = 1
    # A row's block is a system column, which permissions on columns do not reach.
    in_blocks = table.blocks is not None and table.may_select and version >= TID_RANGES
    if in_blocks and table.blocks is not None and isinstance(workers, int):
        count = max(1, min(workers * PARTS_PER_WORKER, table.blocks * BLOCK_BYTES // LEAST_PART_BYTES))
    bounds: list[int | None] = [None]
    bounds += [(table.blocks or 0) * index // count for index in range(1, count)]
    bounds.append(None)
    return [
        Part(index, canonical({"from_block": start, "to_block": end}))
        for index, (start, end) in enumerate(pairwise(bounds))
    ]


def _lock(connection: psycopg.Connection[Any], content: Content, table: Table) -> None:
    # LOCK takes no snapshot yet. A SELECT locks too, only later than its snapshot: then `_replaced` looks at
    # what happened in between.
    if _lockable(table):
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(content.table.sql))
    else:
        first = sql.Identifier(content.columns[0].name)
        connection.execute(sql.SQL("SELECT {} FROM {} LIMIT 0").format(first, content.table.sql))


def _lockable(table: Table) -> bool:
    return table.may_select and table.kind in ("r", "p", "v")


def _replaced(connection: psycopg.Connection[Any], table: Table) -> bool:
    """Whether the snapshot knows another file than the table now has; functions see past the snapshot."""
    return bool(
        _one(
            connection,
            statement(ROOM, "replaced").format(oid=sql.Literal(table.oid)),
        )
    )


def _one(connection: psycopg.Connection[Any], query: sql.Composed | sql.SQL) -> Any:
    answer = connection.execute(query).fetchone()
    return answer[0] if answer else None

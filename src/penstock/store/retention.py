"""The tables that would grow with every slice and run: histories, contents, runs, progress.

Each function is one step of a transaction that holds the pipeline's lease row, so no other process writes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, and_, delete, insert, select, update

from penstock.core.history import REMOVED_AT_ONCE, HistoryLimits
from penstock.core.marks import Position
from penstock.core.outcome import Delivered
from penstock.store.records import columns_from, content_hash, position_values
from penstock.store.schema import contents, history, in_stream, intents, progress, runs, streams

#: streams in one statement; databases limit how many it may have
STREAMS_AT_ONCE = 500


def save_content(connection: Connection, pipeline: str, stream: str, content: str) -> None:
    """Store a content under its hash, unless it is there; with a new one, those that no row names are removed."""
    here = in_stream(contents, pipeline, stream)
    name = content_hash(content)
    if connection.execute(select(contents.c.hash).where(here, contents.c.hash == name)).first() is not None:
        return
    named = [
        select(table.c.content).where(in_stream(table, pipeline, stream), table.c.content.is_not(None))
        for table in (streams, intents, history)
    ]
    connection.execute(delete(contents).where(here, *(contents.c.hash.not_in(query) for query in named)))
    connection.execute(insert(contents).values(pipeline=pipeline, stream=stream, hash=name, content=content))


def sum_from_version(connection: Connection, pipeline: str, stream: str, version: int) -> Delivered | None:
    """What was delivered up to a version of the history, and since then; None: that version is not kept."""
    newer = select(history).where(in_stream(history, pipeline, stream), history.c.version >= version)
    changes = list(connection.execute(newer.order_by(history.c.version)))
    if not changes or changes[0].version != version:
        return None
    first, *since = changes
    total = Delivered(first.total_rows, first.total_bytes, first.total_outcome)
    return sum((Delivered(row.rows, row.bytes, row.outcome) for row in since), total)


def record_change(
    connection: Connection,
    pipeline: str,
    stream: str,
    position: Position | None,
    delivered: Delivered,
    limits: HistoryLimits,
    *,
    now: datetime,
    reason: str,
    run: str | None,
) -> int:
    """Add the change just made to the history, and remove what is too old; the change's version."""
    counts = (streams.c.version, streams.c.rows, streams.c.bytes, streams.c.outcome)
    after = connection.execute(select(*counts).where(in_stream(streams, pipeline, stream))).one()
    values = columns_from(delivered) | position_values(position)
    values |= {"total_rows": after.rows, "total_bytes": after.bytes, "total_outcome": after.outcome}
    values |= {"pipeline": pipeline, "stream": stream, "version": after.version}
    connection.execute(insert(history).values(at=now, reason=reason, run=run, **values))
    here = {"pipeline": pipeline, "stream": stream}
    _prune(connection, history, here, "version", "at", after.version, limits.changes, limits, now)
    version: int = after.version
    return version


def prune_runs(connection: Connection, pipeline: str, newest: int, *, now: datetime, limits: HistoryLimits) -> None:
    """Remove the runs that are too old."""
    _prune(connection, runs, {"pipeline": pipeline}, "number", "started", newest, limits.runs, limits, now)


def _prune(
    connection: Connection,
    table: Table,
    here: Mapping[str, str],
    number: str,
    at: str,
    newest: int,
    most: int,
    limits: HistoryLimits,
    now: datetime,
) -> None:
    """Remove the oldest entries, without a gap, so that those that stay can be followed step by step."""
    numbers, own = table.c[number], and_(*(table.c[name] == value for name, value in here.items()))
    last = None
    for each, when in connection.execute(
        select(numbers, table.c[at]).where(own).order_by(numbers).limit(REMOVED_AT_ONCE)
    ):
        if not limits.removes(at=when, newer=newest - each, most=most, now=now):
            break
        last = each
    if last is not None:
        connection.execute(delete(table).where(own, numbers <= last))


# ------------------------------------------------------------ progress


def save_progress(connection: Connection, pipeline: str, run: str, changed: Mapping[str, str | None]) -> None:
    """Replace each stream's progress, also of an earlier run; None: there is none any more."""
    names = list(changed)
    for start in range(0, len(names), STREAMS_AT_ONCE):
        some = progress.c.stream.in_(names[start : start + STREAMS_AT_ONCE])
        connection.execute(delete(progress).where(progress.c.pipeline == pipeline, some))
    given = [(stream, text) for stream, text in changed.items() if text is not None]
    if given:
        rows = [{"pipeline": pipeline, "stream": stream, "run": run, "progress": text} for stream, text in given]
        connection.execute(insert(progress), rows)


def hand_progress_over(connection: Connection, pipeline: str, before: str, run: str) -> dict[str, str]:
    """Give the progress of a run to the one that continues it, which has none yet; by stream."""
    own = and_(progress.c.pipeline == pipeline, progress.c.run == before)
    found = {row.stream: row.progress for row in connection.execute(select(progress).where(own))}
    connection.execute(update(progress).where(own).values(run=run))
    return found


def progress_by_run(rows: Iterable[Any]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found.setdefault(row.run, {})[row.stream] = row.progress
    return found

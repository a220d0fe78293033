"""The parts of a store that would grow with every slice and run: histories, contents, runs, progress.

Each function is one step of a transaction that holds the pipeline's lease row, so nobody else writes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from penstock.core.history import REMOVED_AT_ONCE, HistoryLimits
from penstock.core.marks import Position
from penstock.core.outcome import Delivered
from penstock.store.records import content_hash, outcome_of, outcome_text, position_values
from penstock.store.schema import contents, history, intents, progress, runs, streams

#: names in one statement; databases limit how many it may have
NAMES_AT_ONCE = 500


def keep_content(connection: Connection, pipeline: str, stream: str, content: str) -> None:
    """Store a content under its hash, unless it is there; with a new one, those that nothing names are removed."""
    here = and_(contents.c.pipeline == pipeline, contents.c.stream == stream)
    name = content_hash(content)
    if connection.execute(select(contents.c.hash).where(here, contents.c.hash == name)).first() is not None:
        return
    named = [
        select(table.c.content).where(
            table.c.pipeline == pipeline, table.c.stream == stream, table.c.content.is_not(None)
        )
        for table in (streams, intents, history)
    ]
    connection.execute(delete(contents).where(here, *(contents.c.hash.not_in(query) for query in named)))
    connection.execute(insert(contents).values(pipeline=pipeline, stream=stream, hash=name, content=content))


def delivered_up_to_and_since(connection: Connection, pipeline: str, stream: str, version: int) -> Delivered | None:
    """What was delivered up to a version of the history, and since then; None: that version is not kept."""
    columns = (history.c.version, history.c.rows, history.c.bytes, history.c.outcome)
    totals = (history.c.total_rows, history.c.total_bytes, history.c.total_outcome)
    newer = select(*columns, *totals).where(_of(pipeline, stream), history.c.version >= version)
    found_rows = list(connection.execute(newer.order_by(history.c.version)))
    if not found_rows or found_rows[0].version != version:
        return None
    first, *since = found_rows
    found = Delivered(first.total_rows, first.total_bytes, outcome_of(first.total_outcome))
    return sum((Delivered(row.rows, row.bytes, outcome_of(row.outcome)) for row in since), found)


def remember(
    connection: Connection,
    pipeline: str,
    stream: str,
    position: Position | None,
    *,
    now: datetime,
    reason: str,
    run: str | None,
    delivered: Delivered,
    limits: HistoryLimits,
) -> int:
    """Add the change just made to the history, and remove what is too old; the change's version."""
    counted = (streams.c.version, streams.c.rows, streams.c.bytes, streams.c.outcome)
    here = and_(streams.c.pipeline == pipeline, streams.c.stream == stream)
    after = connection.execute(select(*counted).where(here)).one()
    version: int = after.version
    connection.execute(
        insert(history).values(
            pipeline=pipeline,
            stream=stream,
            version=version,
            at=now,
            reason=reason,
            run=run,
            rows=delivered.rows,
            bytes=delivered.bytes,
            outcome=outcome_text(delivered.outcome),
            total_rows=after.rows,
            total_bytes=after.bytes,
            total_outcome=after.outcome,
            **position_values(position),
        )
    )
    entries = select(history.c.version, history.c.at).where(_of(pipeline, stream)).order_by(history.c.version)
    oldest = [(row.version, row.at) for row in connection.execute(entries.limit(REMOVED_AT_ONCE))]
    last = _last_removed(oldest, version, limits.changes, limits, now)
    if last is not None:
        connection.execute(delete(history).where(_of(pipeline, stream), history.c.version <= last))
    return version


def forget_old_runs(
    connection: Connection, pipeline: str, newest: int, *, now: datetime, limits: HistoryLimits
) -> None:
    entries = select(runs.c.number, runs.c.started).where(runs.c.pipeline == pipeline).order_by(runs.c.number)
    oldest = [(row.number, row.started) for row in connection.execute(entries.limit(REMOVED_AT_ONCE))]
    last = _last_removed(oldest, newest, limits.runs, limits, now)
    if last is not None:
        connection.execute(delete(runs).where(runs.c.pipeline == pipeline, runs.c.number <= last))


def _last_removed(
    oldest: Iterable[tuple[int, datetime]], newest: int, most: int, limits: HistoryLimits, now: datetime
) -> int | None:
    """The last of the oldest entries to remove: without a gap, so that what stays can be followed step by step."""
    last = None
    for number, at in oldest:
        if not limits.removes(at=at, newer=newest - number, most=most, now=now):
            break
        last = number
    return last


# ------------------------------------------------------------ progress


def keep_progress(connection: Connection, pipeline: str, run: str, kept: Mapping[str, str | None]) -> None:
    """Keep each stream's progress in the place of what an earlier run had; None: of that nothing stays."""
    names = list(kept)
    for start in range(0, len(names), NAMES_AT_ONCE):
        some = progress.c.stream.in_(names[start : start + NAMES_AT_ONCE])
        connection.execute(delete(progress).where(progress.c.pipeline == pipeline, some))
    rows = [
        {"pipeline": pipeline, "stream": stream, "run": run, "progress": text}
        for stream, text in kept.items()
        if text is not None
    ]
    if rows:
        connection.execute(insert(progress), rows)


def pass_progress_on(connection: Connection, pipeline: str, before: str, run: str) -> None:
    """Give the streams of a run to the one that continues it."""
    theirs = and_(progress.c.pipeline == pipeline, progress.c.run == before)
    connection.execute(update(progress).where(theirs).values(run=run))


def progress_by_run(rows: Iterable[Any]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found.setdefault(row.run, {})[row.stream] = row.progress
    return found


def _of(pipeline: str, stream: str) -> ColumnElement[bool]:
    return and_(history.c.pipeline == pipeline, history.c.stream == stream)

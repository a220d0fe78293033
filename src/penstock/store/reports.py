"""How runs ended, as a store keeps it: failures, last looks and days. Each function is a step of one transaction.

Several processes may write at once and none holds the lease: a step that meets another's new row is tried again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Table, and_, delete, insert, select, update

from penstock.core.reports import DAYS_KEPT, DayOfRuns, Failure, LastLook, Problem, RunReport
from penstock.store.schema import days, failures, looks

TABLES = (days, looks, failures)


def keep(connection: Connection, pipeline: str, report: RunReport) -> None:
    """Add a run's report to what is kept; IntegrityError if another process was faster with a new row."""
    if report.is_run:
        if not _count(connection, pipeline, report):
            _forget_old(connection, pipeline, report.at.date())
        if report.looked:
            streams = json.dumps(report.streams) if report.streams is not None else ""
            _put(connection, looks, {"pipeline": pipeline, "streams": streams}, {"at": report.at})
    failing = and_(failures.c.pipeline == pipeline, failures.c.times > 0)
    known = {row.stream: row for row in connection.execute(select(failures).where(failing))}
    for stream in known.keys() & set(report.succeeded):
        connection.execute(update(failures).where(failing, failures.c.stream == stream).values(times=0))
    for stream, problem in report.problems.items():
        before = known.get(stream)
        values = {
            "what": problem.what,
            "safe": problem.safe,
            "next_step": problem.next_step,
            "at": report.at,
            "since": before.since if before else report.at,
            "times": before.times + 1 if before else 1,
        }
        _put(connection, failures, {"pipeline": pipeline, "stream": stream}, values)


def _count(connection: Connection, pipeline: str, report: RunReport) -> bool:
    """Count a run to its day; False: it is the first one of the day."""
    day = report.at.date().isoformat()
    here = and_(days.c.pipeline == pipeline, days.c.day == day)
    counted = {"runs": 1, "idle": int(report.idle), "failed": int(report.failed)}
    counted |= {"rows": report.rows, "bytes": report.bytes}
    added = {name: days.c[name] + number for name, number in counted.items()}
    if connection.execute(update(days).where(here).values(last=report.at, **added)).rowcount:
        return True
    connection.execute(insert(days).values(pipeline=pipeline, day=day, last=report.at, **counted))
    return False


def _put(connection: Connection, table: Table, key: dict[str, str], values: dict[str, Any]) -> None:
    here = and_(*(table.c[name] == value for name, value in key.items()))
    if not connection.execute(update(table).where(here).values(values)).rowcount:
        connection.execute(insert(table).values(**key, **values))


def _forget_old(connection: Connection, pipeline: str, today: date) -> None:
    """Remove what is too old; once a day is enough."""
    oldest = today - timedelta(days=DAYS_KEPT)
    connection.execute(delete(days).where(days.c.pipeline == pipeline, days.c.day < oldest.isoformat()))
    for table in (looks, failures):
        found = select(table).where(table.c.pipeline == pipeline)
        for row in connection.execute(found).all():
            if row.at.date() < oldest:
                key = [column == getattr(row, column.name) for column in table.primary_key]
                connection.execute(delete(table).where(*key))


# ------------------------------------------------------------ reading


def failures_of(rows: Iterable[Row[Any]]) -> dict[str, Failure]:
    return {
        row.stream: Failure(Problem(row.what, row.safe, row.next_step), row.at, row.since, row.times) for row in rows
    }


def looks_of(rows: Iterable[Row[Any]]) -> list[LastLook]:
    return [LastLook(tuple(json.loads(row.streams)) if row.streams else None, row.at) for row in rows]


def days_of(rows: Iterable[Row[Any]]) -> list[DayOfRuns]:
    return [
        DayOfRuns(date.fromisoformat(row.day), row.runs, row.idle, row.failed, row.rows, row.bytes, row.last)
        for row in rows
    ]

"""How runs ended, as a store keeps it: failures, last looks and days. Each function is a step of one transaction.

Several processes may write at once and none holds the lease: a step that meets another's new row is tried again.
"""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Table, and_, delete, insert, select, update

from penstock.core.reports import DAYS_KEPT, DayOfRuns, Failure, LastLook, Problem, RunReport
from penstock.store.records import columns_from, fields_from
from penstock.store.schema import days, failures, looks

TABLES = (days, looks, failures)


def save(connection: Connection, pipeline: str, report: RunReport) -> None:
    """Add a run's report to what is kept; IntegrityError if another process was faster with a new row."""
    if report.is_run:
        if not _count_run(connection, pipeline, report):
            _remove_old(connection, pipeline, report.at.date())
        if report.looked:
            streams = json.dumps(report.streams) if report.streams is not None else ""
            _put(connection, looks, {"pipeline": pipeline, "streams": streams}, {"at": report.at})
    failing = and_(failures.c.pipeline == pipeline, failures.c.times > 0)
    known = {row.stream: row for row in connection.execute(select(failures).where(failing))}
    for stream in known.keys() & set(report.succeeded):
        connection.execute(update(failures).where(failing, failures.c.stream == stream).values(times=0))
    for stream, problem in report.problems.items():
        before = known.get(stream)
        since, times = (before.since, before.times) if before else (report.at, 0)
        values = columns_from(problem) | {"at": report.at, "since": since, "times": times + 1}
        _put(connection, failures, {"pipeline": pipeline, "stream": stream}, values)


def _count_run(connection: Connection, pipeline: str, report: RunReport) -> bool:
    """Count a run to its day; False: it is the first one of the day."""
    day = report.at.date().isoformat()
    here = and_(days.c.pipeline == pipeline, days.c.day == day)
    counts = {"runs": 1, "idle": int(report.idle), "failed": int(report.failed)}
    counts |= {"rows": report.rows, "bytes": report.bytes}
    sums = {name: days.c[name] + number for name, number in counts.items()}
    if connection.execute(update(days).where(here).values(last=report.at, **sums)).rowcount:
        return True
    connection.execute(insert(days).values(pipeline=pipeline, day=day, last=report.at, **counts))
    return False


def _put(connection: Connection, table: Table, key: dict[str, str], values: dict[str, Any]) -> None:
    here = and_(*(table.c[name] == value for name, value in key.items()))
    if not connection.execute(update(table).where(here).values(values)).rowcount:
        connection.execute(insert(table).values(**key, **values))


def _remove_old(connection: Connection, pipeline: str, today: date) -> None:
    """Remove what is too old; once a day is enough."""
    oldest = today - timedelta(days=DAYS_KEPT)
    connection.execute(delete(days).where(days.c.pipeline == pipeline, days.c.day < oldest.isoformat()))
    for table in (looks, failures):
        for row in connection.execute(select(table).where(table.c.pipeline == pipeline)).all():
            if row.at.date() < oldest:
                key = [column == getattr(row, column.name) for column in table.primary_key]
                connection.execute(delete(table).where(*key))


# ------------------------------------------------------------ reading


def failure_of(row: Row[Any]) -> Failure:
    return Failure(**fields_from(Failure, row), problem=Problem(**fields_from(Problem, row)))


def look_of(row: Row[Any]) -> LastLook:
    return LastLook(tuple(json.loads(row.streams)) if row.streams else None, row.at)


def day_of(row: Row[Any]) -> DayOfRuns:
    return DayOfRuns(**fields_from(DayOfRuns, row) | {"day": date.fromisoformat(row.day)})

"""The report of `runs`: days and runs from the store, as JSON documents and as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from penstock.cli.shared.failures import minute
from penstock.cli.shared.render import align, count, size, span
from penstock.cli.shared.status_output import print_from_store
from penstock.core.messages import stamp
from penstock.core.reports import DayOfRuns
from penstock.ports import RunRecord, Store

#: characters of the longest bar
BAR_WIDTH = 30
#: maximum number of runs that are read
MAX_RUNS = 10_000
_EIGHTHS = " ▏▎▍▌▋▊▉"


def print_runs(
    path: str, sets: Sequence[str] | None, pipelines: list[str] | None, days: int, *, each: bool, as_json: bool
) -> None:
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    print_from_store(
        path,
        pipelines,
        lambda _file, name, store, now: document(store, name, days, now, each=each),
        lambda report, _now, _file: lines(report, ascii_only=ascii_only),
        sets=sets,
        as_json=as_json,
    )


def document(store: Store, pipeline: str, days: int, now: datetime, *, each: bool) -> dict[str, Any]:
    """One pipeline: every day since the first run within the last `days`, and with `each` every run."""
    first = now.date() - timedelta(days=days - 1)
    known = {day.day: day for day in store.days(pipeline, most=days) if day.day >= first}
    begun = min(known, default=now.date())
    dates = [begun + timedelta(days=n) for n in range((now.date() - begun).days + 1)] if known else []
    report: dict[str, Any] = {"pipeline": pipeline, "days": [_day(day, known.get(day)) for day in dates]}
    if each:
        report["runs"] = _executions(store.runs(pipeline, most=MAX_RUNS), first)
    return report


def _day(day: date, known: DayOfRuns | None) -> dict[str, Any]:
    counts = {name: getattr(known, name) if known else 0 for name in ("runs", "idle", "failed", "rows", "bytes")}
    return {"day": day.isoformat(), **counts}


def _executions(records: Sequence[RunRecord], first: date) -> list[dict[str, Any]]:
    """Runs since a day, oldest first, each with the rows it delivered itself."""
    totals = {record.id: json.loads(record.totals) for record in records}
    return [
        {
            "run": record.id,
            "verb": record.verb,
            "started": stamp(record.started),
            "ended": stamp(record.ended) if record.ended else None,
            "status": record.status,
            "rows": _own(record, totals, "rows"),
            "bytes": _own(record, totals, "bytes"),
        }
        for record in reversed(records)
        if record.started.date() >= first
    ]


def _own(record: RunRecord, totals: Mapping[str, Mapping[str, Any]], name: str) -> int:
    """A run's own total, without that of the run it continues."""
    before = totals.get(record.continues or "", {})
    return max(0, int(totals[record.id].get(name) or 0) - int(before.get(name) or 0))


# ---------------------------------------------------------------- text


def lines(report: Mapping[str, Any], *, ascii_only: bool) -> list[str]:
    """A pipeline's document as text."""
    name, days = report["pipeline"], report["days"]
    if not days:
        # Commands such as reset are not runs.
        return [f"{name}: no runs in this period", *_each(report, ascii_only)]
    runs, idle = sum(day["runs"] for day in days), sum(day["idle"] for day in days)
    failed, moved = sum(day["failed"] for day in days), sum(day["rows"] for day in days)
    head = f"{name}: {count(runs, 'run')} in {count(len(days), 'day')}, {idle:,} with nothing new, {failed:,} failed"
    head += f"; {count(moved, 'row')}, {size(sum(day['bytes'] for day in days))}"
    if "runs" in report:
        early = failed - sum(run["status"] == "failed" for run in report["runs"] if run["verb"] == "run")
        more = [f"  {early:,} more failed before acquiring the pipeline; see `status`"] if early > 0 else []
        return [head, *_each(report, ascii_only), *more]
    return [head, *_days(days, ascii_only)]


def _days(days: Sequence[Mapping[str, Any]], ascii_only: bool) -> list[str]:
    most = max(day["rows"] for day in days)
    table = [("day", "runs", "idle", "failed", "rows", "")]
    for day in days:
        bar = _bar(day["rows"], most, ascii_only) if day["runs"] else "no runs"
        numbers = tuple(f"{day[key]:,}" for key in ("runs", "idle", "failed", "rows"))
        table.append((day["day"], *numbers, _cross(bar, day["failed"], ascii_only)))
    return [f"  {line}" for line in align(table, right=range(1, len(table[0]) - 1))]


def _each(report: Mapping[str, Any], ascii_only: bool) -> list[str]:
    runs = report.get("runs", [])
    if not runs:
        return []
    most = max(run["rows"] for run in runs)
    table = [("started", "", "took", "rows", "")]
    for run in runs:
        took = ""
        if run["ended"]:
            seconds = datetime.fromisoformat(run["ended"]) - datetime.fromisoformat(run["started"])
            took = span(seconds.total_seconds())
        what = run["status"] if run["verb"] == "run" else f"{run['verb']}: {run['status']}"
        bar = _cross(_bar(run["rows"], most, ascii_only), run["status"] == "failed", ascii_only)
        table.append((minute(run["started"]), what, took, f"{run['rows']:,}", bar))
    return [f"  {line}" for line in align(table, right=range(1, len(table[0]) - 1))]


def _bar(rows: int, most: int, ascii_only: bool) -> str:
    """A bar of rows relative to the busiest entry; at least one character if there are any rows."""
    if not rows:
        return ""
    eighths = max(1, round(rows / most * BAR_WIDTH * 8))
    if ascii_only:
        return "#" * max(1, eighths // 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _cross(bar: str, failed: int, ascii_only: bool) -> str:
    """Put a cross before a bar for each failure, at most three."""
    crosses = ("x" if ascii_only else "✗") * min(int(failed), 3)
    return f"{crosses} {bar}".strip()

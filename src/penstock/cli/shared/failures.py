"""A stream's last error, how often it failed and since when, as a JSON document and as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from penstock.cli.shared.render import span
from penstock.core.messages import stamp
from penstock.core.reports import DayOfRuns, Failure, LastLook

#: turns (next step, stream or None) into a command that can be pasted
Fill = Callable[[str, str | None], str]
#: how long an error is shown after the stream has succeeded again
RESOLVED_ERROR_SHOWN = timedelta(days=1)


def error_document(failure: Failure | None, stream: str | None, fill: Fill) -> dict[str, Any] | None:
    """The last error; `failures` is 0 once the stream has succeeded again."""
    if failure is None:
        return None
    return {
        "what": failure.problem.what,
        "safe": failure.problem.safe,
        "next_step": fill(failure.problem.next_step, stream),
        "at": stamp(failure.at),
        "since": stamp(failure.since),
        "failures": failure.times,
    }


def looked_at(stream: str, looks: Sequence[LastLook]) -> str | None:
    """When a run last checked a stream for new rows; `looks` are newest first."""
    return next((stamp(look.at) for look in looks if look.covers(stream)), None)


def last_run_at(days: Sequence[DayOfRuns]) -> str | None:
    """When the last run ended, successful or not; `days` are newest first."""
    return stamp(days[0].last) if days else None


def is_failing(document: Mapping[str, Any]) -> bool:
    error = document.get("last_error")
    return bool(document.get("stopped") or (error and error["failures"]))


def error_lines(error: Mapping[str, Any] | None, now: datetime, verb: str = "failed") -> list[str]:
    """The last error and its next step; a resolved error is shown for a day."""
    if error is None:
        return []
    times = error["failures"]
    if times > 1:
        how = f"{verb} {times:,} times since {minute(error['since'])}, last {ago(error['at'], now)}"
        return [f"{how}: {error['what']}", f"Next: {error['next_step']}"]
    if times:
        return [f"{verb} {ago(error['at'], now)}: {error['what']}", f"Next: {error['next_step']}"]
    if now - datetime.fromisoformat(error["at"]) > RESOLVED_ERROR_SHOWN:
        return []
    return [f"failed {ago(error['at'], now)}, succeeded since: {error['what']}"]


def minute(timestamp: str) -> str:
    return datetime.fromisoformat(timestamp).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(timestamp: str, now: datetime) -> str:
    seconds = (now - datetime.fromisoformat(timestamp)).total_seconds()
    return f"{span(max(seconds, 0.0))} ago ({minute(timestamp)})"

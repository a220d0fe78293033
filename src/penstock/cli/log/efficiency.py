"""Summarizes how a run's time was spent. The time between two messages belongs to the step that the second one ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.cli.log.saved_messages import Execution
from penstock.core.fetches import FetchCounts
from penstock.core.messages import (
    Catalog,
    ConnectionStatus,
    Eof,
    Message,
    MoverStatus,
    StateChanged,
    Status,
    StepDone,
    StreamStatus,
    stamp,
)
from penstock.core.progress import Progress, fold

#: the steps that time is spent on, in the order of a run
STEPS = ("look", "plan", "gather", "start", "move", "commit", "advance", "close", "other")
_STEP_TEXTS = {
    "look": "checking for new rows",
    "plan": "planning and recording",
    "gather": "fetching",
    "start": "starting Spark",
    "move": "moving",
    "commit": "committing",
    "advance": "advancing the mark and removing leftovers",
    "close": "ending the run",
    "other": "something else",
}
#: maximum number of gaps that are listed
MAX_GAPS = 3
#: the share of the total time that a gap must exceed to be listed
MIN_GAP_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Interval:
    """The time between two messages."""

    began: datetime
    seconds: float
    step: str
    stream: str | None = None
    number: int | None = None

    @property
    def what(self) -> str:
        of = f" slice {self.number}" if self.number is not None and self.step != "plan" else ""
        return _STEP_TEXTS[self.step] + of + (f" of {self.stream}" if self.stream else "")


def intervals(messages: Sequence[Message]) -> list[Interval]:
    """Split a run's time at the messages that end a step."""
    result: list[Interval] = []
    steps: dict[str, tuple[str, int]] = {}
    last: datetime | None = None
    for message in messages:
        ended = _ended_step(message, steps)
        if isinstance(message, StepDone):
            steps[message.stream] = message.step, message.number
        if message.ts is None or (ended is None and last is not None):
            continue
        if last is not None and ended is not None:
            seconds = max(0.0, (message.ts - last).total_seconds())
            number = getattr(message, "number", steps.get(getattr(message, "stream", ""), ("", None))[1])
            stream = getattr(message, "stream", None) if ended != "look" else None
            result.append(Interval(last, seconds, ended, stream, number))
        last = message.ts if last is None else max(last, message.ts)
    return result


def _ended_step(message: Message, steps: dict[str, tuple[str, int]]) -> str | None:
    """The step that a message ends; None if it ends none."""
    match message:
        case Catalog() | ConnectionStatus():
            return "other"
        case MoverStatus(ready=True):
            return "start"
        case StepDone():
            return {"intend": "plan"}.get(message.step, message.step if message.step in STEPS else "other")
        case StateChanged() | StreamStatus(status=Status.RANGE_COMPLETE):
            return "advance"
        case StreamStatus(status=Status.ERROR):
            return {"intend": "move", "move": "commit"}.get(steps.get(message.stream, ("", 0))[0], "plan")
        case StreamStatus(status=Status.START):
            return "look"
        case StreamStatus(status=Status.COMPLETE):
            return "plan" if steps else "look"
        case Eof():
            return "close"
        case _:
            return None


def document(execution: Execution) -> dict[str, Any]:
    """The summary of one run."""
    progress = fold(execution.messages)
    spent = intervals(execution.messages)
    eof = execution.eof
    seconds = {step: round(sum(s.seconds for s in spent if s.step == step), 6) for step in STEPS}
    cpu = eof.cpu_seconds if eof else None
    return {
        "pipeline": execution.pipeline,
        "run": execution.catalog.run if execution.catalog else None,
        "status": eof.status if eof else "killed",
        "exit_code": eof.exit_code if eof else None,
        "started": stamp(progress.started) if progress.started else None,
        "seconds": progress.elapsed,
        "rows": progress.rows,
        "bytes": progress.bytes,
        "slices": progress.slices,
        "rows_per_second": _per(progress.rows, progress.elapsed),
        "rows_per_second_moving": _per(progress.rows, seconds["move"]),
        "cpu_seconds": cpu,
        "rows_per_cpu_second": _per(progress.rows, cpu),
        "steps": seconds,
        "streams": _streams(progress, spent),
        "gaps": [
            {
                "seconds": s.seconds,
                "what": s.what,
                "stream": s.stream,
                "at": stamp(s.began),
            }
            for s in _longest(spent)
        ],
    }


def _longest(spent: Sequence[Interval]) -> list[Interval]:
    minimum = MIN_GAP_SHARE * sum(interval.seconds for interval in spent)
    long = [interval for interval in spent if interval.seconds > minimum]
    return sorted(long, key=lambda interval: interval.seconds, reverse=True)[:MAX_GAPS]


def _streams(progress: Progress, spent: Sequence[Interval]) -> list[dict[str, Any]]:
    return [
        {
            "stream": name,
            "rows": stream.rows,
            "bytes": stream.bytes,
            "slices": stream.slices,
            "rows_per_slice": _per(stream.rows, stream.slices),
            "bytes_per_slice": _per(stream.bytes, stream.slices),
            "seconds": round(sum(s.seconds for s in spent if s.stream == name), 6),
            "seconds_moving": round(sum(s.seconds for s in spent if s.stream == name and s.step == "move"), 6),
            "fetched": _fetched(stream.fetched),
        }
        for name, stream in progress.streams.items()
        if stream.slices or stream.fetched
    ]


def _fetched(counts: FetchCounts | None) -> dict[str, Any] | None:
    """What fetching has cost; None if the stream is not fetched from an API."""
    if counts is None:
        return None
    return {
        "records": counts.records,
        "pages": counts.pages,
        "requests": counts.requests,
        "requests_per_page": _per(counts.requests, counts.pages),
        "retries": counts.retries,
        "seconds_waited": counts.waited,
    }


def nothing_new(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The average cost of runs that found nothing new."""
    idle = [run for run in runs if run["status"] == "complete" and not run["slices"]]
    measured = [run["cpu_seconds"] for run in idle if run["cpu_seconds"] is not None]
    return {
        "runs": len(idle),
        "seconds_each": _per(sum(run["seconds"] for run in idle), len(idle)),
        "cpu_seconds_each": _per(sum(measured), len(measured)),
    }


def _per(amount: float, units: float | None) -> float | None:
    return round(amount / units, 3) if units else None

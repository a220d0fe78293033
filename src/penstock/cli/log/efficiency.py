"""How well a run's time was spent: a summary of its messages. Pure: the time between two messages went into the
step that the second one ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.cli.log.saved_messages import Execution
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

#: what time is spent on, in the order of a run
STEPS = ("look", "plan", "start", "move", "commit", "advance", "close", "other")
_WORDS = {
    "look": "looking for what is new",
    "plan": "planning and recording",
    "start": "starting Spark",
    "move": "moving",
    "commit": "committing",
    "advance": "advancing the mark and sweeping up",
    "close": "coming to an end",
    "other": "something else",
}
#: the longest stretches without a message that are told, and how long one must be, as a share of all time
MOST_GAPS = 3
LEAST_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Stretch:
    """The time between two messages."""

    began: datetime
    seconds: float
    step: str
    stream: str | None = None
    number: int | None = None

    @property
    def what(self) -> str:
        of = f" slice {self.number}" if self.number is not None and self.step != "plan" else ""
        return _WORDS[self.step] + of + (f" of {self.stream}" if self.stream else "")


def stretches(messages: Sequence[Message]) -> list[Stretch]:
    """A run's time, parted at the messages that end a step."""
    found: list[Stretch] = []
    steps: dict[str, tuple[str, int]] = {}
    last: datetime | None = None
    for message in messages:
        ended = _ended(message, steps)
        if isinstance(message, StepDone):
            steps[message.stream] = message.step, message.number
        if message.ts is None or (ended is None and last is not None):
            continue
        if last is not None and ended is not None:
            seconds = max(0.0, (message.ts - last).total_seconds())
            number = getattr(message, "number", steps.get(getattr(message, "stream", ""), ("", None))[1])
            stream = getattr(message, "stream", None) if ended != "look" else None
            found.append(Stretch(last, seconds, ended, stream, number))
        last = message.ts if last is None else max(last, message.ts)
    return found


def _ended(message: Message, steps: dict[str, tuple[str, int]]) -> str | None:
    """The step that a message ends; None: it comes in the middle of one."""
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
    """One execution, summed up."""
    progress = fold(execution.messages)
    spent = stretches(execution.messages)
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


def _longest(spent: Sequence[Stretch]) -> list[Stretch]:
    least = LEAST_SHARE * sum(stretch.seconds for stretch in spent)
    long = [stretch for stretch in spent if stretch.seconds > least]
    return sorted(long, key=lambda stretch: stretch.seconds, reverse=True)[:MOST_GAPS]


def _streams(progress: Progress, spent: Sequence[Stretch]) -> list[dict[str, Any]]:
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
        }
        for name, stream in progress.streams.items()
        if stream.slices
    ]


def nothing_new(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the runs that found nothing new have cost, each on average."""
    idle = [run for run in runs if run["status"] == "complete" and not run["slices"]]
    measured = [run["cpu_seconds"] for run in idle if run["cpu_seconds"] is not None]
    return {
        "runs": len(idle),
        "seconds_each": _per(sum(run["seconds"] for run in idle), len(idle)),
        "cpu_seconds_each": _per(sum(measured), len(measured)),
    }


def _per(amount: float, units: float | None) -> float | None:
    return round(amount / units, 3) if units else None

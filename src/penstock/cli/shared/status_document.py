"""The status of a pipeline and its streams as JSON documents, for `status` and `state show`, and as text.

Reads only the store: no Spark, and no connection to a source or sink.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.cli.shared.failures import (
    Fill,
    ago,
    error_document,
    error_lines,
    is_failing,
    last_run_at,
    looked_at,
    minute,
)
from penstock.cli.shared.render import count, describe_outcome, held_back, size, span
from penstock.core.content import Content
from penstock.core.drift import QUARANTINE_COLUMN
from penstock.core.marks import Position
from penstock.core.messages import stamp
from penstock.core.reports import WHOLE_RUN
from penstock.ports import Holder, Owner, RunRecord, Store, StreamState

#: turns a stored mark into text
DescribeMark = Callable[[str | None], str]


def pipeline_document(
    store: Store,
    name: str,
    configured: Sequence[str],
    *,
    describe_mark: DescribeMark,
    gone: Callable[[Owner], bool],
    now: datetime,
    runs: int = 5,
    fill: Fill = lambda step, _: step,
) -> dict[str, Any]:
    """One pipeline: its lease holder, every configured or known stream, its last error, its last runs."""
    known = store.streams(name)
    held = _holder(store.holder(name), gone, now)
    alive = held is not None and held["state"] == "running"
    names = [*configured, *sorted(set(known) - set(configured))]
    last = store.runs(name, most=runs)
    progress = _last_progress(last)
    failures, looks = store.failures(name), store.last_looks(name)
    return {
        "pipeline": name,
        "held_by": held,
        "last_run_at": last_run_at(store.days(name, most=1)),
        "last_error": error_document(failures.get(WHOLE_RUN), None, fill),
        "streams": [
            {"stream": stream}
            | stream_document(known.get(stream, StreamState()), describe_mark)
            | {
                "looked_at": looked_at(stream, looks),
                "last_error": error_document(failures.get(stream), stream, fill),
            }
            | _horizon(progress.get(stream, {}))
            for stream in names
        ],
        "runs": [_run(run, alive) for run in last],
    }


def stream_document(state: StreamState, describe_mark: DescribeMark) -> dict[str, Any]:
    """One stream: its mark, its open slice and what is pending."""
    intent = state.intent
    return {
        "slice": state.last.number if state.last else 0,
        "slice_id": state.last.id if state.last else None,
        "at": describe_mark(_text(state.last)),
        "mark": state.last.mark.document if state.last and state.last.mark else None,
        "version": state.version,
        "rows": state.rows,
        "bytes": state.bytes,
        "outcome": state.outcome.document() if state.outcome else None,
        "moved_at": stamp(state.moved_at) if state.moved_at else None,
        "open": None
        if intent is None
        else {
            "slice": intent.number,
            "slice_id": intent.id,
            "kind": intent.kind.value,
            "upto": describe_mark(intent.upto.text if intent.upto else None),
        },
        "reset_wanted": state.reset_wanted,
        "quarantined": list(Content.parse(state.last.content).quarantined) if state.last else [],
        "stopped": state.stopped,
    }


def _last_progress(runs: Sequence[RunRecord]) -> dict[str, Mapping[str, Any]]:
    """Each stream's progress in the last run that included it; `runs` are newest first."""
    newest: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        for stream, progress in run.streams.items():
            newest.setdefault(stream, json.loads(progress))
    return newest


def _horizon(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Rows left after the last run, its horizon, and rows held back with their blocker."""
    names = ("left", "left_exact", "horizon", "proven", "held_back", "blocker")
    return {name: progress.get(name) for name in names}


def pipeline_lines(document: Mapping[str, Any], now: datetime) -> list[str]:
    """A pipeline's document as text; failing streams come first."""
    held = document["held_by"]
    last = f"; last run ended {ago(document['last_run_at'], now)}" if document["last_run_at"] else ""
    lines = [f"{document['pipeline']}: {_held_line(held)}{last}"]
    lines += [f"  {line}" for line in error_lines(document["last_error"], now)]
    newest = max((stream["looked_at"] for stream in document["streams"] if stream["looked_at"]), default=None)
    for stream in sorted(document["streams"], key=is_failing, reverse=True):
        lines += [f"  {line}" for line in stream_lines(stream["stream"], stream, now)]
        # A run of selected streams does not check the others.
        if stream["looked_at"] and stream["looked_at"] != newest:
            lines.append(f"    last checked {ago(stream['looked_at'], now)}")
    if not document["streams"]:
        lines.append("  no streams yet")
    if document["runs"]:
        lines.append("  last runs:")
    lines += [f"    {_run_line(run)}" for run in document["runs"]]
    return lines


def stream_lines(name: str, stream: Mapping[str, Any], now: datetime) -> list[str]:
    """A stream's document as text: errors, then rows left, then its mark."""
    error = stream.get("last_error")
    same_error = error is not None and error["failures"] and error["what"] == stream["stopped"]
    errors = [f"  {line}" for line in error_lines(error, now, "stopped: failed" if same_error else "failed")]
    if stream["stopped"] and not same_error:
        errors.append(f"  stopped: {stream['stopped']}")
    left = _left(stream)
    if not stream["slice"]:
        lines = [f"{name}: not started", *errors, *left]
    else:
        moved = f", moved {ago(stream['moved_at'], now)}" if stream["moved_at"] else ""
        delivered = f"{count(stream['rows'], 'row')} delivered ({size(stream['bytes'])})"
        head = f"{name}: slice {stream['slice']}, {delivered}{moved}"
        lines = [head, *errors, *left, *_outcome_line(stream), f"  mark: {stream['at']}"]
    if stream.get("horizon"):
        # `check` prints what the horizon is based on.
        extent, label = stream["horizon"].partition(" (")[0], "proven" if stream["proven"] else "assumed"
        lines.append(f"  horizon: {extent} ({label})")
    held = held_back(stream.get("held_back"), stream.get("blocker"))
    if held:
        lines.append(f"  {held}")
    if stream["open"]:
        number, upto = stream["open"]["slice"], stream["open"]["upto"]
        lines.append(f"  open: slice {number} ({upto}); the next run finishes it first")
    if stream["reset_wanted"]:
        lines.append("  reset requested; the next run carries it out")
    if stream["quarantined"]:
        lines.append(f"  values that do not fit are stored in {QUARANTINE_COLUMN}: {', '.join(stream['quarantined'])}")
    return lines


def _left(stream: Mapping[str, Any]) -> list[str]:
    """Rows left after the last run, if any are known."""
    rows = stream.get("left")
    return [f"  left: {'' if stream['left_exact'] else 'about '}{count(rows, 'row')}"] if rows else []


def _outcome_line(stream: Mapping[str, Any]) -> list[str]:
    """What the sink did with the rows, if it reports it."""
    outcome = stream["outcome"]
    if not outcome:
        return []
    # Earlier versions of the store did not record it.
    known = sum(outcome.values()) >= stream["rows"]
    return [f"  rows: {describe_outcome(outcome)}" + ("" if known else "; not recorded for earlier rows")]


def _text(position: Position | None) -> str | None:
    return position.mark.text if position and position.mark else None


def _holder(holder: Holder | None, gone: Callable[[Owner], bool], now: datetime) -> dict[str, Any] | None:
    if holder is None:
        return None
    owner = holder.lease.owner
    state = "gone" if gone(owner) else "expired" if holder.expires <= now else "running"
    return {
        "host": owner.host,
        "pid": owner.pid,
        "epoch": holder.lease.epoch,
        "heartbeat": stamp(holder.heartbeat),
        "expires": stamp(holder.expires),
        "state": state,
    }


def _held_line(held: Mapping[str, Any] | None) -> str:
    if held is None:
        return "not running"
    who = f"process {held['pid']} on {held['host']}"
    match held["state"]:
        case "gone":
            return f"{who} ended without releasing it; the next run takes over"
        case "expired":
            return f"{who} has sent no heartbeat since {held['heartbeat']}; the next run takes over"
        case _:
            return f"running in {who}, last heartbeat {held['heartbeat']}"


def _run(run: RunRecord, alive: bool) -> dict[str, Any]:
    totals = json.loads(run.totals)
    return {
        "run": run.id,
        "verb": run.verb,
        "started": stamp(run.started),
        "ended": stamp(run.ended) if run.ended else None,
        # The run has no end, and no living process holds the pipeline.
        "status": "killed" if run.ended is None and not alive else run.status,
        "has_more": run.has_more,
        "continues": run.continues,
        "rows": totals.get("rows", 0),
        "outcome": totals.get("outcome"),
    }


def _run_line(run: Mapping[str, Any]) -> str:
    took = ""
    if run["ended"]:
        seconds = datetime.fromisoformat(run["ended"]) - datetime.fromisoformat(run["started"])
        took = f" in {span(seconds.total_seconds())}"
    if run["verb"] != "run":
        how = "" if run["status"] == "complete" else f": {run['status']}"
        return f"{minute(run['started'])}  {run['verb']}{how}{took}"
    # A run's totals include those of the run that it continues.
    rows = count(run["rows"], "row") + (" including the run it continues" if run["continues"] else "")
    became = f" ({describe_outcome(run['outcome'])})" if run["outcome"] else ""
    more = ", more to do" if run["has_more"] else ""
    return f"{minute(run['started'])}  {run['status']}{took}, {rows}{became}{more}"

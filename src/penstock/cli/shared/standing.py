"""What the store knows, as documents for `status` and `state show`, and these documents as text.

Needs the store and the source's words for a mark; neither Spark nor a connection to a source or sink.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.cli.shared.failing import (
    Fill,
    ago,
    error_document,
    error_lines,
    is_failing,
    last_run_at,
    looked_at,
    minute,
)
from penstock.cli.shared.render import became_of, count, held_back, size, span
from penstock.core.content import Content
from penstock.core.drift import ASIDE
from penstock.core.marks import Position
from penstock.core.messages import stamp
from penstock.core.reports import WHOLE_RUN
from penstock.ports import Holder, Owner, RunRecord, Store, StreamState

Words = Callable[[str | None], str]


def pipeline_document(
    store: Store,
    name: str,
    configured: Sequence[str],
    *,
    words: Words,
    gone: Callable[[Owner], bool],
    now: datetime,
    runs: int = 5,
    fill: Fill = lambda step, _: step,
) -> dict[str, Any]:
    """One pipeline: who holds it, every stream that is configured or known, what failed, the last runs."""
    known = store.streams(name)
    held = _holder(store.holder(name), gone, now)
    alive = held is not None and held["state"] == "running"
    names = [*configured, *sorted(set(known) - set(configured))]
    last = store.runs(name, most=runs)
    seen = _seen(last)
    failures, looks = store.failures(name), store.last_looks(name)
    return {
        "pipeline": name,
        "held_by": held,
        "last_run_at": last_run_at(store.days(name, most=1)),
        "last_error": error_document(failures.get(WHOLE_RUN), None, fill),
        "streams": [
            {"stream": stream}
            | stream_document(known.get(stream, StreamState()), words)
            | {
                "looked_at": looked_at(stream, looks),
                "last_error": error_document(failures.get(stream), stream, fill),
            }
            | _horizon(seen.get(stream, {}))
            for stream in names
        ],
        "runs": [_run(run, alive) for run in last],
    }


def stream_document(state: StreamState, words: Words) -> dict[str, Any]:
    """One stream: where it stands and what is pending."""
    intent = state.intent
    return {
        "slice": state.last.number if state.last else 0,
        "slice_id": state.last.id if state.last else None,
        "at": words(_text(state.last)),
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
            "upto": words(intent.upto.text if intent.upto else None),
        },
        "reset_wanted": state.reset_wanted,
        "quarantined": list(Content.parse(state.last.content).quarantined) if state.last else [],
        "stopped": state.stopped,
    }


def _seen(runs: Sequence[RunRecord]) -> dict[str, Mapping[str, Any]]:
    """Each stream as the last run that knew it has left it; `runs` are the newest first."""
    found: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        for stream, progress in run.streams.items():
            found.setdefault(stream, json.loads(progress))
    return found


def _horizon(progress: Mapping[str, Any]) -> dict[str, Any]:
    """What was left when the last run looked, how far it was safe to read, and who held rows back."""
    names = ("left", "left_exact", "horizon", "proven", "held_back", "blocker")
    return {name: progress.get(name) for name in names}


def pipeline_lines(document: Mapping[str, Any], now: datetime) -> list[str]:
    """A pipeline's document as text; streams that fail come first."""
    held = document["held_by"]
    last = f"; the last run ended {ago(document['last_run_at'], now)}" if document["last_run_at"] else ""
    lines = [f"{document['pipeline']}: {_held_line(held)}{last}"]
    lines += [f"  {line}" for line in error_lines(document["last_error"], now)]
    newest = max((stream["looked_at"] for stream in document["streams"] if stream["looked_at"]), default=None)
    for stream in sorted(document["streams"], key=is_failing, reverse=True):
        lines += [f"  {line}" for line in stream_lines(stream["stream"], stream, now)]
        # A run of some streams has not looked at the others.
        if stream["looked_at"] and stream["looked_at"] != newest:
            lines.append(f"    looked at {ago(stream['looked_at'], now)}")
    if not document["streams"]:
        lines.append("  no stream is known yet")
    if document["runs"]:
        lines.append("  last runs:")
    lines += [f"    {_run_line(run)}" for run in document["runs"]]
    return lines


def stream_lines(name: str, stream: Mapping[str, Any], now: datetime) -> list[str]:
    """A stream's document as text: errors first, then what is left, then where it stands."""
    error = stream.get("last_error")
    told = error is not None and error["failures"] and error["what"] == stream["stopped"]
    errors = [f"  {line}" for line in error_lines(error, now, "stopped: failed" if told else "failed")]
    if stream["stopped"] and not told:
        errors.append(f"  stopped: {stream['stopped']}")
    left = _left(stream)
    if not stream["slice"]:
        lines = [f"{name}: not begun", *errors, *left]
    else:
        moved = f", moved {ago(stream['moved_at'], now)}" if stream["moved_at"] else ""
        delivered = f"{count(stream['rows'], 'row')} delivered ({size(stream['bytes'])})"
        head = f"{name}: slice {stream['slice']}, {delivered}{moved}"
        lines = [head, *errors, *left, *_became(stream), f"  mark: {stream['at']}"]
    if stream.get("horizon"):
        # What it rests on, `check` says at length.
        extent, label = stream["horizon"].partition(" (")[0], "proven" if stream["proven"] else "assumed"
        lines.append(f"  horizon: {extent} ({label})")
    held = held_back(stream.get("held_back"), stream.get("blocker"))
    if held:
        lines.append(f"  {held}")
    if stream["open"]:
        number, upto = stream["open"]["slice"], stream["open"]["upto"]
        lines.append(f"  open: slice {number} ({upto}); the next run finishes it first")
    if stream["reset_wanted"]:
        lines.append("  a reset is wanted; the next run carries it out")
    if stream["quarantined"]:
        lines.append(f"  put aside in {ASIDE} where they do not fit: {', '.join(stream['quarantined'])}")
    return lines


def _left(stream: Mapping[str, Any]) -> list[str]:
    """Rows that the last run left, if it knew of any."""
    rows = stream.get("left")
    return [f"  left: {'' if stream['left_exact'] else 'about '}{count(rows, 'row')}"] if rows else []


def _became(stream: Mapping[str, Any]) -> list[str]:
    """What became of the rows delivered, if the sink looks at them."""
    outcome = stream["outcome"]
    if not outcome:
        return []
    # Of rows that a store counted before it kept this, nobody knows.
    known = sum(outcome.values()) >= stream["rows"]
    return [f"  became: {became_of(outcome)}" + ("" if known else "; of the rows before these it was not kept")]


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
        return "nobody is running it"
    who = f"process {held['pid']} on {held['host']}"
    match held["state"]:
        case "gone":
            return f"{who} ended without giving it back; the next run takes over"
        case "expired":
            return f"{who} has not been heard of since {held['heartbeat']}; the next run takes over"
        case _:
            return f"running in {who}, heard of at {held['heartbeat']}"


def _run(run: RunRecord, alive: bool) -> dict[str, Any]:
    totals = json.loads(run.totals)
    return {
        "run": run.id,
        "verb": run.verb,
        "started": stamp(run.started),
        "ended": stamp(run.ended) if run.ended else None,
        # A run that nobody ended, of a pipeline that no living process holds.
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
    # A run's progress goes on from the run that it continues.
    rows = count(run["rows"], "row") + (" with the run it continues" if run["continues"] else "")
    became = f" ({became_of(run['outcome'])})" if run["outcome"] else ""
    more = ", more to do" if run["has_more"] else ""
    return f"{minute(run['started'])}  {run['status']}{took}, {rows}{became}{more}"

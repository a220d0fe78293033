"""What the store knows, as documents for `status` and `state show`, and these documents as text.

Needs the store and the source's words for a mark; neither Spark nor a connection to a source or sink.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.cli.shared.render import became_of, count, held_back, size, span
from penstock.core.documents import parse
from penstock.core.drift import ASIDE, quarantined
from penstock.core.marks import Position
from penstock.core.messages import stamp
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
) -> dict[str, Any]:
    """One pipeline: who holds it, every stream that is configured or known, the last runs."""
    known = store.streams(name)
    held = _holder(store.holder(name), gone, now)
    alive = held is not None and held["state"] == "running"
    names = [*configured, *sorted(set(known) - set(configured))]
    last = store.runs(name, most=runs)
    seen = _seen(last)
    return {
        "pipeline": name,
        "held_by": held,
        "streams": [
            {"stream": stream}
            | stream_document(known.get(stream, StreamState()), words)
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
        "quarantined": list(quarantined(parse(state.last.content))) if state.last else [],
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
    """How far it was safe to read, and who held rows back."""
    return {name: progress.get(name) for name in ("horizon", "proven", "held_back", "blocker")}


def pipeline_lines(document: Mapping[str, Any], now: datetime) -> list[str]:
    """A pipeline's document as text."""
    held = document["held_by"]
    lines = [f"{document['pipeline']}: {_held_line(held)}"]
    for stream in document["streams"]:
        lines += [f"  {line}" for line in stream_lines(stream["stream"], stream, now)]
    if not document["streams"]:
        lines.append("  no stream is known yet")
    if document["runs"]:
        lines.append("  last runs:")
    lines += [f"    {_run_line(run)}" for run in document["runs"]]
    return lines


def stream_lines(name: str, stream: Mapping[str, Any], now: datetime) -> list[str]:
    """A stream's document as text."""
    if not stream["slice"]:
        lines = [f"{name}: not begun"]
    else:
        moved = f", moved {_ago(stream['moved_at'], now)}" if stream["moved_at"] else ""
        delivered = f"{count(stream['rows'], 'row')} delivered ({size(stream['bytes'])})"
        lines = [f"{name}: slice {stream['slice']}, {delivered}{moved}", *_became(stream), f"  mark: {stream['at']}"]
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
    if stream["stopped"]:
        lines.append(f"  stopped: {stream['stopped']}")
    return lines


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
    # A run's progress goes on from the run that it continues.
    rows = count(run["rows"], "row") + (" with the run it continues" if run["continues"] else "")
    became = f" ({became_of(run['outcome'])})" if run["outcome"] else ""
    more = ", more to do" if run["has_more"] else ""
    return f"{_minute(run['started'])}  {run['status']}{took}, {rows}{became}{more}"


def _minute(moment: str) -> str:
    return datetime.fromisoformat(moment).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ago(moment: str, now: datetime) -> str:
    seconds = (now - datetime.fromisoformat(moment)).total_seconds()
    return f"{span(max(seconds, 0.0))} ago ({_minute(moment)})"

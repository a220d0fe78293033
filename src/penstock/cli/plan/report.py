"""The report of `plan` as JSON documents and as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock import wiring
from penstock.cli.shared.inspection import (
    PROBE_BUDGET,
    PipelineInspection,
    StreamInspection,
    describe_holder,
    describe_reading,
    print_report,
    problem_document,
)
from penstock.cli.shared.render import count, size
from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.exits import worst
from penstock.core.marks import Mark
from penstock.core.slices import Kind
from penstock.errors import ConnectionFailed, PenstockError
from penstock.ports import Budget, Planned, estimate


def print_plan(
    path: str,
    sets: Sequence[str] | None,
    pipelines: Sequence[str] | None,
    only: Sequence[str] | None,
    slices: int,
    *,
    as_json: bool,
) -> int:
    """Print what the next run of every pipeline would do, and return the exit code it would end with."""
    return print_report(path, sets, pipelines, lambda at: _pipeline(at, only, slices), _lines, as_json=as_json)


def _pipeline(at: PipelineInspection, only: Sequence[str] | None, slices: int) -> dict[str, Any]:
    found: dict[str, Any] = {"pipeline": at.pipeline, "held_by": None, "exit_code": 0, "problem": None, "streams": []}
    try:
        at.inspect(only)
        if at.refused is not None:
            raise at.refused
        status = at.status()
        found["held_by"] = status["held_by"] if status else None
        found["streams"] = [_stream(at, seen, slices) for seen in at.streams]
    except PenstockError as error:
        return found | {
            "problem": problem_document(error.at(pipeline=at.pipeline), at.file),
            "exit_code": error.exit_code,
        }
    found["exit_code"] = worst(stream["problem"]["exit_code"] for stream in found["streams"] if stream["problem"])
    return found


def _stream(at: PipelineInspection, seen: StreamInspection, slices: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "stream": seen.info.name,
        "how": describe_reading(seen.info),
        "skipped": seen.info.skipped,
        "at": at.source.describe(_mark(seen)),
        "whole": seen.info.kind is Kind.REFRESH,
        "open": _open(at, seen),
        "reset_wanted": seen.state.reset_wanted,
        "drift": seen.drift,
        "problem": None,
        "slices": [],
        "more": False,
        "left": None,
        "note": None,
    }
    if seen.content is not None:
        try:
            _plan_slices(at, seen, seen.content, slices, found)
        except ConnectionFailed:
            raise
        except PenstockError as error:
            seen.problems.append(error.at(pipeline=at.pipeline, stream=seen.info.name))
    found["problem"] = problem_document(seen.problem, at.file)
    return found


def _open(at: PipelineInspection, seen: StreamInspection) -> dict[str, Any] | None:
    intent = seen.state.intent
    if intent is None:
        return None
    plan = json.loads(intent.plan)
    rows = plan.get("rows")
    return {
        "slice": intent.number,
        "kind": intent.kind.value,
        "after": at.source.describe(intent.after),
        "upto": at.source.describe(intent.upto),
        "rows": rows,
        "exact": bool(plan.get("exact")),
        "bytes": _bytes(seen, rows, plan),
    }


def _plan_slices(
    at: PipelineInspection, seen: StreamInspection, content: Content, most: int, found: dict[str, Any]
) -> None:
    """Add the next slices after the mark, or after the open slice or requested reset."""
    name, state = seen.info.name, seen.state
    start = after = None if state.reset_wanted else state.intent.upto if state.intent else _mark(seen)
    number = (state.last.number if state.last else 0) + bool(state.intent) + state.reset_wanted
    budget = Budget(at.file.pipelines[at.pipeline].slice_bytes, workers=wiring.runtime_for(at.file).workers)
    while len(found["slices"]) < most:
        next_ = seen.look.plan(after, budget)
        if next_ is None:
            break
        number += 1
        found["slices"].append(_slice(at, seen, number, after, next_))
        next_plan = next_.plan
        after = next_.upto
        row_bytes = next_.plan.get("row_bytes")
        if isinstance(row_bytes, int):
            budget = Budget(budget.bytes, None, float(row_bytes), budget.workers)
    else:
        found["more"] = seen.look.plan(after, PROBE_BUDGET) is not None
    ceiling = seen.look.ceiling
    if ceiling is None:
        return
    if found["slices"] or ceiling.get("held"):
        left = estimate(at.source, name, content, start, ceiling)
        found["left"] = left.document()
    if found["slices"]:
        first = found["slices"][0]
        if not first["exact"] and not found["more"] and len(found["slices"]) == 1:
            first |= {
                "rows": left.rows,
                "exact": left.exact and not found["whole"],
                "bytes": _bytes(seen, left.rows, next_plan),
            }
    elif seen.look.plan(start, PROBE_BUDGET) is not None:
        found["note"] = "the run prepares the source first, and then knows which rows are new; see `penstock check`"


def _mark(seen: StreamInspection) -> Mark | None:
    return seen.state.last.mark if seen.state.last else None


def _slice(
    at: PipelineInspection, seen: StreamInspection, number: int, after: Mark | None, next_: Planned
) -> dict[str, Any]:
    whole = next_.kind is Kind.REFRESH
    return {
        "slice": number,
        "kind": next_.kind.value,
        "after": at.source.describe(after),
        "upto": "the whole table" if whole else at.source.describe(next_.upto),
        "rows": next_.rows,
        "exact": next_.exact,
        "bytes": _bytes(seen, next_.rows, next_.plan),
    }


def _bytes(seen: StreamInspection, rows: int | None, plan: Document) -> int | None:
    """Expected Arrow bytes, from the plan's estimate per row or from the rows delivered so far."""
    if rows is None:
        return None
    row_bytes = plan.get("row_bytes")
    if isinstance(row_bytes, int):
        return rows * row_bytes
    return round(rows * seen.state.bytes / seen.state.rows) if seen.state.rows else None


# ---------------------------------------------------------------- text


def _lines(document: Mapping[str, Any]) -> list[str]:
    lines = [f"{document['pipeline']}: {describe_holder(document['held_by'])}"]
    if document["problem"]:
        return [*lines, f"  {document['problem']['what']}", f"  Next: {document['problem']['next_step']}"]
    for stream in document["streams"]:
        lines += [f"  {line}" for line in _stream_lines(stream)]
    return lines


def _stream_lines(stream: Mapping[str, Any]) -> list[str]:
    name = stream["stream"]
    if stream["skipped"] is not None:
        return [f"{name}: skipped: {stream['skipped']}"]
    lines = []
    if stream["open"]:
        lines.append(f"  slice {stream['open']['slice']} is open and is finished first: {_expected(stream['open'])}")
    if stream["reset_wanted"]:
        lines.append("  then the requested reset: every row from the beginning")
    lines += [f"  {line}" for line in stream["drift"]]
    lines += [f"  slice {slice_['slice']}: {_expected(slice_)}" for slice_ in stream["slices"]]
    if stream["more"]:
        lines.append("  and more slices")
    if stream["note"]:
        lines.append(f"  {stream['note']}")
    if stream["problem"]:
        lines += [f"  would fail: {stream['problem']['what']}", f"  Next: {stream['problem']['next_step']}"]
    return [f"{name}: {_summary(stream)}", *lines]


def _summary(stream: Mapping[str, Any]) -> str:
    if stream["problem"]:
        return str(stream["how"])
    left = stream["left"]
    where = stream["how"] if stream["whole"] else f"{stream['how']}, {stream['at']}"
    if left is None:
        busy = stream["open"] or stream["reset_wanted"] or stream["note"]
        return f"{where}; {'work to finish' if busy else 'nothing new'}"
    rows = "an unknown number of rows" if left["rows"] is None else _about(left["rows"], left["exact"]) + " to read"
    held = f"; {_about(left['held_back'], True)} held back" if left["held_back"] else ""
    blocker = f" by {left['blocker']}" if held and left["blocker"] else ""
    return f"{where}; {rows}{held}{blocker}"


def _about(rows: int, exact: bool) -> str:
    return ("" if exact else "~") + count(rows, "row")


def _expected(slice_: Mapping[str, Any]) -> str:
    rows, bytes_ = slice_["rows"], slice_["bytes"]
    what = "unknown number of rows" if rows is None else _about(rows, slice_.get("exact", True))
    return f"{slice_['upto']}, {what}" + (f", ~{size(bytes_)}" if bytes_ is not None else "")

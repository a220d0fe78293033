"""The report of `check` as JSON documents; `text` turns it into lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.cli.check.text import CheckLines
from penstock.cli.shared.inspection import (
    PipelineInspection,
    StreamInspection,
    describe_reading,
    print_report,
    problem_document,
)
from penstock.core.exits import worst
from penstock.errors import PenstockError, StreamRefused, StreamStopped
from penstock.ports import explain_sink, explain_source


def print_check(
    path: str,
    sets: Sequence[str] | None,
    pipelines: Sequence[str] | None,
    only: Sequence[str] | None,
    *,
    as_json: bool,
    verbose: bool,
) -> int:
    """Check every pipeline, print the report, and return the exit code."""
    return print_report(
        path,
        sets,
        pipelines,
        lambda at: _pipeline(at, only),
        lambda document: CheckLines(document, verbose=verbose).lines(),
        lambda file, code: [
            "Fix the problems above, then run `check` again." if code else f"Next: penstock run {file.path}"
        ],
        as_json=as_json,
    )


def _pipeline(at: PipelineInspection, only: Sequence[str] | None) -> dict[str, Any]:
    chosen = at.file.pipelines[at.pipeline]
    found: dict[str, Any] = {
        "pipeline": at.pipeline,
        "source": chosen.source_type,
        "sink": chosen.sink_type,
        "held_by": None,
        "exit_code": 0,
        "problem": None,
        "streams": [],
    }
    try:
        at.inspect(only)
        status = at.status()
        found["held_by"] = status["held_by"] if status else None
        found["streams"] = [_stream(at, seen, status) for seen in at.streams]
    except PenstockError as error:
        found |= {"problem": problem_document(error.at(pipeline=at.pipeline), at.file), "exit_code": error.exit_code}
        return found
    if at.refused is not None:
        found["problem"] = problem_document(at.refused.at(pipeline=at.pipeline), at.file)
    problems = [problem for seen in at.streams for problem in seen.problems]
    found["exit_code"] = worst(error.exit_code for error in (*problems, *([at.refused] if at.refused else [])))
    return found


def _stream(at: PipelineInspection, seen: StreamInspection, status: Mapping[str, Any] | None) -> dict[str, Any]:
    info, content = seen.info, seen.content
    remarks: list[dict[str, str]] = []
    if content is not None:
        try:
            sides = (
                ("source", explain_source(at.source, info.name, content)),
                ("sink", explain_sink(at.sink, info, content)),
            )
            remarks = [{"side": side, "kind": each.kind, "text": each.text} for side, found in sides for each in found]
        except (StreamRefused, StreamStopped) as refused:
            # Some problems, such as an invalid filter, are found only here or when rows are read.
            seen.problems.append(refused.at(pipeline=at.pipeline, stream=info.name))
    state = next((each for each in status["streams"] if each["stream"] == info.name), None) if status else None
    return {
        "stream": info.name,
        "how": describe_reading(info),
        "kind": info.kind.value,
        "order": list(info.order),
        "primary_key": list(info.primary_key),
        "columns": [column.name for column in content.reads] if content is not None else [],
        "drift": seen.drift,
        "skipped": info.skipped,
        "slice": state["slice"] if state else 0,
        "at": state["at"] if state else None,
        "open": state["open"] if state else None,
        "problem": problem_document(seen.problem, at.file),
        "problems": [problem_document(problem, at.file) for problem in seen.problems],
        "remarks": remarks,
    }

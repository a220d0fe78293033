"""What `check` finds, as documents; `check_lines` has it as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.cli.looking.check_lines import CheckLines
from penstock.cli.looking.pipeline import Look, Seen, how, kept, look, store_words, told
from penstock.config import File
from penstock.core.exits import worst
from penstock.errors import PenstockError, StreamRefused
from penstock.ports import explain_sink, explain_source


def checked(
    file: File, names: Sequence[str], only: Sequence[str] | None, *, as_json: bool, verbose: bool = False
) -> int:
    """Print what every pipeline's check finds; the exit code for all."""
    with kept(file) as store:
        documents = []
        for name in names:
            with look(file, name, store) as at:
                documents.append(_pipeline(at, only))
                if not as_json:
                    print("\n".join(CheckLines(documents[-1], verbose=verbose).lines()), flush=True)
        codes = [document["exit_code"] for document in documents]
        if store.error is not None:
            codes.append(store.error.exit_code)
        code = worst(codes)
        if as_json:
            about = {"missing": store.missing, "problem": told(store.error, file)}
            answer = {"file": file.path, "exit_code": code, "store": about, "pipelines": documents}
            print(json.dumps(answer, ensure_ascii=False, indent=2))
        else:
            closing = f"Next: penstock run {file.path}" if code == 0 else "Put right what is marked, and check again."
            print("\n".join([*store_words(store, file.path), closing]))
    return code


def _pipeline(at: Look, only: Sequence[str] | None) -> dict[str, Any]:
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
        at.see(only)
        standing = at.standing()
        found["held_by"] = standing["held_by"] if standing else None
        found["streams"] = [_stream(at, seen, standing) for seen in at.streams]
    except PenstockError as error:
        found |= {"problem": told(error.at(pipeline=at.pipeline), at.file), "exit_code": error.exit_code}
        return found
    if at.refused is not None:
        found["problem"] = told(at.refused.at(pipeline=at.pipeline), at.file)
    problems = [problem for seen in at.streams for problem in seen.problems]
    found["exit_code"] = worst(error.exit_code for error in (*problems, *([at.refused] if at.refused else [])))
    return found


def _stream(at: Look, seen: Seen, standing: Mapping[str, Any] | None) -> dict[str, Any]:
    info, content = seen.info, seen.content
    remarks: list[dict[str, str]] = []
    if content is not None:
        try:
            sides = (
                ("source", explain_source(at.source, info.name, content)),
                ("sink", explain_sink(at.sink, info, content)),
            )
            remarks = [{"side": side, "kind": each.kind, "text": each.text} for side, said in sides for each in said]
        except StreamRefused as refused:
            # A filter, say, which is understood only where there is something to read, or here.
            seen.problems.append(refused.at(pipeline=at.pipeline, stream=info.name))
    stands = next((each for each in standing["streams"] if each["stream"] == info.name), None) if standing else None
    return {
        "stream": info.name,
        "how": how(info),
        "kind": info.kind.value,
        "order": list(info.order),
        "primary_key": list(info.primary_key),
        "columns": [column.name for column in content.reads] if content is not None else [],
        "drift": seen.drift,
        "skipped": info.skipped,
        "slice": stands["slice"] if stands else 0,
        "at": stands["at"] if stands else None,
        "open": stands["open"] if stands else None,
        "problem": told(seen.problem, at.file),
        "problems": [told(problem, at.file) for problem in seen.problems],
        "remarks": remarks,
    }

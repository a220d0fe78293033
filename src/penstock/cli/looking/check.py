"""What `check` finds, as documents and as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.cli.looking.pipeline import Look, Seen, holder_words, how, kept, look, store_words, told
from penstock.cli.shared.render import count
from penstock.config import File
from penstock.core.drift import reads
from penstock.core.exits import worst
from penstock.errors import PenstockError, StreamRefused

#: fine, to be known, broken, advice: where the terminal has them, and where not
SIGNS = {"guarantee": "✓", "gap": "!", "broken": "✗", "advice": "·"}
#: remarks about this many streams are said once for all of them
MANY = 3
PLAIN = {"guarantee": "ok", "gap": "!", "broken": "x", "advice": "-"}


def checked(file: File, names: Sequence[str], only: Sequence[str] | None, *, as_json: bool) -> int:
    """Print what every pipeline's check finds; the exit code for all."""
    with kept(file) as store:
        documents = []
        for name in names:
            with look(file, name, store) as at:
                documents.append(_pipeline(at, only))
                if not as_json:
                    print("\n".join(_lines(documents[-1], _signs())), flush=True)
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
    found["exit_code"] = worst(seen.problem.exit_code for seen in at.streams if seen.problem)
    return found


def _stream(at: Look, seen: Seen, standing: Mapping[str, Any] | None) -> dict[str, Any]:
    info, content = seen.info, seen.content
    remarks: list[dict[str, str]] = []
    if content is not None:
        try:
            sides = (
                ("source", at.source.explain(info.name, content)),
                ("sink", at.sink.explain(info, content)),
            )
            remarks = [{"side": side, "kind": each.kind, "text": each.text} for side, said in sides for each in said]
        except StreamRefused as refused:
            # A filter, say, which is understood only where there is something to read, or here.
            seen.problem = refused.at(pipeline=at.pipeline, stream=info.name)
    stands = next((each for each in standing["streams"] if each["stream"] == info.name), None) if standing else None
    return {
        "stream": info.name,
        "how": how(info),
        "kind": info.kind.value,
        "order": list(info.order),
        "primary_key": list(info.primary_key),
        "columns": [column["name"] for column in reads(content)] if content is not None else [],
        "drift": seen.drift,
        "skipped": info.skipped,
        "slice": stands["slice"] if stands else 0,
        "at": stands["at"] if stands else None,
        "open": stands["open"] if stands else None,
        "problem": told(seen.problem, at.file),
        "remarks": remarks,
    }


# ---------------------------------------------------------------- text


def _signs() -> Mapping[str, str]:
    try:
        "".join(SIGNS.values()).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return PLAIN
    return SIGNS


def _lines(document: Mapping[str, Any], signs: Mapping[str, str]) -> list[str]:
    sides = f"{document['source']} to {document['sink']}"
    lines = [f"{document['pipeline']}: {sides}; {holder_words(document['held_by'])}"]
    if document["problem"]:
        return [*lines, *_problem(document["problem"], "", signs)]
    shared = _shared(document["streams"])
    for stream in document["streams"]:
        lines += [f"  {line}" for line in _stream_lines(stream, shared, signs)]
    for names, remarks in _grouped(shared).items():
        lines.append(f"  For {', '.join(names)}:")
        lines += [f"      {signs[kind]} {text}" for kind, text in remarks]
    refused = sum(stream["problem"] is not None for stream in document["streams"])
    synced = sum(stream["skipped"] is None for stream in document["streams"]) - refused
    summary = f"{count(synced, 'stream')} can be synced"
    lines.append(f"{document['pipeline']}: {summary}" + (f", {refused} cannot" if refused else ""))
    return lines


def _shared(streams: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """What is said of so many streams that it is said once, at the end; with their names."""
    found: dict[tuple[str, str], list[str]] = {}
    for stream in streams:
        for remark in stream["remarks"]:
            found.setdefault((remark["kind"], remark["text"]), []).append(stream["stream"])
    return {remark: names for remark, names in found.items() if len(names) >= MANY}


def _grouped(shared: Mapping[tuple[str, str], list[str]]) -> dict[tuple[str, ...], list[tuple[str, str]]]:
    """By the streams that they are said of."""
    found: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for remark, names in shared.items():
        found.setdefault(tuple(names), []).append(remark)
    return found


def _stream_lines(
    stream: Mapping[str, Any], shared: Mapping[tuple[str, str], list[str]], signs: Mapping[str, str]
) -> list[str]:
    name = stream["stream"]
    if stream["skipped"] is not None:
        return [f"{signs['advice']} {name}: skipped: {stream['skipped']}"]
    if stream["problem"]:
        return _problem(stream["problem"], f"{name}: ", signs)
    begun = f"; {stream['at']}" if stream["slice"] else "; not begun"
    lines = [f"{signs['guarantee']} {name}: {stream['how']}, {count(len(stream['columns']), 'column')}{begun}"]
    if stream["open"]:
        lines.append(f"    slice {stream['open']['slice']} is open; the next run finishes it first")
    lines += [f"    {signs['gap']} {line}" for line in stream["drift"]]
    own = [(each["kind"], each["text"]) for each in stream["remarks"]]
    return [*lines, *(f"    {signs[kind]} {text}" for kind, text in own if (kind, text) not in shared)]


def _problem(problem: Mapping[str, Any], where: str, signs: Mapping[str, str]) -> list[str]:
    return [f"{signs['broken']} {where}{problem['what']}", f"    Next: {problem['next_step']}"]

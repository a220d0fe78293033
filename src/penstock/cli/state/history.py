"""`penstock state history`: every change of a mark, newest first. Reads the store only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, rows
from penstock.cli.shared.report import reported

#: changes of a stream that are listed unless told otherwise
MOST = 20

if TYPE_CHECKING:
    from penstock.cli.shared.standing import Words
    from penstock.config import File as PipelineFile
    from penstock.ports import Change, Store


def history(
    file: File,
    stream: Streams = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--most", metavar="N", parser=rows, help="At most this many changes of each stream; 20 by default."
        ),
    ] = None,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Every change of a stream's mark, newest first: its version, when, why, and where it led.

    \b
    Examples:
      penstock state history shop.yaml --stream orders
      penstock state history shop.yaml --stream orders --most 200 --json

    `penstock state undo FILE --stream S --to VERSION` goes back to where the mark was at a version.
    Reads the store only: no Spark, no connection to a source or sink.
    """
    with reported(file, as_json=as_json):
        _history(file, set_ or [], [pipeline] if pipeline else None, stream, most or MOST, as_json)


def _history(
    path: str, sets: list[str], pipelines: list[str] | None, streams: list[str] | None, most: int, as_json: bool
) -> None:
    import json
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.shared.pipelines import in_words
    from penstock.config.choosing import chosen

    file = wiring.load(path, sets)
    names = chosen(file, pipelines)
    missing = wiring.missing_store(file)
    documents: list[dict[str, Any]] = []
    if missing is None:
        with closing(wiring.open_store(file)) as store:
            for name in names:
                with closing(wiring.build_source(file, name)) as source:
                    known = [*file.pipelines[name].source_streams, *sorted(store.streams(name))]
                    documents.append(_document(store, name, dict.fromkeys(known), streams, most, in_words(source)))
        _check(documents, streams)
    if as_json:
        print(json.dumps({"file": file.path, "pipelines": documents}, ensure_ascii=False, indent=2))
    elif missing is not None:
        print(f"There is no store at {missing}: nothing has run here yet.")
    else:
        print("\n".join(line for document in documents for line in _lines(document, file)))


def _document(
    store: Store, pipeline: str, known: dict[str, None], streams: Sequence[str] | None, most: int, words: Words
) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "known": list(known),
        "streams": [
            {
                "stream": stream,
                "changes": [_change(change, words) for change in store.history(pipeline, stream, most=most)],
            }
            for stream in known
            if not streams or stream in streams
        ],
    }


def _change(change: Change, words: Words) -> dict[str, Any]:
    from penstock.core.messages import stamp

    position = change.position
    mark = position.mark if position else None
    return {
        "version": change.version,
        "at": stamp(change.at),
        "reason": change.reason,
        "slice": position.number if position else 0,
        "slice_id": position.id if position else None,
        "rows": change.rows,
        "outcome": change.outcome.document() if change.outcome else None,
        "mark_in_words": words(mark.text if mark else None),
        "mark": mark.document if mark else None,
        "run": change.run,
    }


def _check(documents: Sequence[dict[str, Any]], streams: Sequence[str] | None) -> None:
    """InputError if a stream was named that no pipeline has; what is known besides is not printed."""
    from penstock.core.names import suggest
    from penstock.errors import UNTOUCHED, InputError

    known = [stream for document in documents for stream in document.pop("known")]
    for stream in streams or ():
        if stream not in known:
            raise InputError(
                f"no stream '{stream}' is known; {suggest(stream, known, 'streams')}",
                safe=UNTOUCHED,
                next_step="`penstock status FILE` lists them",
            )


def _lines(document: dict[str, Any], file: PipelineFile) -> list[str]:
    from penstock.cli.shared.render import became_of, count
    from penstock.errors import filled

    lines = []
    for stream in document["streams"]:
        changes = stream["changes"]
        lines.append(f"{document['pipeline']}/{stream['stream']}:" + ("" if changes else " not changed yet"))
        for change in changes:
            when = change["at"][:19].replace("T", " ")
            moved = f", {count(change['rows'], 'row')}" if change["rows"] else ""
            moved += f" ({became_of(change['outcome'])})" if change["outcome"] else ""
            run = f"; run {change['run'][:8]}" if change["run"] else ""
            lines.append(
                f"  version {change['version']}  {when} UTC  {change['reason']}, slice {change['slice']}{moved}; "
                f"mark: {change['mark_in_words']}{run}"
            )
    again = next((stream for stream in document["streams"] if len(stream["changes"]) > 1), None)
    if again is not None:
        name, before = again["stream"], again["changes"][1]["version"]
        command = f"penstock state undo FILE --stream {name} --to {before}"
        pipeline = document["pipeline"] if len(file.pipelines) > 1 else None
        lines.append(f"To go back to where a mark was: {filled(command, file.path, pipeline, name)}")
    return lines or [f"{document['pipeline']}: no stream is known yet"]

"""`penstock state history`: lists every change of a mark, newest first. Reads only the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, rows

#: changes listed per stream by default
DEFAULT_CHANGES = 20

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from penstock.cli.shared.status_document import DescribeMark
    from penstock.config import File as PipelineFile
    from penstock.ports import Change, Store


def history(
    file: File,
    stream: Streams = None,
    most: Annotated[
        int | None,
        typer.Option("--most", metavar="N", parser=rows, help="Maximum number of changes per stream. Default: 20."),
    ] = None,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """List every change of a stream's mark, newest first: version, time, reason and new mark.

    \b
    Examples:
      penstock state history shop.yaml --stream orders
      penstock state history shop.yaml --stream orders --most 200 --json

    `penstock state undo FILE --stream S --to VERSION` returns the mark to a version.
    Reads only the store: no Spark, no connection to a source or sink.
    """
    with report_errors(file, as_json=as_json):
        from contextlib import closing

        from penstock import wiring
        from penstock.cli.shared.engine_run import mark_describer
        from penstock.cli.shared.status_output import print_from_store

        def make(file: PipelineFile, name: str, store: Store, _now: datetime) -> dict[str, Any]:
            known = dict.fromkeys([*file.pipelines[name].source_streams, *sorted(store.streams(name))])
            # Changes are read only for the streams that are printed.
            read = {
                each: store.history(name, each, most=most or DEFAULT_CHANGES)
                for each in known
                if not stream or each in stream
            }
            with closing(wiring.build_source(file, name)) as source:
                describe = mark_describer(source)
                streams = [
                    {"stream": each, "changes": [_change(change, describe) for change in read.get(each, ())]}
                    for each in known
                ]
            return {"pipeline": name, "streams": streams}

        names = [pipeline] if pipeline else None
        print_from_store(file, names, make, _lines, sets=set_, streams=stream, as_json=as_json)


def _change(change: Change, describe_mark: DescribeMark) -> dict[str, Any]:
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
        "mark_in_words": describe_mark(mark.text if mark else None),
        "mark": mark.document if mark else None,
        "run": change.run,
    }


def _lines(document: Mapping[str, Any], _now: datetime, file: PipelineFile) -> list[str]:
    from penstock.cli.shared.render import count, describe_outcome
    from penstock.errors import filled

    lines = []
    for stream in document["streams"]:
        changes = stream["changes"]
        lines.append(f"{document['pipeline']}/{stream['stream']}:" + ("" if changes else " no changes yet"))
        for change in changes:
            when = change["at"][:19].replace("T", " ")
            moved = f", {count(change['rows'], 'row')}" if change["rows"] else ""
            moved += f" ({describe_outcome(change['outcome'])})" if change["outcome"] else ""
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
        lines.append(f"To go back to an earlier mark: {filled(command, file.path, pipeline, name)}")
    return lines or [f"{document['pipeline']}: no streams yet"]

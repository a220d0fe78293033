"""`penstock quarantine list`: lists quarantined rows, each with its key and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipelines, Set, Streams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.config import File as PipelineFile
    from penstock.ports import Quarantined


def list_(
    file: File,
    pipelines: Pipelines = None,
    stream: Streams = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most this many rows.")] = 20,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """List quarantined rows: number, slice, key, and the reason why the sink rejected the row.

    \b
    Examples:
      penstock quarantine list shop.yaml
      penstock quarantine list shop.yaml shop --stream orders --limit 100

    With `bad_rows: quarantine` on a stream of a postgres sink, rejected rows are stored in the transaction of their
    slice. The column `row` of the table penstock_sink.quarantine holds each row as it was delivered.

    With `refused: quarantine` or `oversized: quarantine` on an http sink, rows are stored beside the pipeline's spools.

    With `mode: state`, ops that were not understood are listed. They are not replayed: a later op may have written the
    same field. `penstock loads start` reads the rows again instead, after all changes so far. Those of a lake table
    stay in the list; those of a Postgres table can be dropped.
    """
    with report_errors(file, as_json=as_json):
        from contextlib import closing

        from penstock import wiring
        from penstock.cli.quarantine.sinks import require_quarantine, require_rows, sink_of
        from penstock.cli.shared.render import print_json
        from penstock.config.pipeline_choice import choose_pipelines

        loaded = wiring.load(file, set_ or ())
        documents: list[dict[str, Any]] = []
        for name in choose_pipelines(loaded, pipelines):
            sides = require_quarantine(loaded, name) if pipelines else sink_of(loaded, name)
            if sides is None:
                continue
            with closing(sides[0]):
                require_rows(loaded, name, sides[1], stream)
                counts, rows = sides[1].quarantined(stream or (), limit=limit)
            documents.append(_document(name, counts, rows))
            if not as_json:
                print("\n".join([*_lines(name, counts, rows), *_next_steps(loaded, name, counts)]))
        if as_json:
            print_json({"file": loaded.path, "pipelines": documents}, indent=2)
        elif not documents:
            print("No pipeline of this file has a sink with a quarantine.")


def _document(pipeline: str, counts: Mapping[str, int], rows: Sequence[Quarantined]) -> dict[str, Any]:
    import json

    from penstock.core.messages import stamp

    listed = [
        {
            "id": row.id,
            "stream": row.stream,
            "slice": row.number,
            "key": json.loads(row.key),
            "code": row.code,
            "reason": row.reason,
            "at": stamp(row.at),
        }
        for row in rows
    ]
    streams = [{"stream": stream, "quarantined": number} for stream, number in counts.items()]
    return {"pipeline": pipeline, "streams": streams, "rows": listed}


def _lines(pipeline: str, counts: Mapping[str, int], rows: Sequence[Quarantined]) -> list[str]:
    import json

    from penstock.cli.shared.render import count

    if not counts:
        return [f"{pipeline}: no rows in quarantine"]
    lines = [f"{pipeline}/{stream}: {count(number, 'row')} in quarantine" for stream, number in counts.items()]
    for row in rows:
        key = ", ".join(f"{name}={value}" for name, value in json.loads(row.key).items()) or "no key"
        lines.append(f"  {row.id}  {row.stream}, slice {row.number}, {row.at:%Y-%m-%d %H:%M:%S}Z  {key}: {row.reason}")
    more = sum(counts.values()) - len(rows)
    if more > 0:
        lines.append(f"  … and {count(more, 'row')} more (--limit)")
    return lines


def _next_steps(file: PipelineFile, pipeline: str, counts: Mapping[str, int]) -> list[str]:
    """What helps. Ops are not replayed, because later ones may have written the same fields."""
    chosen = file.pipelines[pipeline]
    of_ops = [name for name in counts if getattr(chosen.sink_streams.get(name), "mode", None) == "state"]
    lines = []
    if len(of_ops) < len(counts):
        only = "".join(f" --stream {name}" for name in counts if name not in of_ops) if of_ops else ""
        lines.append(f"Next: fix the cause, then penstock quarantine replay {file.path} --pipeline {pipeline}{only}")
    if not of_ops:
        return lines
    streams = "".join(f" --stream {name}" for name in of_ops)
    if chosen.source_type == "outbox":
        load = f"penstock loads start {file.path} --pipeline {pipeline}{streams}"
    else:
        load = f"penstock loads start{streams} for the pipeline that reads the outbox"
    lines.append(f"Next: fix the cause. Ops are not replayed; {load} reads the tables again")
    return lines

"""`penstock quarantine replay`: writes quarantined rows again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.quarantine.sinks import Ids
from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams


def replay(
    file: File,
    stream: Streams = None,
    id_: Ids = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Overwrite a row with the same key even if it is unknown which one is newer."),
    ] = False,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Write quarantined rows again, under the stream's current rules.

    \b
    Examples:
      penstock quarantine replay shop.yaml
      penstock quarantine replay shop.yaml --stream orders --id 17 --id 18

    Each stream's rows are written in one transaction. Rows that the table still rejects stay, with the new reason.
    With `newer_than`, a row that is no longer the newest is skipped as stale. Without it, a row whose key exists in
    the table stays, except with --overwrite: a newer version may have been delivered meanwhile.

    The exit code is 1 if rows stay in quarantine.
    """
    with report_errors(file, as_json=as_json):
        raise typer.Exit(_replay(file, set_ or [], stream or [], id_ or [], overwrite, pipeline, as_json))


def _replay(
    path: str,
    sets: list[str],
    streams: list[str],
    ids: list[int],
    overwrite: bool,
    pipeline: str | None,
    as_json: bool,
) -> int:
    import json
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.quarantine.sinks import require_quarantine, require_streams
    from penstock.cli.shared.render import count, describe_outcome
    from penstock.config.pipeline_choice import choose_pipeline

    file = wiring.load(path, sets)
    name = choose_pipeline(file, pipeline, "penstock quarantine replay FILE")
    sink, quarantine = require_quarantine(file, name)
    stay = 0
    results: list[dict[str, Any]] = []
    with closing(sink), closing(wiring.build_source(file, name)) as source:
        require_streams(file, name, quarantine, streams)
        source.connect()
        sink.begin_run([info for info in source.catalog() if info.skipped is None])
        for stream in streams or list(quarantine.quarantined([], limit=0)[0]):
            outcome = quarantine.replay(stream, ids, overwrite=overwrite)
            stay += outcome.quarantined
            results.append({"stream": stream, "outcome": outcome.document()})
            if not as_json:
                counted = {**outcome.document(), "quarantined": 0}
                done = describe_outcome(counted) or "no rows written"
                left = f"; {count(outcome.quarantined, 'row')} still in quarantine" if outcome.quarantined else ""
                print(f"{name}/{stream}: {done}{left}", flush=True)
    if as_json:
        print(json.dumps({"file": file.path, "pipeline": name, "streams": results, "left": stay}, ensure_ascii=False))
    elif not results:
        print(f"{name}: no rows in quarantine")
    elif stay:
        print(f"Next: see the reasons: penstock quarantine list {file.path} {name}")
    return 1 if stay else 0

"""`penstock quarantine drop`: deletes quarantined rows."""

from __future__ import annotations

import typer

from penstock.cli.quarantine.sinks import Ids
from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, Yes


def drop(
    file: File,
    stream: Streams = None,
    id_: Ids = None,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete quarantined rows. They are not in the table, and the source does not send them again by itself.

    \b
    Examples:
      penstock quarantine drop shop.yaml --stream orders
      penstock quarantine drop shop.yaml --id 17 --yes

    Prints how many rows will be deleted and asks for confirmation.
    """
    with report_errors(file, as_json=as_json):
        raise typer.Exit(_drop(file, set_ or [], stream or [], id_ or [], pipeline, yes, as_json))


def _drop(
    path: str, sets: list[str], streams: list[str], ids: list[int], pipeline: str | None, yes: bool, as_json: bool
) -> int:
    import json
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.quarantine.sinks import require_quarantine, require_streams
    from penstock.cli.shared.confirm import confirm
    from penstock.cli.shared.render import count
    from penstock.config.pipeline_choice import choose_pipeline

    file = wiring.load(path, sets)
    name = choose_pipeline(file, pipeline, "penstock quarantine drop FILE")
    sink, quarantine = require_quarantine(file, name)
    with closing(sink):
        require_streams(file, name, quarantine, streams)
        counts, _ = quarantine.quarantined(streams, limit=0)
        if counts:
            which = f"rows {', '.join(map(str, ids))}" if ids else "all of these rows"
            lines = [f"{name}/{stream}: {count(rows, 'row')} in quarantine" for stream, rows in counts.items()]
            confirm([*lines, f"Permanently deleted: {which}."], yes=yes, to_stderr=as_json)
        dropped = quarantine.drop(streams, ids) if counts else 0
    if as_json:
        print(json.dumps({"file": file.path, "pipeline": name, "dropped": dropped}, ensure_ascii=False))
    else:
        print(f"{name}: {count(dropped, 'row')} dropped from the quarantine")
    return 0

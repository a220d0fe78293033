"""`penstock quarantine replay`: try rows again, as they came."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.quarantine.sinks import Ids
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams
from penstock.cli.shared.report import reported


def replay(
    file: File,
    stream: Streams = None,
    id_: Ids = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Write over a row of the same key even if nothing says which is newer."),
    ] = False,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Try rows of the quarantine again, under the stream's rules as they are now.

    \b
    Examples:
      penstock quarantine replay shop.yaml
      penstock quarantine replay shop.yaml --stream orders --id 17 --id 18

    Each stream's rows go in with one transaction; those that the table still does not take stay, with the new
    reason. With `newer_than` a row that is no longer the newest is skipped as stale. Without it a row whose key
    the table has stays aside, unless --overwrite: a newer version of it may have come meanwhile.

    The exit code is 1 if rows stay.
    """
    with reported(file, as_json=as_json):
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
    from penstock.cli.quarantine.sinks import must_be_streams, must_have
    from penstock.cli.shared.render import became_of, count
    from penstock.config.choosing import only

    file = wiring.load(path, sets)
    name = only(file, pipeline, "penstock quarantine replay FILE")
    sink, aside = must_have(file, name)
    stay = 0
    became: list[dict[str, Any]] = []
    with closing(sink), closing(wiring.build_source(file, name)) as source:
        must_be_streams(file, name, aside, streams)
        source.connect()
        sink.begin_run([info for info in source.catalog() if info.skipped is None])
        for stream in streams or list(aside.quarantined([], limit=0)[0]):
            outcome = aside.replay(stream, ids, overwrite=overwrite)
            stay += outcome.quarantined
            became.append({"stream": stream, "outcome": outcome.document()})
            if not as_json:
                counted = {**outcome.document(), "quarantined": 0}
                told = became_of(counted) or "nothing went in"
                left = f"; {count(outcome.quarantined, 'row')} still in quarantine" if outcome.quarantined else ""
                print(f"{name}/{stream}: {told}{left}", flush=True)
    if as_json:
        print(json.dumps({"file": file.path, "pipeline": name, "streams": became, "left": stay}, ensure_ascii=False))
    elif not became:
        print(f"{name}: nothing is in quarantine")
    elif stay:
        print(f"Next: see why they stay: penstock quarantine list {file.path} {name}")
    return 1 if stay else 0

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

    Rows that are rejected again stay, with the new reason. Into Postgres, each stream's rows are written in one
    transaction. With `newer_than`, a row that is no longer the newest is skipped as stale. Without it, a row whose
    key exists in the table stays, except with --overwrite: a newer version may have been delivered meanwhile.
    Over HTTP, rows that came in one request are sent in one request.

    The exit code is 1 if rows stay in quarantine.
    """
    with report_errors(file, as_json=as_json):
        from contextlib import closing

        from penstock import wiring
        from penstock.cli.quarantine.sinks import open_quarantine
        from penstock.cli.shared.render import count, describe_outcome, print_json

        results: list[dict[str, Any]] = []
        command = "penstock quarantine replay FILE"
        with (
            open_quarantine(file, set_ or (), pipeline, command, stream) as (loaded, name, sink, quarantine),
            closing(wiring.build_source(loaded, name)) as source,
        ):
            source.connect()
            sink.begin_run([info for info in source.catalog() if info.skipped is None])
            for each in stream or list(quarantine.quarantined([], limit=0)[0]):
                outcome = quarantine.replay(each, id_ or (), overwrite=overwrite)
                results.append({"stream": each, "outcome": outcome.document()})
                if not as_json:
                    done = describe_outcome({**outcome.document(), "quarantined": 0}) or "no rows written"
                    left = f"; {count(outcome.quarantined, 'row')} still in quarantine" if outcome.quarantined else ""
                    print(f"{name}/{each}: {done}{left}", flush=True)
        stay = sum(result["outcome"].get("quarantined", 0) for result in results)
        if as_json:
            print_json({"file": loaded.path, "pipeline": name, "streams": results, "left": stay})
        elif not results:
            print(f"{name}: no rows in quarantine")
        elif stay:
            print(f"Next: see the reasons: penstock quarantine list {loaded.path} {name}")
        raise typer.Exit(1 if stay else 0)

"""`penstock state recover`: rebuilds the store from the sink."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, Yes


def recover(
    file: File,
    stream: Streams = None,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
    drop_sealed: Annotated[
        bool,
        typer.Option(
            "--drop-sealed",
            help="Drop a slice whose staged rows are gone although the sink may have received pieces of it.",
        ),
    ] = False,
) -> None:
    """Rebuild the store from the slices that the sink holds, after either was lost or restored.

    \b
    Examples:
      penstock state recover shop.yaml
      penstock state recover shop.yaml --stream orders --yes

    Slices that are incomplete in the sink are withdrawn, newest first; the next run delivers them again.
    """
    with report_errors(file, as_json=as_json):
        raise typer.Exit(_recover(file, set_ or [], stream, pipeline, yes, as_json, drop_sealed))


def _recover(
    path: str,
    sets: list[str],
    streams: list[str] | None,
    pipeline: str | None,
    yes: bool,
    as_json: bool,
    drop_sealed: bool,
) -> int:
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.shared.confirm import confirm
    from penstock.cli.shared.engine_run import run_engine
    from penstock.cli.shared.signals import Signals
    from penstock.config.pipeline_choice import choose_pipeline

    file = wiring.load(path, sets)
    name = choose_pipeline(file, pipeline, "penstock state recover FILE")
    which = ", ".join(streams) if streams else "every stream"
    lines = [
        f"{name}: the marks of {which} are set to what the sink holds; open slices are dropped.",
        "Slices that are incomplete in the sink are withdrawn, newest first.",
    ]
    confirm(lines, yes=yes, to_stderr=as_json)
    with closing(wiring.open_store(file)) as store, Signals() as signals:
        return run_engine(
            file,
            name,
            store,
            signals,
            lambda engine: engine.recover(streams, drop_sealed=drop_sealed),
            as_json=as_json,
            summary=False,
        )

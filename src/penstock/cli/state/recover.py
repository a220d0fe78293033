"""`penstock state recover`: rebuild the store from what the sink holds."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, Yes
from penstock.cli.shared.report import reported


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
    """Rebuild the store from what the sink holds, after one of the two was lost or restored.

    \b
    Examples:
      penstock state recover shop.yaml
      penstock state recover shop.yaml --stream orders --yes

    Slices that the sink cannot make whole are withdrawn, last first; the next run delivers them again.
    """
    with reported(file, as_json=as_json):
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
    from penstock.cli.shared.asking import agreed
    from penstock.cli.shared.pipelines import drive
    from penstock.cli.shared.signals import Signals
    from penstock.config.choosing import only

    file = wiring.load(path, sets)
    name = only(file, pipeline, "penstock state recover FILE")
    which = ", ".join(streams) if streams else "every stream"
    told = [
        f"{name}: the store's marks of {which} become what the sink holds; open slices are forgotten.",
        "Slices that the sink cannot make whole are withdrawn from it, last first.",
    ]
    agreed(told, yes=yes, to_stderr=as_json)
    with closing(wiring.open_store(file)) as store, Signals() as signals:
        return drive(
            file,
            name,
            store,
            signals,
            lambda engine: engine.recover(streams, drop_sealed=drop_sealed),
            as_json=as_json,
            closing=False,
        )

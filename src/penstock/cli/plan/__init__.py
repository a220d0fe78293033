"""`penstock plan`: what a run would do next. A dry run: no lease, no Spark, nothing is written."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipelines, Set, Streams


def plan(
    file: File,
    pipelines: Pipelines = None,
    stream: Streams = None,
    slices: Annotated[
        int, typer.Option("--slices", metavar="N", min=1, help="Show this many slices of each stream.")
    ] = 3,
    sets: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """A dry run: the next slices of each stream, with rows and bytes to expect, and what is left in all.

    \b
    Examples:
      penstock plan shop.yaml
      penstock plan shop.yaml shop --stream orders --slices 10
      penstock plan shop.yaml --json | jq '.pipelines[].streams[] | {stream, left}'

    Numbers with ~ are estimates. Writes nothing and starts no Spark; rows that arrive before the run are not in it.
    The exit code is that of the run to come, as with `check`.
    """
    with report_errors(file, as_json=as_json):
        from penstock import wiring
        from penstock.cli.plan.report import planned
        from penstock.config.choosing import chosen

        loaded = wiring.load(file, sets or ())
        raise typer.Exit(planned(loaded, chosen(loaded, pipelines), stream, slices, as_json=as_json))

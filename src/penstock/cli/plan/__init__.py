"""`penstock plan`: a dry run that shows the next slices. Takes no lease, starts no Spark and writes nothing."""

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
        int, typer.Option("--slices", metavar="N", min=1, help="Number of slices to show per stream.")
    ] = 3,
    sets: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Dry run: show the next slices of each stream with expected rows and bytes, and the rows left in total.

    \b
    Examples:
      penstock plan shop.yaml
      penstock plan shop.yaml shop --stream orders --slices 10
      penstock plan shop.yaml --json | jq '.pipelines[].streams[] | {stream, left}'

    Numbers with ~ are estimates. Rows that arrive before the next run are not included. Writes nothing and starts no
    Spark. The exit code is the one a run would end with, as with `check`.
    """
    with report_errors(file, as_json=as_json):
        from penstock.cli.plan.report import print_plan

        raise typer.Exit(print_plan(file, sets, pipelines, stream, slices, as_json=as_json))

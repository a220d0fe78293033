"""`penstock runs`: shows the runs of the last days. Reads only the store."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipelines, Set, rows

#: days shown by default
DEFAULT_DAYS = 14


def runs(
    file: File,
    pipelines: Pipelines = None,
    days: Annotated[
        int | None,
        typer.Option("--days", metavar="N", parser=rows, help="Number of days up to today. Default: 14."),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="Print one line per run instead of one per day.")] = False,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Show the runs of the last days: how many, how many rows they delivered, and which failed.

    \b
    Examples:
      penstock runs shop.yaml
      penstock runs shop.yaml --days 60
      penstock runs shop.yaml shop --each --days 1
      penstock runs shop.yaml --json | jq '.pipelines[].days[] | select(.failed > 0)'

    A bar compares the rows of each day with the busiest day; a cross marks failures. A day without any run is listed
    too, so that a scheduler that has stopped is visible. Days are in UTC.

    With --each, prints one line for each run that moved rows or failed, and for each reset, rewind, undo, recover,
    repair and migrate. Runs that found nothing new are only counted. Reads only the store: no Spark, no connection to
    a source or sink.
    """
    with report_errors(file, as_json=as_json):
        from penstock.cli.runs.report import print_runs

        print_runs(file, set_, pipelines, days or DEFAULT_DAYS, each=each, as_json=as_json)

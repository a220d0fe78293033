"""`penstock runs`: the runs of the last days as a picture. Reads the store only."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipelines, Set, rows

#: days that are shown unless asked otherwise
DAYS = 14


def runs(
    file: File,
    pipelines: Pipelines = None,
    days: Annotated[
        int | None,
        typer.Option("--days", metavar="N", parser=rows, help="This many days up to today; 14 by default."),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="A line for each run instead of one for each day.")] = False,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """The runs of the last days: how many, what they delivered, and which failed.

    \b
    Examples:
      penstock runs shop.yaml
      penstock runs shop.yaml --days 60
      penstock runs shop.yaml shop --each --days 1
      penstock runs shop.yaml --json | jq '.pipelines[].days[] | select(.failed > 0)'

    A bar shows the rows of each day beside those of the busiest one, and a cross each day with failures. A day without
    any run is shown as such: nobody has started one. Days are in UTC.

    With --each a line for each run that moved rows or failed, and for each reset, rewind, undo, recover and migrate.
    Runs that found nothing new are only counted. Reads the store only: no Spark, no connection to a source or sink.
    """
    with report_errors(file, as_json=as_json):
        from penstock.cli.runs.report import print_runs

        print_runs(file, set_ or [], pipelines, days or DAYS, each=each, as_json=as_json)

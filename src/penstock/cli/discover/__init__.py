"""`penstock discover`: lists the tables of a pipeline's source. Connects only to the source, and reads no rows."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Set


def discover(
    file: File,
    pipeline: Annotated[
        str | None,
        typer.Argument(metavar="PIPELINE", help="The pipeline. Required if the file has several.", show_default=False),
    ] = None,
    columns: Annotated[bool, typer.Option("--columns", help="Also show columns and types.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Also show the reasons for each proposal.")] = False,
    sets: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """List the source's tables with rows, size and key, whether each is synced, and the proposed way to read it.

    \b
    Examples:
      penstock discover shop.yaml
      penstock discover shop.yaml shop --columns --why
      penstock discover shop.yaml --json | jq '.streams[] | select(.synced | not) | .stream'

    Rows and sizes come from the source's statistics. Reads no rows and writes nothing.
    """
    with report_errors(file, as_json=as_json):
        from penstock import wiring
        from penstock.cli.discover.report import print_tables
        from penstock.config.pipeline_choice import choose_pipeline

        loaded = wiring.load(file, sets or ())
        name = choose_pipeline(loaded, pipeline, "penstock discover FILE")
        print_tables(loaded, name, columns=columns, why=why, as_json=as_json)

"""`penstock discover`: what a pipeline's source has. Connects to the source only, and reads no rows."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Set


def discover(
    file: File,
    pipeline: Annotated[
        str | None,
        typer.Argument(metavar="PIPELINE", help="The pipeline; needed if the file has several.", show_default=False),
    ] = None,
    columns: Annotated[bool, typer.Option("--columns", help="Also columns and types.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Also the reasons for each proposal.")] = False,
    sets: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """What the source has: every stream with rows, size and key, whether it is synced, and how it would best be read.

    \b
    Examples:
      penstock discover shop.yaml
      penstock discover shop.yaml shop --columns --why
      penstock discover shop.yaml --json | jq '.streams[] | select(.synced | not) | .stream'

    Rows and sizes are the source's own statistics. Reads no rows and writes nothing.
    """
    with report_errors(file, as_json=as_json):
        from penstock import wiring
        from penstock.cli.discover.report import discovered
        from penstock.config.choosing import only

        loaded = wiring.load(file, sets or ())
        name = only(loaded, pipeline, "penstock discover FILE")
        discovered(loaded, name, columns=columns, why=why, as_json=as_json)

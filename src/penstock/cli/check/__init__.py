"""`penstock check`: validates a pipeline and shows its guarantees. Starts no Spark and writes nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipelines, Set, Streams


def check(
    file: File,
    pipelines: Pipelines = None,
    stream: Streams = None,
    sets: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also show guarantees that hold, and advice.")] = False,
) -> None:
    """Connect to source and sink, validate every stream, and show how it is synced and with which guarantee.

    \b
    Examples:
      penstock check shop.yaml
      penstock check shop.yaml shop --stream orders --verbose
      penstock check shop.yaml --json | jq '.pipelines[].streams[].remarks'

    Lists every problem of every stream, and every gap: what the stream cannot see or guarantee. With --verbose, also
    lists the guarantees that hold, and advice. SQL to run is printed on separate lines, once. Writes nothing and
    starts no Spark. The exit code is the one a run would end with: 0, 2 if something is refused, 1 if a stream has
    stopped, 3 if source or sink cannot be reached.
    """
    with report_errors(file, as_json=as_json):
        from penstock.cli.check.report import print_check

        raise typer.Exit(print_check(file, sets, pipelines, stream, as_json=as_json, verbose=verbose))

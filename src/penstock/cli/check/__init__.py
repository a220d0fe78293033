"""`penstock check`: whether a run would work, and what it would give. Starts no Spark and writes nothing."""

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
    verbose: Annotated[bool, typer.Option("--verbose", help="Also what holds, and what would be better.")] = False,
) -> None:
    """Connect both sides, validate every stream, and say what will be synced, how, and with which guarantee.

    \b
    Examples:
      penstock check shop.yaml
      penstock check shop.yaml shop --stream orders --verbose
      penstock check shop.yaml --json | jq '.pipelines[].streams[].remarks'

    Lists every problem of every stream, and what a stream cannot see or promise; with --verbose also what holds and
    what would be better. SQL to run stands on lines of its own, once. Writes nothing and starts no Spark. The exit
    code is that of the run to come: 0, 2 if something is refused, 1 if a stream has stopped, 3 if a side cannot be
    reached.
    """
    with report_errors(file, as_json=as_json):
        from penstock import wiring
        from penstock.cli.check.report import checked
        from penstock.config.choosing import chosen

        loaded = wiring.load(file, sets or ())
        raise typer.Exit(checked(loaded, chosen(loaded, pipelines), stream, as_json=as_json, verbose=verbose))

"""`penstock verify`: compares source and sink, lists what differs, and repairs it through the gate."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipelines, Set, Streams, Yes, duration, rows


def verify(
    file: File,
    pipelines: Pipelines = None,
    stream: Streams = None,
    max_rows: Annotated[
        int | None,
        typer.Option(
            "--max-rows",
            metavar="N",
            parser=rows,
            help="Compare at most N rows of each stream.",
            show_default=False,
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="TIME",
            parser=duration,
            help="Stop comparing a stream after this time, such as 90s, 10m or 1h30m.",
            show_default=False,
        ),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Deliver what differs: missing and stale rows, and deletes.")
    ] = False,
    delete_extra: Annotated[
        bool,
        typer.Option(
            "--delete-extra",
            help="With --repair: also delete extra rows that may have come by another program.",
        ),
    ] = False,
    sets: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Compare the source and the sink of each stream, and list the keys of rows that differ.

    \b
    Examples:
      penstock verify shop.yaml
      penstock verify shop.yaml shop --stream orders --time-limit 10m
      penstock verify shop.yaml --json | jq '.pipelines[].streams[].differences'
      penstock verify shop.yaml --stream orders --repair
      penstock verify shop.yaml --repair --delete-extra --yes

    A row is missing in the sink, stale (its values differ), or extra (deleted at the source). Rows that are not
    delivered yet, and rows in quarantine, are no differences. Counts and checksums of key ranges are compared first;
    only ranges that differ are compared row by row. Without --repair, nothing is written and no lease is taken. A
    lake is compared by Spark. A list of an API is fetched again, by windows of time: --max-rows and --time-limit bound
    what that costs.

    With --repair, prints what will be delivered and asks for confirmation. The rows are read from the source again and
    go through the gate. Extra rows are deleted as `deletes` of the sink says, if the sink has no rows of others. Into a
    sink that appends, only missing rows are delivered.

    The exit code is 5 if rows differ, and still differ after a repair; 2 if a stream named with --stream, or every
    stream, cannot be compared.
    """
    with report_errors(file, as_json=as_json):
        from penstock.cli.verify.report import Request, verify_file
        from penstock.core.limits import Limits

        request = Request(
            streams=stream,
            limits=Limits(max_rows, time_limit),
            repair=repair,
            delete_extra=delete_extra,
            yes=yes,
            as_json=as_json,
        )
        raise typer.Exit(verify_file(file, sets, pipelines, request))

"""`penstock init`: a pipeline file from what a database has."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors


def init(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="postgresql://user:password@host/database; without it, what --url-env holds.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The pipeline file to write.")
    ] = "penstock.yaml",
    pipeline: Annotated[
        str | None,
        typer.Option("--pipeline", "-p", metavar="P", help="The pipeline's name; default: the database's."),
    ] = None,
    schema: Annotated[
        str, typer.Option("--schema", metavar="S", help="The schema whose tables are synced.")
    ] = "public",
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="PATTERN", help="Only tables of this name, as in sales_*; may be repeated."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="PATTERN", help="No tables of this name, as in tmp_*; may be repeated."),
    ] = None,
    views: Annotated[
        bool, typer.Option("--views", help="Sync views, materialized views and foreign tables too.")
    ] = False,
    sink: Annotated[
        str, typer.Option("--sink", metavar="TYPE", help="Where rows go: files, lake or postgres.")
    ] = "files",
    directory: Annotated[
        str | None, typer.Option("--directory", metavar="DIR", help="files: the output folder; default: out.")
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", metavar="DIR", help="lake: a folder or s3://bucket/path; default: lake."),
    ] = None,
    sink_url_env: Annotated[
        str | None,
        typer.Option(
            "--sink-url-env",
            metavar="NAME",
            help="postgres: the environment variable that holds the URL of the sink; default: SINK_URL.",
        ),
    ] = None,
    sink_schema: Annotated[
        str | None,
        typer.Option(
            "--sink-schema", metavar="S", help="postgres: the schema of the tables; default: as at the source."
        ),
    ] = None,
    url_env: Annotated[
        str,
        typer.Option("--url-env", metavar="NAME", help="The environment variable that the file takes the URL from."),
    ] = "DATABASE_URL",
    stdout: Annotated[bool, typer.Option("--stdout", help="Print the file instead of writing it.")] = False,
    add: Annotated[
        bool, typer.Option("--add", help="Add the tables that a file lacks; everything else in it stays as it is.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Look at a database and write a pipeline file for it: every table, how it is best read, and why.

    \b
    Examples:
      penstock init postgresql://ann:secret@db.example.org/shop
      penstock init --schema sales --exclude 'tmp_*' --sink lake      (the URL is in DATABASE_URL)
      penstock init --url-env SHOP_DB --output shop.yaml --stdout
      penstock init --sink postgres --sink-url-env COPY_DB --sink-schema copies
      penstock init --add --output shop.yaml --include 'sales_*'

    The file never holds the URL: it takes it from an environment variable. Proposals are made from keys, indexes,
    triggers and statistics; the reasons stand in the file as comments. Nothing is read from the tables, and nothing
    is written but the file.

    With --add the file is there already: streams are added for tables that none of its streams reads, by the source and
    sink that the file has; of the other options only --pipeline, --include, --exclude, --views and --stdout count.
    """
    with report_errors(output):
        from penstock.cli.init.proposal import Wanted, propose

        if add:
            from penstock.cli.init.add import add as act
        else:
            act = propose
        act(
            Wanted(
                url=url,
                url_env=url_env,
                output=output,
                pipeline=pipeline,
                schema=schema,
                include=tuple(include or ()),
                exclude=tuple(exclude or ()),
                views=views,
                sink=sink,
                directory=directory,
                warehouse=warehouse,
                sink_url_env=sink_url_env,
                sink_schema=sink_schema,
                stdout=stdout,
                force=force,
            )
        )

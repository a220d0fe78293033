"""`penstock init`: writes a pipeline file for the tables of a database or the lists of an API."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors


def init(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL",
            help="postgresql://user:password@host/database, or the address of an API. Default: the variable named by "
            "--url-env.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="TYPE",
            help="postgres, rest, stripe, or another type that lists its streams. Default: by the URL.",
        ),
    ] = None,
    path: Annotated[
        list[str] | None,
        typer.Option("--path", metavar="PATH", help="rest: the path of a list, below the address. May be repeated."),
    ] = None,
    auth: Annotated[
        list[str] | None,
        typer.Option(
            "--auth",
            metavar="KIND=NAME",
            help="rest, stripe: the environment variable with a secret: bearer=NAME, basic=NAME, header:HEADER=NAME or "
            "query:PARAMETER=NAME. May be repeated.",
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The pipeline file to write.")
    ] = "penstock.yaml",
    pipeline: Annotated[
        str | None,
        typer.Option("--pipeline", "-p", metavar="P", help="The pipeline's name. Default: the database's name."),
    ] = None,
    schema: Annotated[str, typer.Option("--schema", metavar="S", help="The schema whose tables to sync.")] = "public",
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="PATTERN", help="Only tables that match, such as sales_*. May be repeated."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="PATTERN", help="No tables that match, such as tmp_*. May be repeated."),
    ] = None,
    views: Annotated[
        bool, typer.Option("--views", help="Also sync views, materialized views and foreign tables.")
    ] = False,
    sink: Annotated[
        str, typer.Option("--sink", metavar="TYPE", help="The type of the sink: files, lake or postgres.")
    ] = "files",
    directory: Annotated[
        str | None, typer.Option("--directory", metavar="DIR", help="files: the output folder. Default: out.")
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", metavar="DIR", help="lake: a folder or s3://bucket/path. Default: lake."),
    ] = None,
    sink_url_env: Annotated[
        str | None,
        typer.Option(
            "--sink-url-env",
            metavar="NAME",
            help="postgres: the environment variable with the sink's URL. Default: SINK_URL.",
        ),
    ] = None,
    sink_schema: Annotated[
        str | None,
        typer.Option(
            "--sink-schema", metavar="S", help="postgres: the schema of the tables. Default: the source's schema."
        ),
    ] = None,
    url_env: Annotated[
        str,
        typer.Option("--url-env", metavar="NAME", help="The environment variable from which the file takes the URL."),
    ] = "DATABASE_URL",
    stdout: Annotated[bool, typer.Option("--stdout", help="Print the file instead of writing it.")] = False,
    add: Annotated[
        bool, typer.Option("--add", help="Add missing tables to an existing file, and change nothing else in it.")
    ] = False,
    outbox: Annotated[
        bool,
        typer.Option("--outbox", help="Propose one entity, put together from the tables that foreign keys relate."),
    ] = False,
    entity: Annotated[
        str | None,
        typer.Option(
            "--entity",
            metavar="TABLE",
            help="--outbox: the table whose rows are the entities. Default: the one with most relations.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Inspect a database or an API and write a pipeline file: every stream, how to read it, and the reasons.

    \b
    Examples:
      penstock init postgresql://ann:secret@db.example.org/shop
      penstock init --schema sales --exclude 'tmp_*' --sink lake      (the URL is in DATABASE_URL)
      penstock init --url-env SHOP_DB --output shop.yaml --stdout
      penstock init --sink postgres --sink-url-env COPY_DB --sink-schema copies
      penstock init --add --output shop.yaml --include 'sales_*'
      penstock init https://api.example.com/v1 --path charges --path 'customers/{id}/cards' --path customers
      penstock init --source stripe --sink lake      (the key is in STRIPE_API_KEY)
      penstock init --outbox --entity images --sink lake --output images.yaml

    The file never contains the URL: it takes it from an environment variable. Proposals are based on keys, indexes,
    triggers and statistics; comments in the file give the reasons. No table is read, and only the file is written.

    Of an API, the first pages of each list are read: the records, the id, the columns with their types, the paging and
    the filter by time are guessed from them, and the API is asked whether paging and filter are right.

    --outbox proposes a stream of an outbox: an entity, the tables with one row or several values for each, and those
    that it refers to. It reads the catalog alone, and refuses what `penstock triggers plan` would refuse.

    --add extends an existing file: it adds a stream for each table that no stream reads, with the file's own source and
    sink. Of the other options, only --pipeline, --include, --exclude, --views and --stdout apply.
    """
    given = dict(locals())
    with report_errors(output):
        from penstock.cli.init.proposal import InitOptions, propose

        with_add, with_outbox, entity = given.pop("add"), given.pop("outbox"), given.pop("entity")
        if with_outbox and with_add:
            raise typer.BadParameter("--add and --outbox do not go together")
        if entity is not None and not with_outbox:
            raise typer.BadParameter("--entity belongs to --outbox")
        if with_outbox:
            from penstock.cli.init.outbox import propose_outbox

            propose_outbox(InitOptions(**given), entity)
            return
        if with_add:
            from penstock.cli.init.add import add as act
        else:
            act = propose
        act(InitOptions(**given))

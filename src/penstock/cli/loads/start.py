"""`penstock loads start`: loads tables again with the next run, from the database or from the files of a dump."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.loads.choice import Ask, Tables, ask, names
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, Yes, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli.shared.outbox_place import Place
    from penstock.sources.outbox.load.declared import Load


def _time(text: str) -> datetime:
    """A time with its zone."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise typer.BadParameter(f"'{text}' is not a time with its zone, such as 2026-11-19T22:00:00Z")
    return time


def start(
    file: File,
    pipeline: Pipeline = None,
    stream: Streams = None,
    table: Tables = None,
    await_files: Annotated[
        bool,
        typer.Option("--await-files", help="Let the streams wait for a dump that is made after this command."),
    ] = False,
    from_: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILES",
            help="Load these CSV or Parquet files instead: a path or a quoted pattern. May be repeated.",
            show_default=False,
        ),
    ] = None,
    made_at: Annotated[
        datetime | None,
        typer.Option(
            "--made-at",
            metavar="TIME",
            help="With --from: when the dump was begun, such as 2026-11-19T22:00:00Z.",
            parser=_time,
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", help="With --from: a trial with the first N rows.", parser=rows, show_default=False
        ),
    ] = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Load tables again with the next run, in every stream that they feed. An open slice is finished first.

    \b
    Examples:
      penstock loads start images.yaml --table public.image_tags
      penstock loads start images.yaml --stream images --yes
      penstock loads start images.yaml --table images --await-files
      penstock loads start images.yaml --table images --from 'dump/*.parquet' --made-at 2026-11-19T22:00:00Z

    The fields of a table are cleared when its load begins, so values that the table no longer has go. With the table
    that creates, that is every entity, and all tables of its stream are loaded. Asks for confirmation. The request is
    kept beside the outbox: it outlives a kill, and a second one changes nothing for the worse.

    A dump that somebody made elsewhere stands in for a table in two steps. `--await-files` lets the streams wait:
    they read changes up to now, and keep later ones in the outbox. Then make the dump, in one statement or one
    snapshot, and name its files with `--from`; `--made-at` says when it was begun. An older dump is refused, because
    changes made in between would be missing. The files must stay where all workers see them until they are loaded.
    """
    _check_options(from_, made_at, limit, await_files=await_files)

    def request(place: Place) -> Ask:
        from penstock.sources.outbox.load.requests import declaration_of, start_loads
        from penstock.sources.outbox.load.waiting import hold_streams, load_from

        declared = {name: declaration_of(loads) for name, loads in place.loads(asked=False).items()}
        if await_files:
            return lambda server, name, loads: print_horizon(hold_streams(server, name, loads, declared))
        if from_ is None or made_at is None:
            return start_loads
        from penstock.sources.outbox.load.dump_files import find_files

        paths = find_files(from_)
        return lambda server, name, loads: load_from(server, name, loads, declared, paths, made_at, limit)

    def print_horizon(horizon: datetime) -> None:
        if not as_json:
            print(f"They wait since {horizon.isoformat(sep=' ')}. Make the dump now, then name its files with --from")

    def describe(_: str, loads: Sequence[Load]) -> str:
        if await_files:
            return f"{names(loads)}: later changes stay in the outbox until the files of a dump are loaded"
        return describe_start(loads)

    ask(
        "start",
        request,
        describe,
        file=file,
        pipeline=pipeline,
        stream=stream,
        table=table,
        sets=set_,
        yes=yes,
        as_json=as_json,
        done="the next run waits for files" if await_files else "the next run loads them",
    )


def _check_options(
    from_: Sequence[str] | None, made_at: datetime | None, limit: int | None, *, await_files: bool
) -> None:
    if await_files and from_:
        raise typer.BadParameter("--await-files comes first, then the dump is made, then --from names its files")
    if from_ and made_at is None:
        raise typer.BadParameter("--from needs --made-at: the time at which the dump was begun")
    if not from_ and (made_at is not None or limit is not None):
        raise typer.BadParameter("--made-at and --limit belong to --from")


def describe_start(loads: Sequence[Load]) -> str:
    """What happens to a stream."""
    if any(each.creates for each in loads):
        return "all tables are loaded again; until then, its entities are missing"
    return f"{names(loads)}: loaded again; until then, their fields are missing"

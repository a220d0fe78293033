"""`penstock loads start`: loads tables again with the next run."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.outbox_place import outbox_place
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Yes

Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table", "-t", metavar="T", help="Only this table. May be repeated. Default: all.", show_default=False
    ),
]


def start(
    file: File,
    pipeline: Pipeline = None,
    table: Tables = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Load tables again with the next run, in every stream that they feed. An open slice is finished first.

    \b
    Examples:
      penstock loads start images.yaml --table public.image_tags
      penstock loads start images.yaml --yes

    The fields of a table are cleared when its load begins, so values that the table no longer has go. With the table
    that creates, that is every entity, and all tables of its stream are loaded. Asks for confirmation. The request is
    kept beside the outbox: it outlives a kill, and a second one changes nothing for the worse.
    """
    with outbox_place(file, set_, pipeline, "penstock loads start FILE", as_json=as_json) as place:
        from penstock.cli.shared.confirm import confirm
        from penstock.cli.shared.render import print_json
        from penstock.sources.outbox.load.requests import choose_loads, request_loads

        chosen = choose_loads(place.loads(), place.options.default_schema, table or ())
        lines = []
        for stream, loads in chosen.items():
            several = ", ".join(each.name for each in loads)
            what = f"{stream}: {several}: loaded again; until then, their fields are missing"
            if any(each.creates for each in loads):
                what = f"{stream}: all tables are loaded again; until then, its entities are missing"
            lines.append(what)
        confirm(lines, yes=yes, to_stderr=as_json)
        request_loads(place.server, place.pipeline, chosen)
        if as_json:
            started = {stream: [each.name for each in loads] for stream, loads in chosen.items()}
            print_json({"pipeline": place.pipeline, "started": started}, indent=2)
            return
        print(f"{place.pipeline}: the next run loads them")

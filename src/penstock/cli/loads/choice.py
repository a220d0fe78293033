"""Which loads a command is about: options that several commands share, and the text of the confirmation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.outbox_place import outbox_place

if TYPE_CHECKING:
    from penstock.cli.shared.outbox_place import Place
    from penstock.sources.outbox.load.declared import Load
    from penstock.sources.outbox.server import Server

Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table", "-t", metavar="T", help="Only this table. May be repeated. Default: all.", show_default=False
    ),
]
#: the key of the answer in JSON, by command
DONE = {"start": "started", "drop": "dropped", "clear": "cleared"}
#: carries out a request about some loads, by stream
Ask = Callable[["Server", str, "Mapping[str, Sequence[Load]]"], None]


def ask(
    command: str,
    request: Callable[[Place], Ask],
    describe: Callable[[str, Sequence[Load]], str],
    *,
    file: str,
    pipeline: str | None,
    stream: Sequence[str] | None,
    table: Sequence[str] | None,
    sets: Sequence[str] | None,
    yes: bool,
    as_json: bool,
    done: str,
) -> None:
    """Choose loads, confirm, and record a request. `done`: what a person reads afterwards."""
    with outbox_place(file, sets, pipeline, f"penstock loads {command} FILE", as_json=as_json) as place:
        from penstock.cli.shared.confirm import confirm
        from penstock.cli.shared.render import print_json
        from penstock.config.pipeline_choice import require_streams
        from penstock.sources.outbox.load.requests import choose_loads

        require_streams(stream or (), place.streams)
        chosen = choose_loads(place.loads(), place.options.default_schema, table or (), stream or ())
        confirm([f"{name}: {describe(name, loads)}" for name, loads in chosen.items()], yes=yes, to_stderr=as_json)
        request(place)(place.server, place.pipeline, chosen)
        if as_json:
            named = {name: [each.name for each in loads] for name, loads in chosen.items()}
            print_json({"pipeline": place.pipeline, DONE[command]: named}, indent=2)
            return
        print(f"{place.pipeline}: {done}")


def names(loads: Sequence[Load]) -> str:
    return ", ".join(each.name for each in loads)

"""`penstock loads start`: loads tables again with the next run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.loads.choice import Ask, Tables, ask, names
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, Yes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sources.outbox.load.declared import Load


def start(
    file: File,
    pipeline: Pipeline = None,
    stream: Streams = None,
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
      penstock loads start images.yaml --stream images --yes

    The fields of a table are cleared when its load begins, so values that the table no longer has go. With the table
    that creates, that is every entity, and all tables of its stream are loaded. Asks for confirmation. The request is
    kept beside the outbox: it outlives a kill, and a second one changes nothing for the worse.
    """

    def request() -> Ask:
        from penstock.sources.outbox.load.requests import start_loads

        return start_loads

    ask(
        "start",
        request,
        describe_start,
        file=file,
        pipeline=pipeline,
        stream=stream,
        table=table,
        sets=set_,
        yes=yes,
        as_json=as_json,
        done="the next run loads them",
    )


def describe_start(_: str, loads: Sequence[Load]) -> str:
    if any(each.creates for each in loads):
        return "all tables are loaded again; until then, its entities are missing"
    return f"{names(loads)}: loaded again; until then, their fields are missing"

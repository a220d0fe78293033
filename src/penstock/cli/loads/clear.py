"""`penstock loads clear`: voids what tables have said, and loads nothing in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.loads.choice import Ask, Tables, ask, names
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, Yes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli.shared.outbox_place import Place
    from penstock.sources.outbox.load.declared import Load


def clear(
    file: File,
    pipeline: Pipeline = None,
    stream: Streams = None,
    table: Tables = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Remove what tables have delivered, by loads and by changes, and load nothing in its place.

    \b
    Examples:
      penstock loads clear images.yaml --table image_tags
      penstock loads clear images.yaml --stream images --yes

    The next run delivers a `clear` of the tables' fields. With the table that creates, that is every entity, and the
    other tables of its stream are loaded again. Useful after a trial with a few rows of a dump. Later changes go on to
    arrive, and `penstock loads start` loads the rows again. An open slice is finished first. Asks for confirmation.
    """

    def describe(_: str, loads: Sequence[Load]) -> str:
        what = "all of its entities are" if any(each.creates for each in loads) else "their fields are"
        return f"{names(loads)}: {what} removed, and not loaded again"

    def request(_: Place) -> Ask:
        from penstock.sources.outbox.load.requests import clear_loads

        return clear_loads

    ask(
        "clear",
        request,
        describe,
        file=file,
        pipeline=pipeline,
        stream=stream,
        table=table,
        sets=set_,
        yes=yes,
        as_json=as_json,
        done="the next run clears them",
    )

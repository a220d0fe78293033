"""`penstock loads drop`: gives up loads; what has been loaded stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.loads.choice import Ask, Tables, ask, names
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, Yes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli.shared.outbox_place import Place
    from penstock.sources.outbox.load.declared import Load


def drop(
    file: File,
    pipeline: Pipeline = None,
    stream: Streams = None,
    table: Tables = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Give up loads that are not complete: no more rows are read. An open slice is finished first.

    \b
    Examples:
      penstock loads drop images.yaml --table image_tags
      penstock loads drop images.yaml --stream images --yes

    What has been loaded stays, and changes go on: of rows that were not loaded, only changes arrive. A complete load
    stays complete, and a table that waits for files waits no longer. `penstock loads start` loads a dropped table
    again. Asks for confirmation.
    """

    def describe(_: str, loads: Sequence[Load]) -> str:
        return f"{names(loads)}: no more rows are loaded; what has been loaded stays"

    def request(_: Place) -> Ask:
        from penstock.sources.outbox.load.requests import drop_loads

        return drop_loads

    ask(
        "drop",
        request,
        describe,
        file=file,
        pipeline=pipeline,
        stream=stream,
        table=table,
        sets=set_,
        yes=yes,
        as_json=as_json,
        done="the next run goes on without them",
    )

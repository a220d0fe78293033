"""`penstock state migrate`: begin streams again in another form, keeping what was delivered."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Yes
from penstock.cli.shared.report import reported


def migrate(
    file: File,
    stream: Annotated[
        list[str],
        typer.Option("--stream", "-s", metavar="S", help="The stream; may be repeated.", show_default=False),
    ],
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Begin streams again in a new place after a change that cannot be made in place; the old rows are kept.

    \b
    Examples:
      penstock state migrate shop.yaml --stream orders
      penstock state migrate shop.yaml --pipeline shop --stream orders --stream customers --yes

    For a full refresh that gets a cursor, a cursor stream that becomes a full refresh, another cursor, `mode: append`
    that becomes `merge`, or another key. First change the pipeline file, then migrate, then run.

    Everything that the stream has delivered is moved out of the way: files to `_before/` in the output folder, a table
    to another name. The next run reads the stream from the beginning into the old place. Says first what will be
    moved, and asks.
    """
    with reported(file, as_json=as_json):
        raise typer.Exit(_migrate(file, set_ or [], stream, pipeline, yes, as_json))


def _migrate(path: str, sets: list[str], streams: list[str], pipeline: str | None, yes: bool, as_json: bool) -> int:
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.shared.asking import agreed
    from penstock.cli.shared.pipelines import drive
    from penstock.cli.shared.render import count
    from penstock.cli.shared.signals import Signals
    from penstock.cli.state.again import must_be_known, must_have_store
    from penstock.config.choosing import only

    file = wiring.load(path, sets)
    name = only(file, pipeline, f"penstock state migrate FILE --stream {streams[0]}")
    must_have_store(file, "migrate")
    chosen = list(dict.fromkeys(streams))
    with closing(wiring.open_store(file)) as store:
        lines = []
        for stream in chosen:
            state = must_be_known(file, store, name, stream)
            lines.append(f"{name}/{stream}: {count(state.rows, 'row')} delivered so far are moved out of the way.")
        lines += ["The next run reads all of it from the beginning. Nothing is deleted.", "An open slice is dropped."]
        agreed(lines, yes=yes, to_stderr=as_json)
        with Signals() as signals:
            return drive(
                file, name, store, signals, lambda engine: engine.migrate(chosen), as_json=as_json, closing=False
            )

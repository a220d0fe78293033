"""`penstock state undo`: take back the last change of a mark, or go back to a version of its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Yes
from penstock.cli.shared.report import reported

if TYPE_CHECKING:
    from penstock.ports import Source, Store, StreamState


def undo(
    file: File,
    stream: Annotated[str, typer.Option("--stream", "-s", metavar="S", help="The stream.", show_default=False)],
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="VERSION",
            help="A version of `penstock state history`; by default the one before the last change.",
            show_default=False,
        ),
    ] = None,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take back the last change of a mark: it goes to where it was before, or at a version of its history.

    \b
    Examples:
      penstock state undo shop.yaml --stream orders
      penstock state undo shop.yaml --stream orders --to 12
      penstock state undo shop.yaml --pipeline shop --stream orders --to 12 --yes

    Says first what it brings, and asks. Undo of a slice: its rows are delivered again. Undo of a reset or a
    rewind: the stream goes on where it stood, and nothing is read again. Undo of an undo is a redo; with --to
    the command can be repeated without one. An open slice is finished first, and is then the last change.

    Refused are the beginning (see `penstock state reset`), a mark that the source would not take any more,
    versions whose slices the sink has lost, and streams that are read whole in every run.
    """
    with reported(file, as_json=as_json):
        raise typer.Exit(_undo(file, set_ or [], stream, to, pipeline, yes, as_json))


def _undo(
    path: str, sets: list[str], stream: str, to: int | None, pipeline: str | None, yes: bool, as_json: bool
) -> int:
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.shared.asking import agreed
    from penstock.cli.shared.pipelines import drive
    from penstock.cli.shared.signals import Signals
    from penstock.cli.state.again import Reached, held_twice, must_be_known, must_have_store
    from penstock.config.choosing import only
    from penstock.engine import undoing

    file = wiring.load(path, sets)
    name = only(file, pipeline, f"penstock state undo FILE --stream {stream}")
    must_have_store(file, "undo")
    with closing(wiring.open_store(file)) as store:
        state = must_be_known(file, store, name, stream)
        version = undoing.default_version(state) if to is None else to
        with closing(wiring.build_source(file, name)) as source:
            again, what = _told(store, source, name, stream, state, version)
            info = Reached(source).info(stream) if again else None
        told = [f"{name}/{stream}: {what}", "What was delivered before stays in the sink."]
        if info is not None:
            told.append(held_twice(file, name, info))
        agreed(told, yes=yes, to_stderr=as_json)
        with Signals() as signals:
            return drive(
                file,
                name,
                store,
                signals,
                lambda engine: engine.undo([stream], version),
                as_json=as_json,
                closing=False,
            )


def _told(
    store: Store, source: Source, pipeline: str, stream: str, state: StreamState, version: int | None
) -> tuple[bool, str]:
    """Whether rows come again, and what the undo brings, as far as one can tell without the lease."""
    from penstock.cli.shared.render import count
    from penstock.engine import undoing
    from penstock.errors import StreamRefused

    if version is None:
        assert state.intent is not None
        return False, f"the undo that was begun before is finished: it leads to {source.describe(state.intent.upto)}"
    changes = undoing.foresee(undoing.changes_to(store, pipeline, stream, version, state), state)
    try:
        to = undoing.find_position(changes, version, stream)
        source.connect()
        source.accept(stream, to, source.content(stream))
    except StreamRefused as error:
        raise error.at(pipeline=pipeline, stream=stream) from None
    here, there = (source.describe(position.mark if position else None) for position in (changes[0].position, to))
    way = undoing.find_route(changes, to)
    told = f"{_first(state)}from {here!r} to {there!r}, where it was at version {version}"
    if way.back and way.rows == 0 and here == there:
        return False, f"{_first(state)}it is where it was at version {version}: {there}"
    if way.back is False:
        return False, f"{told}; nothing is read again: everything up to there was delivered"
    if way.rows is None or state.intent:
        return True, f"{told}; the next run delivers again what lies after it"
    return True, f"{told}; the next run delivers again the {count(way.rows, 'row')} that came since then"


def _first(state: StreamState) -> str:
    opened = f"slice {state.intent.number} is open and is finished first; " if state.intent else ""
    return opened + ("a reset is wanted and is carried out first; " if state.reset_wanted else "")

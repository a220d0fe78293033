"""`penstock state reset`: read streams again from the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Yes
from penstock.cli.shared.report import reported

if TYPE_CHECKING:
    from penstock.config import File as PipelineFile
    from penstock.ports import Store


def reset(
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
    """Set streams back: the next run reads them from the beginning and delivers all of it again.

    \b
    Examples:
      penstock state reset shop.yaml --stream orders
      penstock state reset shop.yaml --pipeline shop --stream orders --stream customers --yes

    Says first what will be read again, and asks. An open slice is finished before the reset.
    `penstock state undo` takes it back, as long as it is the last change.
    """
    with reported(file, as_json=as_json):
        raise typer.Exit(_reset(file, set_ or [], stream, pipeline, yes, as_json))


def _reset(path: str, sets: list[str], streams: list[str], pipeline: str | None, yes: bool, as_json: bool) -> int:
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.shared.asking import agreed
    from penstock.cli.shared.pipelines import drive
    from penstock.cli.shared.signals import Signals
    from penstock.cli.state.again import must_have_store
    from penstock.config.choosing import only

    file = wiring.load(path, sets)
    name = only(file, pipeline, f"penstock state reset FILE --stream {streams[0]}")
    must_have_store(file, "reset")
    chosen = list(dict.fromkeys(streams))
    with closing(wiring.open_store(file)) as store:
        agreed(_told(file, store, name, chosen), yes=yes, to_stderr=as_json)
        with Signals() as signals:
            return drive(
                file,
                name,
                store,
                signals,
                lambda engine: engine.reset(chosen),
                as_json=as_json,
                closing=False,
            )


def _told(file: PipelineFile, store: Store, name: str, streams: Sequence[str]) -> list[str]:
    """What a reset would do to each stream, and what the sink will hold then."""
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.shared.render import count
    from penstock.cli.state.again import Reached, held_twice, must_be_known

    states = {stream: must_be_known(file, store, name, stream) for stream in streams}
    told, after = [], []
    with closing(wiring.build_source(file, name)) as source:
        reached = Reached(source)
        for stream, state in states.items():
            at = source.describe(state.last.mark if state.last else None)
            told.append(f"{name}/{stream}: {count(state.rows, 'row')} delivered so far; mark: {at}.")
            told.append(f"  All is read again from the beginning: {reached.left(stream, None)}.")
            after.append(held_twice(file, name, reached.info(stream)))
    return [*told, "What was delivered before stays in the sink.", *dict.fromkeys(after)]

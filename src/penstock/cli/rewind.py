"""`penstock rewind`: go back to a place and read on from there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, Yes
from penstock.cli.shared.report import reported

if TYPE_CHECKING:
    from penstock.ports import Source, StreamState


def rewind(
    file: File,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="A value of the cursor, or a number or a time of a lake table.",
            show_default=False,
        ),
    ],
    stream: Streams = None,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Go back to a place: the next run reads on from there and delivers what comes after it again.

    \b
    Examples:
      penstock rewind shop.yaml --stream orders --to '2026-11-15 06:00:00+00'
      penstock rewind export.yaml --to 120000
      penstock rewind export.yaml --to 2026-11-15T06:00:00Z --stream orders
      penstock rewind export.yaml --pipeline export --to 0 --yes

    Says first from where to where, and asks. An open slice is finished before the rewind. The place is a number or a
    time of a lake table, or a value of a Postgres stream's cursor. A stream that is read whole has none, and is
    refused. It leads back; forward only over rows of a lake table that are gone, to the number that the error prints.
    """
    with reported(file, as_json=as_json):
        raise typer.Exit(_rewind(file, set_ or [], to, stream, pipeline, yes, as_json))


def _rewind(
    path: str, sets: list[str], to: str, streams: list[str] | None, pipeline: str | None, yes: bool, as_json: bool
) -> int:
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.shared.asking import agreed
    from penstock.cli.shared.pipelines import drive
    from penstock.cli.shared.signals import Signals
    from penstock.config.choosing import only
    from penstock.errors import UNTOUCHED, InputError, StreamRefused

    file = wiring.load(path, sets)
    name = only(file, pipeline, f"penstock rewind FILE --to {to}")
    if missing := wiring.missing_store(file):
        raise InputError(
            f"there is no store at {missing}: nothing has run here yet, so there is nothing to rewind",
            safe=UNTOUCHED,
            next_step="penstock run FILE",
        )
    with closing(wiring.open_store(file)) as store:
        with closing(wiring.build_source(file, name)) as source:
            source.connect()
            chosen = _chosen(source, streams, name)
            told = []
            for stream in chosen:
                try:
                    what = _told(source, stream, store.state(name, stream), to)
                except StreamRefused as error:
                    raise error.at(pipeline=name, stream=stream) from None
                told.append(f"{name}/{stream}: {what}")
        told.append("What was delivered before stays in the sink.")
        agreed(told, yes=yes, to_stderr=as_json)
        with Signals() as signals:
            return drive(
                file,
                name,
                store,
                signals,
                lambda engine: engine.rewind(chosen, to),
                as_json=as_json,
                closing=False,
            )


def _chosen(source: Source, streams: Sequence[str] | None, pipeline: str) -> list[str]:
    """The streams that were named; all that are synced if none was."""
    from penstock.config.mistakes import suggest
    from penstock.errors import UNTOUCHED, InputError

    known = [info.name for info in source.catalog() if info.skipped is None]
    for stream in streams or ():
        if stream not in known:
            raise InputError(
                f"there is no stream '{stream}'; {suggest(stream, known, 'streams')}",
                safe=UNTOUCHED,
                next_step="`penstock status FILE` lists them",
                pipeline=pipeline,
            )
    return list(dict.fromkeys(streams)) if streams else known


def _told(source: Source, stream: str, state: StreamState, to: str) -> str:
    """What a rewind would do to a stream, as far as one can tell without the lease; refused as it would be."""
    from penstock.ports import find_mark

    # Where it will stand once an open slice is finished.
    last = state.intent.position if state.intent else state.last
    first = f"slice {state.intent.number} is open and is finished first; " if state.intent else ""
    if state.reset_wanted:
        return f"{first}a reset is wanted and is carried out; then there is nothing to rewind"
    if last is None or last.mark is None:
        return f"{first}it is at its beginning: there is nothing to rewind"
    content = source.content(stream)
    source.accept(stream, last, content)
    mark = find_mark(source, stream, content, last, to)
    if mark == last.mark:
        return f"{first}it is at that place: {source.describe(mark)}"
    return f"{first}from {source.describe(last.mark)} to {source.describe(mark)}; the next run reads on from there"

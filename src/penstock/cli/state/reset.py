"""`penstock state reset`: read streams again from the beginning."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.parameters import File, Json, Pipeline, Yes
from penstock.cli.report import reported


def reset(
    file: File,
    stream: Annotated[
        list[str],
        typer.Option("--stream", "-s", metavar="S", help="The stream; may be repeated.", show_default=False),
    ],
    pipeline: Pipeline = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Set streams back: the next run reads them from the beginning and delivers all of it again.

    \b
    Examples:
      penstock state reset shop.yaml --stream orders
      penstock state reset shop.yaml --pipeline shop --stream orders --stream customers --yes

    Says first what will be read again, and asks. An open slice is finished before the reset.
    """
    with reported(file, as_json=as_json):
        raise typer.Exit(_reset(file, stream, pipeline, yes, as_json))


def _reset(path: str, streams: list[str], pipeline: str | None, yes: bool, as_json: bool) -> int:
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.asking import agreed
    from penstock.cli.pipelines import UNTOUCHED, drive, only
    from penstock.cli.render import count
    from penstock.cli.signals import Signals
    from penstock.cli.stored import document_of
    from penstock.config.mistakes import suggest
    from penstock.errors import InputError

    file = wiring.load(path)
    name = only(file, pipeline, f"penstock state reset FILE --pipeline P --stream {streams[0]}")
    if missing := wiring.missing_store(file):
        raise InputError(
            f"there is no store at {missing}: nothing has run here yet, so there is nothing to reset",
            safe=UNTOUCHED,
            next_step="penstock run FILE",
        )
    with closing(wiring.open_store(file)) as store:
        known = document_of(file, name, store, wiring.SystemClock().now())["streams"]
        told = []
        for stream in dict.fromkeys(streams):
            if stream not in known:
                raise InputError(
                    f"no stream '{stream}' is known; {suggest(stream, known, 'streams')}",
                    safe=UNTOUCHED,
                    next_step="`penstock status FILE` lists them",
                    pipeline=name,
                )
            at, rows = known[stream]["at"], known[stream]["rows"]
            told.append(f"{name}/{stream}: {count(rows, 'row')} delivered so far; mark: {at}. All is read again.")
        told.append("What was delivered before stays in the sink.")
        agreed(told, yes=yes, to_stderr=as_json)
        with Signals() as signals:
            return drive(
                file,
                name,
                store,
                signals,
                lambda engine: engine.reset(list(dict.fromkeys(streams))),
                as_json=as_json,
                closing=False,
            )

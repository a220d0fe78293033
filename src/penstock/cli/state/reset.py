"""`penstock state reset`: the next run reads streams from the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Yes

if TYPE_CHECKING:
    from penstock.config import File as PipelineFile
    from penstock.ports import Store


def reset(
    file: File,
    stream: Annotated[
        list[str],
        typer.Option("--stream", "-s", metavar="S", help="The stream. May be repeated.", show_default=False),
    ],
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Reset streams: the next run reads them from the beginning and delivers every row again.

    \b
    Examples:
      penstock state reset shop.yaml --stream orders
      penstock state reset shop.yaml --pipeline shop --stream orders --stream customers --yes

    Prints what will be read again and asks for confirmation. An open slice is finished before the reset.
    `penstock state undo` reverts the reset while it is the last change.
    """
    with report_errors(file, as_json=as_json):
        raise typer.Exit(_reset(file, set_ or [], stream, pipeline, yes, as_json))


def _reset(path: str, sets: list[str], streams: list[str], pipeline: str | None, yes: bool, as_json: bool) -> int:
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.shared.confirm import confirm
    from penstock.cli.shared.engine_run import run_engine
    from penstock.cli.shared.signals import Signals
    from penstock.cli.state.preview import require_store
    from penstock.config.pipeline_choice import choose_pipeline

    file = wiring.load(path, sets)
    name = choose_pipeline(file, pipeline, f"penstock state reset FILE --stream {streams[0]}")
    require_store(file, "reset")
    chosen = list(dict.fromkeys(streams))
    with closing(wiring.open_store(file)) as store:
        confirm(_preview(file, store, name, chosen), yes=yes, to_stderr=as_json)
        with Signals() as signals:
            return run_engine(
                file,
                name,
                store,
                signals,
                lambda engine: engine.reset(chosen),
                as_json=as_json,
                summary=False,
            )


def _preview(file: PipelineFile, store: Store, name: str, streams: Sequence[str]) -> list[str]:
    """What a reset does to each stream, and what the sink will hold afterwards."""
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.shared.render import count
    from penstock.cli.state.preview import SourcePreview, describe_duplicates, require_stream

    states = {stream: require_stream(file, store, name, stream) for stream in streams}
    lines, duplicates = [], []
    with closing(wiring.build_source(file, name)) as source:
        preview = SourcePreview(source)
        for stream, state in states.items():
            at = source.describe(state.last.mark if state.last else None)
            lines.append(f"{name}/{stream}: {count(state.rows, 'row')} delivered so far; mark: {at}.")
            lines.append(f"  Every row is read again from the beginning: {preview.left(stream, None)}.")
            duplicates.append(describe_duplicates(file, name, preview.info(stream)))
    return [*lines, "Rows delivered so far stay in the sink.", *dict.fromkeys(duplicates)]

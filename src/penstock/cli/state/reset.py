"""`penstock state reset`: the next run reads streams from the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, RequiredStreams, Set, Yes

if TYPE_CHECKING:
    from penstock.cli.shared.operation import Prepared
    from penstock.config import File as PipelineFile
    from penstock.ports import Store


def reset(
    file: File,
    stream: RequiredStreams,
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
        from penstock.cli.shared.operation import existing_store, operate

        def prepare(file: PipelineFile, name: str) -> Prepared:
            chosen = list(dict.fromkeys(stream))
            with existing_store(file, "reset") as store:
                return _preview(file, store, name, chosen), lambda engine: engine.reset(chosen)

        command = f"penstock state reset FILE --stream {stream[0]}"
        raise typer.Exit(operate(file, set_ or (), pipeline, command, prepare, yes=yes, as_json=as_json))


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

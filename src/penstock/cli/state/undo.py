"""`penstock state undo`: undoes the last change of a mark, or returns to a version of its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Yes

if TYPE_CHECKING:
    from penstock.cli.shared.operation import Prepared
    from penstock.config import File as PipelineFile
    from penstock.ports import Source, Store, StreamState


def undo(
    file: File,
    stream: Annotated[str, typer.Option("--stream", "-s", metavar="S", help="The stream.", show_default=False)],
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="VERSION",
            help="A version from `penstock state history`. Default: the one before the last change.",
            show_default=False,
        ),
    ] = None,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Undo the last change of a mark, or return the mark to a version of its history.

    \b
    Examples:
      penstock state undo shop.yaml --stream orders
      penstock state undo shop.yaml --stream orders --to 12
      penstock state undo shop.yaml --pipeline shop --stream orders --to 12 --yes

    Prints what will happen and asks for confirmation. After undoing a slice, its rows are delivered again. After
    undoing a reset or a rewind, the stream continues from its former mark and nothing is read again. Undoing an
    undo is a redo; with --to, repeating the command has no further effect. An open slice is finished first, and is
    then the last change.

    Refused: the beginning of the stream (use `penstock state reset`), a mark that the source no longer accepts,
    versions whose slices the sink has lost, and full-refresh streams.
    """
    with report_errors(file, as_json=as_json):
        from contextlib import closing

        from penstock import wiring
        from penstock.cli.shared.operation import existing_store, operate
        from penstock.cli.state.preview import SourcePreview, describe_duplicates, require_stream
        from penstock.engine import undoing

        def prepare(file: PipelineFile, name: str) -> Prepared:
            with existing_store(file, "undo") as store, closing(wiring.build_source(file, name)) as source:
                state = require_stream(file, store, name, stream)
                version = undoing.default_version(state) if to is None else to
                rows_again, what = _preview(store, source, name, stream, state, version)
                info = SourcePreview(source).info(stream) if rows_again else None
            lines = [f"{name}/{stream}: {what}", "Rows delivered so far stay in the sink."]
            if info is not None:
                lines.append(describe_duplicates(file, name, info))
            return lines, lambda engine: engine.undo([stream], version)

        command = f"penstock state undo FILE --stream {stream}"
        raise typer.Exit(operate(file, set_ or (), pipeline, command, prepare, yes=yes, as_json=as_json))


def _preview(
    store: Store, source: Source, pipeline: str, stream: str, state: StreamState, version: int | None
) -> tuple[bool, str]:
    """Whether rows are delivered again, and what the undo does, as far as is known without the lease."""
    from penstock.cli.shared.render import count
    from penstock.engine import undoing
    from penstock.errors import StreamRefused

    if version is None:
        assert state.intent is not None
        return (
            False,
            f"an earlier undo is still open and is finished: it moves the mark to {source.describe(state.intent.upto)}",
        )
    changes = undoing.foresee(undoing.changes_to(store, pipeline, stream, version, state), state)
    try:
        to = undoing.find_position(changes, version, stream)
        source.connect()
        source.accept(stream, to, source.content(stream))
    except StreamRefused as error:
        raise error.at(pipeline=pipeline, stream=stream) from None
    here, there = (source.describe(position.mark if position else None) for position in (changes[0].position, to))
    way = undoing.find_route(changes, to)
    move = f"{_pending(state)}from {here!r} to {there!r}, the mark at version {version}"
    if way.back and way.rows == 0 and here == there:
        return False, f"{_pending(state)}the mark is already that of version {version}: {there}"
    if way.back is False:
        return False, f"{move}; nothing is read again: everything up to there was delivered"
    if way.rows is None or state.intent:
        return True, f"{move}; the next run delivers the rows after it again"
    return True, f"{move}; the next run delivers {count(way.rows, 'row')} again"


def _pending(state: StreamState) -> str:
    opened = f"slice {state.intent.number} is open and is finished first; " if state.intent else ""
    return opened + ("a reset was requested and is carried out first; " if state.reset_wanted else "")

"""`penstock rewind`: moves a mark back, so that the rows after it are delivered again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, Yes

if TYPE_CHECKING:
    from penstock.cli.shared.operation import Prepared
    from penstock.config import File as PipelineFile
    from penstock.ports import Source, StreamState


def rewind(
    file: File,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="A cursor value of a Postgres stream, or a number or timestamp of a lake table.",
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
    """Move a mark back: the next run continues from there and delivers the rows after it again.

    \b
    Examples:
      penstock rewind shop.yaml --stream orders --to '2026-11-15 06:00:00+00'
      penstock rewind export.yaml --to 120000
      penstock rewind export.yaml --to 2026-11-15T06:00:00Z --stream orders
      penstock rewind export.yaml --pipeline export --to 0 --yes

    Prints the old and the new mark and asks for confirmation. An open slice is finished before the rewind. PLACE is a
    cursor value of a Postgres stream, or a number or timestamp of a lake table. Full-refresh streams are refused. A
    mark moves back only; it moves forward only past deleted rows of a lake table, to the number that the error prints.
    """
    with report_errors(file, as_json=as_json):
        from contextlib import closing

        from penstock import wiring
        from penstock.cli.shared.operation import existing_store, operate
        from penstock.config.pipeline_choice import require_streams
        from penstock.errors import StreamRefused

        def prepare(file: PipelineFile, name: str) -> Prepared:
            lines = []
            with existing_store(file, "rewind") as store, closing(wiring.build_source(file, name)) as source:
                source.connect()
                known = [info.name for info in source.catalog() if info.skipped is None]
                require_streams(stream, known, name)
                chosen = list(dict.fromkeys(stream or known))
                for each in chosen:
                    try:
                        what = _preview(source, each, store.state(name, each), to)
                    except StreamRefused as error:
                        raise error.at(pipeline=name, stream=each) from None
                    lines.append(f"{name}/{each}: {what}")
            lines.append("Rows delivered so far stay in the sink.")
            return lines, lambda engine: engine.rewind(chosen, to)

        command = f"penstock rewind FILE --to {to}"
        raise typer.Exit(operate(file, set_ or (), pipeline, command, prepare, yes=yes, as_json=as_json))


def _preview(source: Source, stream: str, state: StreamState, to: str) -> str:
    """What a rewind does to a stream, as far as is known without the lease; raises what the rewind would raise."""
    from penstock.ports import find_mark

    # The mark after the open slice is finished.
    last = state.intent.position if state.intent else state.last
    first = f"slice {state.intent.number} is open and is finished first; " if state.intent else ""
    if state.reset_wanted:
        return f"{first}a reset was requested and is carried out; then there is nothing to rewind"
    if last is None or last.mark is None:
        return f"{first}the stream is at its beginning: there is nothing to rewind"
    content = source.content(stream)
    mark = find_mark(source, stream, content, last, to)
    if mark == last.mark:
        return f"{first}the mark is already there: {source.describe(mark)}"
    return f"{first}from {source.describe(last.mark)} to {source.describe(mark)}; the next run continues from there"

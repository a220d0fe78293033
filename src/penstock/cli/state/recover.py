"""`penstock state recover`: rebuilds the store from the sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Streams, Yes

if TYPE_CHECKING:
    from penstock.cli.shared.operation import Prepared
    from penstock.config import File as PipelineFile


def recover(
    file: File,
    stream: Streams = None,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
    drop_sealed: Annotated[
        bool,
        typer.Option(
            "--drop-sealed",
            help="Drop a slice whose staged rows are gone although the sink may have received pieces of it.",
        ),
    ] = False,
) -> None:
    """Rebuild the store from the slices that the sink holds, after either was lost or restored.

    \b
    Examples:
      penstock state recover shop.yaml
      penstock state recover shop.yaml --stream orders --yes

    Slices that are incomplete in the sink are withdrawn, newest first; the next run delivers them again.
    """
    with report_errors(file, as_json=as_json):
        from penstock.cli.shared.operation import operate

        def prepare(_file: PipelineFile, name: str) -> Prepared:
            which = ", ".join(stream) if stream else "every stream"
            lines = [
                f"{name}: the marks of {which} are set to what the sink holds; open slices are dropped.",
                "Slices that are incomplete in the sink are withdrawn, newest first.",
            ]
            return lines, lambda engine: engine.recover(stream, drop_sealed=drop_sealed)

        command = "penstock state recover FILE"
        raise typer.Exit(operate(file, set_ or (), pipeline, command, prepare, yes=yes, as_json=as_json))

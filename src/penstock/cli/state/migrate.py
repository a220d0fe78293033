"""`penstock state migrate`: starts streams again in a new form and keeps the delivered rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, RequiredStreams, Set, Yes

if TYPE_CHECKING:
    from penstock.cli.shared.operation import Prepared
    from penstock.config import File as PipelineFile


def migrate(
    file: File,
    stream: RequiredStreams,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Start streams again after a change that cannot be made in place; the old rows are kept.

    \b
    Examples:
      penstock state migrate shop.yaml --stream orders
      penstock state migrate shop.yaml --pipeline shop --stream orders --stream customers --yes

    Use it to switch between full refresh and cursor, to change the cursor or the key, or to switch from
    `mode: append` to `merge`. First change the pipeline file, then migrate, then run.

    Delivered rows are moved away: files to `_before/` in the output folder, a table to another name. The next run
    reads the stream from the beginning into the original place. Prints what will be moved and asks for confirmation.
    """
    with report_errors(file, as_json=as_json):
        from penstock.cli.shared.operation import existing_store, operate
        from penstock.cli.shared.render import count
        from penstock.cli.state.preview import require_stream

        def prepare(file: PipelineFile, name: str) -> Prepared:
            chosen = list(dict.fromkeys(stream))
            with existing_store(file, "migrate") as store:
                rows = {each: require_stream(file, store, name, each).rows for each in chosen}
            lines = [f"{name}/{each}: {count(rows[each], 'row')} delivered so far are moved away." for each in chosen]
            lines += [
                "The next run reads every row from the beginning. Nothing is deleted.",
                "An open slice is dropped.",
            ]
            return lines, lambda engine: engine.migrate(chosen)

        command = f"penstock state migrate FILE --stream {stream[0]}"
        raise typer.Exit(operate(file, set_ or (), pipeline, command, prepare, yes=yes, as_json=as_json))

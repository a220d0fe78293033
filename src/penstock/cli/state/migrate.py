"""`penstock state migrate`: starts streams again in a new form and keeps the delivered rows."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Yes


def migrate(
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
        raise typer.Exit(_migrate(file, set_ or [], stream, pipeline, yes, as_json))


def _migrate(path: str, sets: list[str], streams: list[str], pipeline: str | None, yes: bool, as_json: bool) -> int:
    from contextlib import closing

    from penstock import wiring
    from penstock.cli.shared.confirm import confirm
    from penstock.cli.shared.engine_run import run_engine
    from penstock.cli.shared.render import count
    from penstock.cli.shared.signals import Signals
    from penstock.cli.state.preview import require_store, require_stream
    from penstock.config.pipeline_choice import choose_pipeline

    file = wiring.load(path, sets)
    name = choose_pipeline(file, pipeline, f"penstock state migrate FILE --stream {streams[0]}")
    require_store(file, "migrate")
    chosen = list(dict.fromkeys(streams))
    with closing(wiring.open_store(file)) as store:
        lines = []
        for stream in chosen:
            state = require_stream(file, store, name, stream)
            lines.append(f"{name}/{stream}: {count(state.rows, 'row')} delivered so far are moved away.")
        lines += ["The next run reads every row from the beginning. Nothing is deleted.", "An open slice is dropped."]
        confirm(lines, yes=yes, to_stderr=as_json)
        with Signals() as signals:
            return run_engine(
                file, name, store, signals, lambda engine: engine.migrate(chosen), as_json=as_json, summary=False
            )

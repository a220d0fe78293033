"""The `penstock` command: one file or folder per verb.

This file, and the top of each verb's file, import only Typer. A verb imports the rest when it is called, so that help
is fast. Exit codes are those of `errors`; for several pipelines see `core.exits`.
"""

from __future__ import annotations

import gc
import os

import typer

from penstock.cli import (
    check,
    completion,
    discover,
    imports,
    init,
    loads,
    log,
    plan,
    quarantine,
    rewind,
    run,
    runs,
    schema,
    serve,
    state,
    status,
    token,
    triggers,
    upkeep,
    verify,
    version,
    wal,
    warm,
)

__all__ = ["app", "main"]

HELP = """
Sync only what changed, exactly once, from sources into sinks. An interrupted run resumes where it stopped.

\b
  penstock init $DATABASE_URL      write a pipeline file for the tables of a database
  penstock check shop.yaml         validate the file and show each stream's guarantee
  penstock run shop.yaml           sync new and changed rows
  penstock status shop.yaml        show failures and how far each stream is
  penstock runs shop.yaml          show the runs of the last days

\b
Exit codes: 0 success (also at a limit), 1 a stream failed, 2 invalid input, 3 connection failed,
4 another process is running the pipeline, 5 `verify` found differences,
130 or 143 stopped by a signal.
"""

# Plain help and errors: importing Rich would take longer than everything else.
app = typer.Typer(
    name="penstock",
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("init", short_help="Write a pipeline file for the tables of a database.")(init.init)
app.command("check", short_help="Validate a pipeline file against both sides, and show guarantees.")(check.check)
app.command("discover", short_help="List the source's tables and the proposed way to read each.")(discover.discover)
app.command("plan", short_help="Dry run: show the next slices with expected rows and bytes.")(plan.plan)
app.command("run", short_help="Sync new and changed rows, exactly once.")(run.run)
app.command("serve", short_help="Receive batches over HTTP into a write-ahead log.")(serve.serve)
app.command("warm", short_help="Keep Spark running in the background, so that runs start fast.")(warm.warm)
app.command("log", short_help="Show a saved run as text, with a breakdown of its time.")(log.log)
app.command("status", short_help="Show failures, how far each stream is, and the running process.")(status.status)
app.command("runs", short_help="Show the runs of the last days: rows and failures.")(runs.runs)
app.command("verify", short_help="Compare source and sink, list what differs, and repair it.")(verify.verify)
app.command("rewind", short_help="Move a mark back and deliver the rows after it again.")(rewind.rewind)
app.command("upkeep", short_help="Compact lake tables, expire snapshots, delete old rows.")(upkeep.upkeep)
app.add_typer(state.app, name="state")
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(token.app, name="token")
app.add_typer(wal.app, name="wal")
app.add_typer(triggers.app, name="triggers")
app.add_typer(loads.app, name="loads")
app.add_typer(imports.app, name="import")
app.command("schema", short_help="Print the JSON Schema of a pipeline file, or an annotated example.")(schema.schema)
app.command("completion", short_help="Print a shell completion script.")(completion.completion)
app.command("version")(version.version)


def main() -> None:
    """The console entry point."""
    # Imported objects live to the end. Collecting them, again at exit, takes a quarter of a run with nothing new, so
    # the garbage collector is off until rows may move (`engine_run.run_engine`), and skips these objects afterwards.
    gc.disable()
    # Without this, Pydantic searches the metadata of every installed package for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")
    if completion.VARIABLE in os.environ:
        raise SystemExit(completion.answer(app))
    try:
        app(prog_name="penstock")
    finally:
        gc.freeze()

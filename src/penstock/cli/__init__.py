"""The `penstock` command: one file per verb.

Only Typer is imported here and at the top of a verb's file; what a verb needs it imports when it is called,
so that help is quick. Exit codes are those of `errors`; for several pipelines see `exits`.
"""

from __future__ import annotations

import gc
import os

import typer

from penstock.cli import (
    check,
    completion,
    demo,
    discover,
    init,
    log,
    plan,
    quarantine,
    rewind,
    run,
    runs,
    schema,
    state,
    status,
    upkeep,
    version,
    warm,
)

__all__ = ["app", "main"]

HELP = """
Moves only what changed, exactly once, from sources into sinks, and resumes from where it stood.

\b
  penstock init $DATABASE_URL      write a pipeline file from what the database has
  penstock check shop.yaml         what would be synced, how, and with which guarantee
  penstock run shop.yaml           move what is new
  penstock status shop.yaml        what fails, and how far each stream is
  penstock runs shop.yaml          the runs of the last days

\b
Exit codes: 0 done (also at a limit), 1 a stream failed, 2 bad input, 3 no connection,
4 another process holds the pipeline, 130 or 143 stopped by a signal.
"""

# Plain help and errors: Rich alone would take longer to import than everything else.
app = typer.Typer(
    name="penstock",
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("init", short_help="Write a pipeline file from what a database has.")(init.init)
app.command("check", short_help="Whether a run would work, and which guarantee each stream has.")(check.check)
app.command("discover", short_help="What the source has, and how it would best be read.")(discover.discover)
app.command("plan", short_help="A dry run: the next slices, rows and bytes to expect.")(plan.plan)
app.command("run", short_help="Move what is new, exactly once.")(run.run)
app.command("warm", short_help="Keep a Spark started, so that runs begin at once.")(warm.warm)
app.command("log", short_help="Saved messages as lines, and how well the time was spent.")(log.log)
app.command("status", short_help="What fails, how far each stream is, and who runs it.")(status.status)
app.command("runs", short_help="The runs of the last days: rows, failures, days without any.")(runs.runs)
app.command("rewind", short_help="Go back to a place and deliver again what comes after it.")(rewind.rewind)
app.command("upkeep", short_help="Compact lake tables, expire snapshots, remove what is too old.")(upkeep.upkeep)
app.add_typer(state.app, name="state")
app.add_typer(quarantine.app, name="quarantine")
app.command("demo", short_help="See it at work, on a PostgreSQL of its own.")(demo.demo)
app.command("schema", short_help="The JSON Schema of a pipeline file, or an example with every key.")(schema.schema)
app.command("completion", short_help="A script that lets a shell complete penstock's words.")(completion.completion)
app.command("version")(version.version)


def main() -> None:
    """The console entry point."""
    # What imports make stays to the end: a collector that goes through it, again at exit, takes a quarter of a run
    # with nothing new. It sleeps until rows may move (`pipelines.run_engine`), and is kept away from what is left.
    gc.disable()
    # Pydantic would look for plugins in the metadata of every package that is installed.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")
    if completion.VARIABLE in os.environ:
        raise SystemExit(completion.answer(app))
    try:
        app(prog_name="penstock")
    finally:
        gc.freeze()

"""`penstock state …`: shows and changes marks; one file per verb."""

from __future__ import annotations

import typer

from penstock.cli.state import history, migrate, recover, reset, show, undo

app = typer.Typer(help="Show marks, reset or undo them, or rebuild the store.", no_args_is_help=True)
app.command("show", short_help="Show each stream's mark in full.")(show.show)
app.command("history", short_help="List every change of a mark, newest first.")(history.history)
app.command("undo", short_help="Undo the last change of a mark, or go back to a version.")(undo.undo)
app.command("reset", short_help="Read streams again from the beginning.")(reset.reset)
app.command("migrate", short_help="Start streams again in a new form; keep the delivered rows elsewhere.")(
    migrate.migrate
)
app.command("recover", short_help="Rebuild the store from what the sink holds.")(recover.recover)

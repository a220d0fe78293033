"""`penstock state …`: look at marks and change them, one file per verb."""

from __future__ import annotations

import typer

from penstock.cli.state import history, migrate, recover, reset, show, undo

app = typer.Typer(help="Show how far streams are, set them back, or rebuild the store.", no_args_is_help=True)
app.command("show", short_help="Each stream's mark in full.")(show.show)
app.command("history", short_help="Every change of a mark, newest first.")(history.history)
app.command("undo", short_help="Take back the last change of a mark, or go back to a version.")(undo.undo)
app.command("reset", short_help="Read streams again from the beginning.")(reset.reset)
app.command("migrate", short_help="Begin streams again in another form; what was delivered is kept elsewhere.")(
    migrate.migrate
)
app.command("recover", short_help="Rebuild the store from what the sink holds.")(recover.recover)

"""`penstock state …`: look at marks and change them, one file per verb."""

from __future__ import annotations

import typer

from penstock.cli.state import recover, reset, show

app = typer.Typer(help="Show how far streams are, set them back, or rebuild the store.", no_args_is_help=True)
app.command("show", short_help="Each stream's mark in full.")(show.show)
app.command("reset", short_help="Read streams again from the beginning.")(reset.reset)
app.command("recover", short_help="Rebuild the store from what the sink holds.")(recover.recover)

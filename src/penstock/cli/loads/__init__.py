"""`penstock loads …`: the first loads of an outbox pipeline's tables: lists, starts, drops and clears them."""

from __future__ import annotations

import typer

from penstock.cli.loads import clear, drop, listing, start

app = typer.Typer(
    help="List the first loads of an outbox's tables, start them again, or drop them.", no_args_is_help=True
)
app.command("list", short_help="List loads: pending, loading, complete or failed, and what is left.")(listing.list_)
app.command("start", short_help="Load tables again with the next run.")(start.start)
app.command("drop", short_help="Give up loads that are not complete.")(drop.drop)
app.command("clear", short_help="Remove what tables have delivered.")(clear.clear)

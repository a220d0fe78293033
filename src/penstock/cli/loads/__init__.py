"""`penstock loads …`: the first loads of an outbox pipeline's tables: lists them, starts one again."""

from __future__ import annotations

import typer

from penstock.cli.loads import listing, start

app = typer.Typer(help="List the first loads of an outbox's tables, or start one again.", no_args_is_help=True)
app.command("list", short_help="List loads: pending, loading, complete or failed, and what is left.")(listing.list_)
app.command("start", short_help="Load tables again with the next run.")(start.start)

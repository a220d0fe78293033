"""`penstock quarantine …`: look at rows that a sink did not take, try them again or drop them; one file per verb."""

from __future__ import annotations

import typer

from penstock.cli.quarantine import drop, listing, replay

app = typer.Typer(help="Rows that a sink did not take: list them, try them again, drop them.", no_args_is_help=True)
app.command("list", short_help="What is aside, and why.")(listing.list_)
app.command("replay", short_help="Try rows again, once the table or the rules are mended.")(replay.replay)
app.command("drop", short_help="Forget rows.")(drop.drop)

"""`penstock quarantine …`: lists, replays or drops rows that a sink rejected; one file per verb."""

from __future__ import annotations

import typer

from penstock.cli.quarantine import drop, listing, replay

app = typer.Typer(help="List, replay or drop rows that a sink rejected.", no_args_is_help=True)
app.command("list", short_help="List quarantined rows and the reasons.")(listing.list_)
app.command("replay", short_help="Replay rows after the cause is fixed.")(replay.replay)
app.command("drop", short_help="Delete quarantined rows.")(drop.drop)

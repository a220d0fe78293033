"""`penstock wal readers …`: lists who reads the receiver's logs, or drops a reader that is gone."""

from __future__ import annotations

import typer

from penstock.cli.wal.readers import drop, listing

app = typer.Typer(help="List the readers of the receiver's logs, or drop one that is gone.", no_args_is_help=True)
app.command("list", short_help="List readers, and how far behind each is.")(listing.list_)
app.command("drop", short_help="Forget a reader, so that segments need not wait for it.")(drop.drop)

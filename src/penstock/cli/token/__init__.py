"""`penstock token …`: creates, lists and revokes tokens of the receiver; one file per verb."""

from __future__ import annotations

import typer

from penstock.cli.token import create, listing, revoke

app = typer.Typer(help="Create, list or revoke tokens of the receiver.", no_args_is_help=True)
app.command("create", short_help="Create a token, and print its secret once.")(create.create)
app.command("list", short_help="List tokens, without their secrets.")(listing.list_)
app.command("revoke", short_help="Refuse requests with a token from now on.")(revoke.revoke)

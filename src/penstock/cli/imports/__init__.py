"""`penstock import …`: takes over from another program: its configuration, and how far it has come."""

from __future__ import annotations

import typer

from penstock.cli.imports import rustream

app = typer.Typer(help="Take over from another program.", no_args_is_help=True)
# With one verb alone, Typer would leave out its name.
app.callback()(lambda: None)
app.command("rustream", short_help="Take over rustream's configuration and watermarks.")(rustream.rustream)

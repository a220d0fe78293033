"""`penstock wal …`: looks at the logs of the receiver, checks them, and removes what holds them up."""

from __future__ import annotations

import typer

from penstock.cli.wal import inspect, readers, verify, withdraw

app = typer.Typer(help="Show and verify the receiver's logs, withdraw slices, drop readers.", no_args_is_help=True)
app.command("inspect", short_help="Show each log: segments, producers, readers, damages.")(inspect.inspect)
app.command("verify", short_help="Read every record, and name what is damaged or missing.")(verify.verify)
app.command("withdraw", short_help="Withdraw the open slice of a producer.")(withdraw.withdraw)
app.add_typer(readers.app, name="readers")

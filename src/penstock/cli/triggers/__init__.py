"""`penstock triggers …`: the triggers that fill an outbox: shows, applies, checks and drops them."""

from __future__ import annotations

import typer

from penstock.cli.triggers import apply, drop, plan, status

app = typer.Typer(help="Show, apply, check or drop the triggers that fill an outbox.", no_args_is_help=True)
app.command("plan", short_help="Show the triggers' SQL, and how the database differs.")(plan.plan)
app.command("apply", short_help="Make the database's triggers those of the file.")(apply.apply)
app.command("status", short_help="Show drift, disabled triggers, the outbox and its consumers.")(status.status)
app.command("drop", short_help="Drop the triggers of a pipeline.")(drop.drop)

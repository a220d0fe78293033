"""Asks before something that cannot be taken back."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from penstock.errors import UNTOUCHED, InputError


def agreed(told: Sequence[str], *, yes: bool, to_stderr: bool) -> None:
    """Say what will happen and return if the user wants it; ends the command otherwise."""
    print("\n".join(told), file=sys.stderr if to_stderr else sys.stdout, flush=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(
            "this must be confirmed, and there is no terminal to ask on",
            safe=UNTOUCHED,
            next_step="add --yes to the command",
        )
    if not typer.confirm("Go on?", err=to_stderr):
        raise InputError("not confirmed", safe=UNTOUCHED, next_step="nothing; or answer y, or add --yes")

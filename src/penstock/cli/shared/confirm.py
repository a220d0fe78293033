"""Asks for confirmation before an irreversible action."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from penstock.errors import UNTOUCHED, InputError


def confirm(lines: Sequence[str], *, yes: bool, to_stderr: bool) -> None:
    """Print what will happen and return if the user confirms; otherwise end the command."""
    print("\n".join(lines), file=sys.stderr if to_stderr else sys.stdout, flush=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(
            "this command needs a confirmation, and there is no terminal to ask on",
            safe=UNTOUCHED,
            next_step="add --yes to the command",
        )
    if not typer.confirm("Continue?", err=to_stderr):
        raise InputError("not confirmed", safe=UNTOUCHED, next_step="to go ahead, answer y or add --yes")

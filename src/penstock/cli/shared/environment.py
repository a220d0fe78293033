"""Adds the variables of `--env-file` to the environment, and keeps track of which ones were added."""

from __future__ import annotations

import os

import typer

#: the variables that an env file has added
_added: set[str] = set()


def add_env_file(context: typer.Context, path: str | None) -> str | None:
    """Add a file's variables to the environment. Variables that are already set keep their values."""
    if path is None or context.resilient_parsing:
        return path
    from penstock.config.env_file import read_env_file
    from penstock.errors import InputError

    try:
        variables = read_env_file(path)
    except InputError as error:
        raise typer.BadParameter(f"{error.what}. Next: {error.next_step}") from None
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    _added.update(new)
    return path


def environment_before() -> dict[str, str]:
    """The environment this process was started with, without the variables of an env file."""
    return {name: value for name, value in os.environ.items() if name not in _added}


def added_variables() -> list[str]:
    """The names of the variables that an env file has added."""
    return sorted(_added)


def adopt(added: list[str]) -> None:
    """Record the variables that an env file has added in the process that handed over this run."""
    _added.clear()
    _added.update(added)

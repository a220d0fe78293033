"""Reads a file of environment variables, one `NAME=value` per line, as systemd's EnvironmentFile does.

A line that starts with `#` is a comment; `export` before a name is allowed; a value may be quoted. Nothing is expanded.
Values may be secret, so no message repeats them.
"""

from __future__ import annotations

import re

from penstock.errors import UNTOUCHED, InputError

_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)")
_QUOTED = re.compile(r"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)\"""")


def read_env_file(path: str) -> dict[str, str]:
    """The variables of a file; InputError names the first invalid line."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(
            f"the env file {path} cannot be read: {why}",
            safe=UNTOUCHED,
            next_step="correct --env-file, or create the file with one NAME=value per line",
        ) from None
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        match = _LINE.fullmatch(line.strip())
        value = _unquote(match["value"]) if match else None
        if match is None or value is None or "\0" in value:
            raise InputError(
                f"line {number} of {path} is not a valid environment variable",
                safe=UNTOUCHED,
                next_step="write NAME=value; a quoted value must end with the same quote",
            )
        variables[match["name"]] = value
    return variables


def _unquote(value: str) -> str | None:
    value = value.strip()
    if not value.startswith(("'", '"')):
        return value
    match = _QUOTED.fullmatch(value)
    if match is None:
        return None
    if match["single"] is not None:
        return match["single"]
    return re.sub(r"\\(.)", r"\1", match["double"])

"""A file of environment variables, `NAME=value` a line, in the form that systemd's EnvironmentFile takes too.

A `#` begins a line of comment; `export` before a name is allowed; a value may be in single or double quotes. Nothing is
expanded. Values may be secrets: no message here repeats one.
"""

from __future__ import annotations

import re

from penstock.errors import UNTOUCHED, InputError

_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)")
_QUOTED = re.compile(r"""'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)\"""")


def read_env_file(path: str) -> dict[str, str]:
    """The variables of a file; InputError with the number of a line that is none."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(
            f"the file of environment variables {path} cannot be read: {why}",
            safe=UNTOUCHED,
            next_step="correct --env-file, or make the file; each line is NAME=value",
        ) from None
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        found = _LINE.fullmatch(line.strip())
        value = _unquoted(found["value"]) if found else None
        if found is None or value is None or "\0" in value:
            raise InputError(
                f"line {number} of {path} is no environment variable",
                safe=UNTOUCHED,
                next_step="write it as NAME=value; a value that begins with a quote ends with the same one",
            )
        variables[found["name"]] = value
    return variables


def _unquoted(value: str) -> str | None:
    value = value.strip()
    if not value.startswith(("'", '"')):
        return value
    found = _QUOTED.fullmatch(value)
    if found is None:
        return None
    if found["single"] is not None:
        return found["single"]
    return re.sub(r"\\(.)", r"\1", found["double"])

"""`${NAME}` and `${NAME:-default}` in a text, from the environment; `$${` stands for a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PLACE = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Expanded:
    """A text with its variables filled in."""

    text: str
    #: the variables that were named
    names: tuple[str, ...] = ()
    #: why it cannot be used
    problems: tuple[str, ...] = ()


def expand(text: str, environment: Mapping[str, str]) -> Expanded:
    """Fill in every variable; as in a shell, a default also takes the place of an empty value."""
    if "${" not in text:
        return Expanded(text)
    names: list[str] = []
    problems: list[str] = []

    def value_of(place: re.Match[str]) -> str:
        if place["inside"] is None:
            return "${"
        inside = _INSIDE.fullmatch(place["inside"])
        if inside is None or not place["end"]:
            problems.append("'${' must begin ${NAME} or ${NAME:-default}; write $${ for a plain ${")
            return ""
        name, default = inside["name"], inside["default"]
        names.append(name)
        value = environment.get(name)
        if default is not None:
            return value or default
        if value is None:
            problems.append(f"environment variable {name} is not set; set it, or write ${{{name}:-default}}")
        return value or ""

    filled = _PLACE.sub(value_of, text)
    return Expanded(filled, tuple(dict.fromkeys(names)), tuple(dict.fromkeys(problems)))

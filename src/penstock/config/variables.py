"""Expands variables in strings: `${NAME}` from the environment, `${file:PATH}` from a file, both with `:-default`.

`$${` stands for a literal `${`. Values may be secret, so no message repeats them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.config.mistakes import visible
from penstock.core.names import nearest

#: maximum size of a file with a value
MAX_FILE_BYTES = 64 * 1024

_PLACE = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_NAME = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_FILE = re.compile(r"file:(?P<path>.+?)(?::-(?P<default>.*))?", re.DOTALL)
_HOW = "write ${NAME}, ${NAME:-default} or ${file:PATH}; $${ stands for a literal ${"


@dataclass(frozen=True, slots=True)
class Expanded:
    """A string with its variables expanded."""

    text: str
    #: the variables in the string, files as `file:PATH`
    names: tuple[str, ...] = ()
    #: why the string cannot be used
    problems: tuple[str, ...] = ()


class _Problem(Exception):
    """Why a variable has no value."""


@dataclass(frozen=True, slots=True)
class Variables:
    """Looks up variables."""

    environment: Mapping[str, str]
    #: the folder of relative paths
    folder: str = "."
    #: contents by path: each file is read once, so that two values from one file agree
    _read: dict[str, str | None] = field(default_factory=dict)

    def expand(self, text: str) -> Expanded:
        """Expand every variable; as in a shell, a default also replaces an empty value."""
        if "${" not in text:
            return Expanded(text)
        names: list[str] = []
        problems: list[str] = []

        def value_of(place: re.Match[str]) -> str:
            if place["inside"] is None:
                return "${"
            try:
                return self._value(place["inside"], closed=bool(place["end"]), names=names)
            except _Problem as problem:
                problems.append(str(problem))
                return ""

        filled = _PLACE.sub(value_of, text)
        return Expanded(filled, tuple(dict.fromkeys(names)), tuple(dict.fromkeys(problems)))

    def _value(self, inside: str, *, closed: bool, names: list[str]) -> str:
        if not closed:
            raise _Problem(f"'${{' has no closing '}}'; {_HOW}")
        if match := _NAME.fullmatch(inside):
            names.append(match["name"])
            return self._of_environment(match["name"], match["default"])
        if match := _FILE.fullmatch(inside):
            if "${" in match["path"]:
                raise _Problem("variables cannot be nested")
            names.append(f"file:{visible(match['path'])}")
            return self._of_file(match["path"], match["default"])
        raise _Problem(f"'${{' does not start a valid variable; {_HOW}")

    def _of_environment(self, name: str, default: str | None) -> str:
        value = self.environment.get(name)
        if default is not None:
            return value or default
        if value is None:
            near = nearest(name, self.environment, cutoff=0.8)
            meant = f"did you mean ${{{near}}}?" if near else f"set it, or write ${{{name}:-default}}"
            raise _Problem(f"environment variable {name} is not set; {meant}")
        return value

    def _of_file(self, path: str, default: str | None) -> str:
        whole = os.path.join(self.folder, path)
        if whole not in self._read:
            self._read[whole] = _contents(whole)
        value = self._read[whole]
        if default is not None:
            return value or default
        if not value:
            wrong = f"file {visible(whole, most=400)} " + ("does not exist" if value is None else "is empty")
            raise _Problem(f"{wrong}; put a value into the file, or write ${{file:{visible(path)}:-default}}")
        return value


def _contents(path: str) -> str | None:
    """A file's content without the last newline; None if there is no such file."""
    shown = visible(path, most=400)
    try:
        with open(path, "rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise _Problem(f"{shown} is a folder, not a file") from None
    except (OSError, ValueError) as error:
        raise _Problem(f"file {shown} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise _Problem(f"file {shown} is larger than {MAX_FILE_BYTES // 1024} KiB, too large for a value")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _Problem(f"file {shown} is not UTF-8 text") from None
    if "\0" in text:
        raise _Problem(f"file {shown} is not text: it contains a zero byte")
    # Remove one newline, which editors and `echo` add; further ones are part of the value.
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text

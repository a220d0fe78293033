"""Patterns of paths: `*`, `?` and `[abc]` within a name, `**` for any number of folders. Names are compared exactly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

_MAGIC = re.compile(r"[*?\[]")


def check_pattern(pattern: str) -> str:
    """Return the pattern; ValueError if it leads out of its folder or is no pattern."""
    names = pattern.split("/")
    if not pattern or pattern.startswith("/") or pattern.endswith("/") or "" in names:
        raise ValueError(f"{pattern!r} must be a path below `directory`, such as orders/*.parquet")
    if ".." in names or "." in names:
        raise ValueError(f"{pattern!r} must not contain . or ..; set `directory` to the folder above the files")
    try:
        compile_pattern(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no pattern: {error.msg}") from None
    return pattern


def fixed_folders(pattern: str) -> str:
    """The folders at the beginning of a pattern that are plain names: all files that match are below them."""
    names = pattern.split("/")[:-1]
    plain = next((at for at, name in enumerate(names) if _MAGIC.search(name)), len(names))
    return "/".join(names[:plain])


def depth(pattern: str) -> int | None:
    """The number of names in a path that matches; None: any number."""
    names = pattern.split("/")
    return None if "**" in names else len(names)


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression of a whole path, in which `/` separates names."""
    names = pattern.split("/")
    text = ""
    for at, name in enumerate(names):
        is_last = at == len(names) - 1
        if name == "**":
            text += ".+" if is_last else "(?:[^/]+/)*"
        else:
            text += _name(name) + ("" if is_last else "/")
    return re.compile(text, re.DOTALL)


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns matches a path."""
    return any(compile_pattern(pattern).fullmatch(path) for pattern in patterns)


def escape(name: str) -> str:
    """The pattern that matches exactly this name."""
    return re.sub(r"[*?\[]", lambda found: f"[{found[0]}]", name)


def _name(name: str) -> str:
    """One name of a pattern."""
    text, at = "", 0
    while at < len(name):
        char = name[at]
        at += 1
        if char == "*":
            text += "[^/]*"
        elif char == "?":
            text += "[^/]"
        elif char == "[" and (end := name.find("]", at + 1)) > 0:
            inner, at = name[at:end], end + 1
            negation = "^" if inner.startswith("!") else ""
            # A range keeps its hyphen.
            inner = re.sub(r"[\\\[\]^&~|]", lambda found: f"\\{found[0]}", inner[len(negation) :])
            text += f"(?!/)[{negation}{inner}]"
        else:
            text += re.escape(char)
    return text

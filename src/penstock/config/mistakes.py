"""Mistakes in a pipeline file: where each one is, and all of them as one error."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import ConfigError

#: the way from the top of the file to a value: keys, and numbers within lists
Path = tuple[str | int, ...]

UNKNOWN = "unknown key"
_PLAIN = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong."""

    #: the line it is on, counted from 1
    line: int
    #: which value it is about
    path: Path
    #: what is wrong, and what would be right
    text: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.text}" if self.path else self.text


def dotted(path: Path) -> str:
    """A path as people write it: `pipelines.shop.streams."public.orders".columns[0]`."""
    words = ""
    for step in path:
        if isinstance(step, int):
            words += f"[{step}]"
        else:
            plain = step if _PLAIN.fullmatch(step) else f'"{visible(step)}"'
            words += f".{plain}" if words else plain
    return words


def visible(text: str, most: int = 60) -> str:
    """A text on one line, without characters that a terminal would obey."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def nearest(wrong: str, valid: Iterable[str]) -> str | None:
    """The valid name that was most likely meant; None: none is near."""
    # A few milliseconds that only a mistake has to pay.
    from difflib import get_close_matches

    lower = {name.lower(): name for name in sorted(valid, reverse=True)}
    found = get_close_matches(wrong.lower(), lower, n=1, cutoff=0.6)
    return lower[found[0]] if found else None


def suggest(wrong: str, valid: Iterable[str], several: str) -> str:
    """What to write instead: the nearest name, or else all of them."""
    names = sorted(valid)
    near = nearest(wrong, names)
    if near is not None:
        return f"did you mean '{near}'?"
    return f"{several}: {', '.join(names)}" if names else f"{several}: none"


def config_error(file: str, mistakes: Iterable[Mistake]) -> ConfigError:
    """Every mistake of a file, in the order of its lines."""
    lines = [f"{file}:{mistake.line}: {mistake}" for mistake in sorted(set(mistakes), key=_order)]
    head = [] if len(lines) == 1 else [f"{len(lines)} mistakes in {file}"]
    return ConfigError(
        "\n".join(head + lines),
        safe="Nothing was read or written.",
        next_step="correct the file, then run the same command again",
    )


def _order(mistake: Mistake) -> tuple[int, str, str]:
    # Paths mix texts and numbers, which do not compare.
    return (mistake.line, dotted(mistake.path), mistake.text)

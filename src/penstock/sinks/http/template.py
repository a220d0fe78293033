"""Templates: `{column}` stands for a column's value, `{{` and `}}` for braces. There are no expressions. Pure.

A row's template is a document. A string in it that is one placeholder becomes the value, as JSON; a string with other
text around its placeholders becomes a string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote

#: the placeholder for the array of rows in a body
ROWS = "rows"
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")


class BadTemplate(ValueError):
    """A template that cannot be read."""


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a column, as JSON."""

    column: str


@dataclass(frozen=True, slots=True)
class Inner:
    """The value of a column inside a string of JSON."""

    column: str


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[str | Value, ...]:
    """Literal text and placeholders, in order. BadTemplate for a brace that stands alone."""
    found: list[str | Value] = []
    literal, at = "", 0
    for token in _TOKEN.finditer(text):
        literal += text[at : token.start()]
        at = token.end()
        if token[1] is not None:
            found += [literal, Value(token[1])] if literal else [Value(token[1])]
            literal = ""
        elif token[0] in ("{{", "}}"):
            literal += token[0][0]
        else:
            raise BadTemplate(f"{text!r} has a {token[0]!r} of its own; write {token[0] * 2!r} for a brace")
    literal += text[at:]
    return (*found, literal) if literal else tuple(found)


def columns_of(text: str) -> list[str]:
    """The columns that a text names."""
    return [piece.column for piece in parse(text) if isinstance(piece, Value)]


def compile_row(template: Mapping[str, Any]) -> list[str | Value | Inner]:
    """A row's template as literal JSON and values between it."""
    joined: list[str | Value | Inner] = []
    for piece in _compile(template):
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def _compile(template: Any) -> Iterator[str | Value | Inner]:
    match template:
        case Mapping():
            for index, (name, value) in enumerate(template.items()):
                yield ("," if index else "{") + json.dumps(str(name), ensure_ascii=False) + ":"
                yield from _compile(value)
            yield "}" if template else "{}"
        case list() | tuple():
            yield "["
            for index, value in enumerate(template):
                yield "," if index else ""
                yield from _compile(value)
            yield "]"
        case str():
            pieces = parse(template)
            if len(pieces) == 1 and isinstance(pieces[0], Value):
                yield pieces[0]
                return
            yield '"'
            for piece in pieces:
                yield Inner(piece.column) if isinstance(piece, Value) else json.dumps(piece, ensure_ascii=False)[1:-1]
            yield '"'
        case None | bool() | int() | float():
            try:
                yield json.dumps(template, allow_nan=False)
            except ValueError:
                raise BadTemplate(f"{template} is no value of JSON") from None
        case _:
            raise BadTemplate(f"{template!r} is no value of JSON: put it into quotes")


def split_body(template: Mapping[str, Any]) -> tuple[str, str]:
    """A body's template as the JSON before the array of rows and the JSON after it."""
    pieces = compile_row(template)
    places = [piece for piece in pieces if not isinstance(piece, str)]
    if places != [Value(ROWS)]:
        named = ", ".join(sorted({f"{{{piece.column}}}" for piece in places})) or "no placeholder"
        raise BadTemplate(
            f"`body` has {named}; it needs {{{ROWS}}} once, alone in its string, in the place of the array"
        )
    at = pieces.index(Value(ROWS))
    before, after = pieces[:at], pieces[at + 1 :]
    return "".join(map(str, before)), "".join(map(str, after))


def fill_path(text: str, values: Mapping[str, Any]) -> str:
    """A path with a row's values, percent-encoded: none can leave its segment."""
    return "".join(_segment(_spell(values[p.column])) if isinstance(p, Value) else p for p in parse(text))


def fill_header(text: str, values: Mapping[str, Any]) -> str:
    """A header with a row's values: visible ASCII and inner spaces stay, everything else is percent-encoded."""
    whole = "".join(_spell(values[p.column]) if isinstance(p, Value) else p for p in parse(text))
    return "".join(each if " " <= each <= "~" else quote(each) for each in whole).strip()


def _segment(text: str) -> str:
    # As they are, "." and ".." would be taken out of a path.
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def _spell(value: Any) -> str:
    """A value outside of JSON; NULL is nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))

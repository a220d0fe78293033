"""Expressions of a pipeline file: SQL with `{column}` for a column of the row, and the match of a fan-out."""

from __future__ import annotations

import re
from collections.abc import Callable

from psycopg import sql

#: an escaped brace, a placeholder, or a brace that is neither
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")
_MATCH = re.compile(r"\s*(\S+)\s+eq\s+\{([^{}]+)\}\s*", re.IGNORECASE)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)


def placeholders(text: str) -> tuple[str, ...]:
    """The columns that an expression names, each once; ValueError for a brace without its partner."""
    found: list[str] = []
    for token in _TOKEN.finditer(text):
        if token[1] is not None:
            found.append(token[1].strip())
        elif token[0] in "{}":
            raise ValueError(f"a brace at {text[token.start() :][:12]!r} has no partner; write {{{{ for a plain one")
    return tuple(dict.fromkeys(found))


def fill(text: str, column: Callable[[str], sql.Composable]) -> sql.Composed:
    """The expression with its placeholders filled. A line break at the end, because it may end in a comment."""
    parts: list[sql.Composable] = []
    at = 0
    for token in _TOKEN.finditer(text):
        parts.append(sql.SQL(text[at : token.start()]))
        parts.append(column(token[1].strip()) if token[1] is not None else sql.SQL(token[0][0]))
        at = token.end()
    return sql.Composed([*parts, sql.SQL(text[at:]), sql.SQL("\n" if "--" in text else "")])


def parse_match(text: str) -> tuple[tuple[str, str], ...]:
    """(field of the entity, column of the table) of `post_id eq {id} and …`; ValueError if it is none."""
    found = []
    for part in _AND.split(text):
        match = _MATCH.fullmatch(part)
        if match is None:
            raise ValueError(f"{part.strip()!r} is no match; write `FIELD eq {{COLUMN}}`, joined by `and`")
        found.append((match[1], match[2].strip()))
    fields = [field for field, _ in found]
    if len(set(fields)) < len(fields):
        raise ValueError("compares a field twice")
    return tuple(found)

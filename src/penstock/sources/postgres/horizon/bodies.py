"""What a trigger's function does to the row at hand, where its text tells for certain.

Only the simplest bodies tell: assignments to columns of NEW, then RETURN NEW. Whatever else there is (a condition, a
loop, a query, another language) may do anything, and is said to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: a column's value as the tokens of its expression
Expression = tuple[str, ...]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+ | --[^\n]*)
  | (?P<comment>/\*)
  | (?P<dollar>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
  | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*')
  | (?P<text>'(?:[^']|'')*')
  | (?P<name>"(?:[^"]|"")+")
  | (?P<word>[^\W\d]\w*)
  | (?P<sign>:=|::|.)
    """,
    re.DOTALL | re.VERBOSE,
)
_CALLS = ("now", "transaction_timestamp")
_STARTS: frozenset[Expression] = frozenset(
    {("current_timestamp",)} | {(*schema, call, "(", ")") for call in _CALLS for schema in ((), ("pg_catalog", "."))}
)
_CLOCKS: frozenset[Expression] = frozenset(
    (*schema, call, "(", ")")
    for call in ("clock_timestamp", "statement_timestamp")
    for schema in ((), ("pg_catalog", "."))
)
_CASTS = (("::", "timestamptz"), ("::", "timestamp", "with", "time", "zone"))


def assignments(source: str) -> Mapping[str, Expression] | None:
    """The columns that a body of plpgsql sets, with the last value of each; None: it may do anything."""
    tokens = _tokens(source)
    if tokens is None:
        return None
    while tokens and tokens[-1] == ";":
        tokens.pop()
    if len(tokens) < 2 or tokens[0] != "begin" or tokens[-1] != "end":
        return None
    statements = _statements(tokens[1:-1])
    if not statements or statements.pop() != ["return", "new"]:
        return None
    found: dict[str, Expression] = {}
    for each in statements:
        if each == ["null"]:
            continue
        if len(each) < 5 or each[:2] != ["new", "."] or each[3] not in (":=", "="):
            return None
        found[_spelt(each[2])] = tuple(each[4:])
    return found


def starts(value: Expression) -> bool:
    """Whether an expression is the time at which its transaction began."""
    return _bare(value) in _STARTS


def reads_the_clock(value: Expression) -> bool:
    """Whether an expression is the time of a moment after its transaction began."""
    return _bare(value) in _CLOCKS


def _bare(value: Expression) -> Expression:
    """Without a cast to the type that it has anyway, and without parentheses around it all."""
    for cast in _CASTS:
        if value[-len(cast) :] == cast:
            return _bare(value[: -len(cast)])
    if value[:1] == ("(",) and value[-1:] == (")",):
        return _bare(value[1:-1])
    return value


def _statements(tokens: Sequence[str]) -> list[list[str]] | None:
    """Cut at semicolons; None if the last one does not end."""
    found: list[list[str]] = [[]]
    for token in tokens:
        if token == ";":
            found.append([])
        else:
            found[-1].append(token)
    return found[:-1] if not found[-1] else None


def _tokens(source: str) -> list[str] | None:
    """Words in lower case, quoted names and texts as they are, without comments; None if it cannot be cut."""
    found: list[str] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            return None
        at = match.end()
        if match["comment"]:
            end = _after_comment(source, at)
            if end is None:
                return None
            at = end
        elif match["sign"] in ("'", '"', "\\"):
            return None
        elif not match["space"]:
            found.append(match[0].lower() if match["word"] else match[0])
    return found


def _after_comment(source: str, at: int) -> int | None:
    """The place after a comment that has been begun; comments nest."""
    depth = 1
    for match in re.compile(r"/\*|\*/").finditer(source, at):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return None


def _spelt(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name

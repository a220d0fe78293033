"""Triggers that see a row before it is written, and what their functions do to it.

Only the simplest function bodies are understood: assignments to columns of NEW, then RETURN NEW. Any other body (a
condition, a loop, a query, another language) may do anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: the value of a column as the tokens of its expression
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
_TRANSACTION_START: frozenset[Expression] = frozenset(
    {("current_timestamp",)} | {(*schema, call, "(", ")") for call in _CALLS for schema in ((), ("pg_catalog", "."))}
)
_CLOCKS: frozenset[Expression] = frozenset(
    (*schema, call, "(", ")")
    for call in ("clock_timestamp", "statement_timestamp")
    for schema in ((), ("pg_catalog", "."))
)
_CASTS = (("::", "timestamptz"), ("::", "timestamp", "with", "time", "zone"))


def read_assignments(source: str) -> Mapping[str, Expression] | None:
    """The columns that a plpgsql body sets, with the last value of each; None: it may do anything."""
    tokens = _tokenize(source)
    if tokens is None:
        return None
    while tokens and tokens[-1] == ";":
        tokens.pop()
    if len(tokens) < 2 or tokens[0] != "begin" or tokens[-1] != "end":
        return None
    statements = _split_statements(tokens[1:-1])
    if not statements or statements.pop() != ["return", "new"]:
        return None
    values: dict[str, Expression] = {}
    for each in statements:
        if each == ["null"]:
            continue
        if len(each) < 5 or each[:2] != ["new", "."] or each[3] not in (":=", "="):
            return None
        values[_unquote(each[2])] = tuple(each[4:])
    return values


def is_transaction_start(value: Expression) -> bool:
    """Whether an expression is the start time of its transaction."""
    return _simplify(value) in _TRANSACTION_START


def is_clock(value: Expression) -> bool:
    """Whether an expression is the time at which it is evaluated."""
    return _simplify(value) in _CLOCKS


def _simplify(value: Expression) -> Expression:
    """The expression without a redundant cast and without enclosing parentheses."""
    for cast in _CASTS:
        if value[-len(cast) :] == cast:
            return _simplify(value[: -len(cast)])
    if value[:1] == ("(",) and value[-1:] == (")",):
        return _simplify(value[1:-1])
    return value


def _split_statements(tokens: Sequence[str]) -> list[list[str]] | None:
    """Split at semicolons; None if the last statement has no semicolon."""
    found: list[list[str]] = [[]]
    for token in tokens:
        if token == ";":
            found.append([])
        else:
            found[-1].append(token)
    return found[:-1] if not found[-1] else None


def _tokenize(source: str) -> list[str] | None:
    """Words in lower case, quoted names and strings unchanged, without comments; None if it cannot be split."""
    found: list[str] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            return None
        at = match.end()
        if match["comment"]:
            end = _skip_comment(source, at)
            if end is None:
                return None
            at = end
        elif match["sign"] in ("'", '"', "\\"):
            return None
        elif not match["space"]:
            found.append(match[0].lower() if match["word"] else match[0])
    return found


def _skip_comment(source: str, at: int) -> int | None:
    """The position after a comment; comments nest."""
    depth = 1
    for match in re.compile(r"/\*|\*/").finditer(source, at):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return None


def _unquote(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


@dataclass(frozen=True, slots=True)
class Trigger:
    """A row trigger that fires before a write."""

    name: str
    #: as pg_trigger has it: O, A, R or D
    enabled: str
    insert: bool
    update: bool
    #: for every row: without WHEN and UPDATE OF
    always: bool
    language: str
    function: str
    source: str
    arguments: Sequence[str] | None

    def fires(self, event: str, *, replica: bool) -> bool:
        return bool(getattr(self, event)) and self.enabled in ("AR" if replica else "OA")

    def sets(self, column: str) -> Expression | bool:
        """The expression that it assigns to a column; False: it leaves the column alone, True: it may do anything."""
        if self.language == "c" and self.function == "moddatetime":
            return ("now", "(", ")") if column in (self.arguments or ()) else False
        values = read_assignments(self.source) if self.language == "plpgsql" else None
        return True if values is None else values.get(column, False)


def find_stamping_trigger(triggers: Sequence[Trigger], column: str, *, replica: bool = False) -> Trigger | None:
    """Find the trigger that sets a column to the time of every update; None: no trigger does so for certain.

    `triggers` are in firing order. The last one that sets the column decides: a condition (WHEN, IF, UPDATE OF) lets
    some updates pass, and a body with more than assignments may do anything. `replica`: in a subscription's session.
    """
    found: Trigger | None = None
    for trigger in triggers:
        if not trigger.fires("update", replica=replica):
            continue
        value = trigger.sets(column)
        if value is False:
            continue
        stamps = isinstance(value, tuple) and (is_transaction_start(value) or is_clock(value))
        if not stamps:
            found = None
        elif trigger.always:
            found = trigger
    return found

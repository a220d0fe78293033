"""JSON whose values are SQL: written as an expression of type jsonb, or as one of its text, byte by byte the same.

The text costs the server a third: only the values are made by its JSON functions, not what is around them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from psycopg import sql

#: SQL is an expression of type jsonb, or NULL
Node = Mapping[str, "Node"] | Sequence["Node"] | str | int | bool | sql.Composable | None

#: function calls have at most 100 arguments
_MOST_ARGUMENTS = 90


def as_jsonb(node: Node) -> sql.Composable:
    """An expression of type jsonb; for a string, a number or a boolean, one that a function for jsonb takes."""
    if isinstance(node, sql.Composable):
        return node
    if isinstance(node, Mapping):
        members = [sql.SQL("{}, {}").format(sql.Literal(name), as_jsonb(value)) for name, value in node.items()]
        return sql.SQL("jsonb_build_object({})").format(commas(members))
    if node is None or isinstance(node, bool):
        return sql.SQL("NULL" if node is None else str(node).lower())
    return sql.Literal(node) if isinstance(node, str | int) else array(map(as_jsonb, node))


def array(members: Iterable[sql.Composable]) -> sql.Composable:
    """A jsonb array of any length."""
    every = list(members)
    pieces = [every[at : at + _MOST_ARGUMENTS] for at in range(0, len(every), _MOST_ARGUMENTS)] or [[]]
    arrays = [sql.SQL("jsonb_build_array({})").format(commas(piece)) for piece in pieces]
    return arrays[0] if len(arrays) == 1 else sql.SQL("({})").format(sql.SQL(" || ").join(arrays))


def as_text(node: Node) -> sql.Composable:
    """An expression of type text: what the server prints for `as_jsonb`."""
    arguments: list[sql.Composable] = []
    constant = ""
    for piece in _pieces(node):
        if isinstance(piece, str):
            constant += piece
        else:
            arguments += [sql.Literal(constant), sql.SQL("coalesce(({})::text, 'null')").format(piece)]
            constant = ""
    return _concat([*arguments, sql.Literal(constant)])


def _concat(arguments: Sequence[sql.Composable]) -> sql.Composable:
    if len(arguments) > _MOST_ARGUMENTS:
        groups = [arguments[at : at + _MOST_ARGUMENTS] for at in range(0, len(arguments), _MOST_ARGUMENTS)]
        return _concat(list(map(_concat, groups)))
    return sql.SQL("concat({})").format(commas(arguments))


def _pieces(node: Node) -> Iterator[str | sql.Composable]:
    """Constant text and expressions, in order. jsonb has the shorter of two names first."""
    if isinstance(node, sql.Composable):
        yield node
    elif isinstance(node, Mapping):
        names = sorted(node, key=lambda name: (len(name.encode()), name.encode()))
        yield "{"
        for number, name in enumerate(names):
            yield f"{', ' if number else ''}{json.dumps(name, ensure_ascii=False)}: "
            yield from _pieces(node[name])
        yield "}"
    elif isinstance(node, str | int) or node is None:
        yield json.dumps(node, ensure_ascii=False)
    else:
        yield "["
        for number, member in enumerate(node):
            yield ", " if number else ""
            yield from _pieces(member)
        yield "]"


def commas(members: Iterable[sql.Composable]) -> sql.Composable:
    return sql.SQL(", ").join(members)

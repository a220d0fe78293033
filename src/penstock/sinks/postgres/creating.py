"""A stream's table: made, given columns that it lacks, and wider ones where the source's became wider.

A column has the source's own type where that is here too, else one that holds each of its values; what it was at the
source is then said in a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.core.content import Column, Content
from penstock.core.types import Type
from penstock.links.postgres.literals import TableName, join_identifiers, load_statement
from penstock.links.postgres.types import form_for, is_known_type, postgres_type, without_modifier
from penstock.sinks.postgres.fitting import CHANGE, UNREADABLE
from penstock.sinks.postgres.ledger import ROOM
from penstock.sinks.postgres.target import Target
from penstock.sinks.postgres.widening import widens

#: types whose values name things of the source's own database, which need not be here
_NAMING = frozenset(
    {"regclass", "regcollation", "regconfig", "regdictionary", "regnamespace", "regoper", "regoperator", "regproc"}
    | {"regprocedure", "regrole", "regtype", "aclitem"}
)
#: words of the postgres source for types that are not built in
_KINDS = frozenset(
    kind + array for kind in ("enum", "composite", "range", "multirange", "extension") for array in ("", "[]")
)
#: modifiers as `format_type` spells them; a built-in type with another one is not taken at its word
_MODIFIED = re.compile(r"[^()]*(\(\d+(,-?\d+)?\)[^()]*)?")


@dataclass(frozen=True)
class Making:
    """One stream and its table."""

    pipeline: str
    stream: str
    table: TableName
    #: the stream as it is now, and as it was in the last slice that came in; None: none has
    content: Content
    before: Content | None
    key: Sequence[str]
    #: a column of the table's own that marks what is deleted; None: none does
    mark: str | None = None

    def statements(self, connection: psycopg.Connection[Any], target: Target | None) -> list[sql.Composed]:
        """What makes the table as the stream needs it; []: it is."""
        lacking = self._lacking(target)
        types = types_of(connection, lacking)
        columns = [(column.name, types[column.name]) for column in lacking]
        if self.mark and (target is None or target.column(self.mark) is None):
            columns.append((self.mark, "timestamp with time zone"))
        found = []
        if target is None:
            words = f"penstock: stream {self.stream} of pipeline {self.pipeline}"
            found += [_create(self.table, columns, self.key), _comment("TABLE", self.table.sql, words)]
        elif columns:
            found.append(_add(self.table, columns))
        found += self._comments(lacking, types)
        if target is not None:
            found += [self._widen(*column) for column in self.wider(connection, target)]
        return found

    def wider(self, connection: psycopg.Connection[Any], target: Target) -> list[tuple[str, str]]:
        """Columns whose type became wider at the source, and is narrower in the table; each with its new type."""
        were = {column.name: column for column in self.before.columns} if self.before else {}
        changed = [
            column
            for column in self.content.columns
            if column.name in were and column.described != were[column.name].described
        ]
        if not changed:
            return []
        types = types_of(connection, changed)
        before = types_of(connection, [were[column.name] for column in changed])
        return [(name, now) for name, now in types.items() if self._widened(target, name, before[name], now)]

    def _widened(self, target: Target, name: str, was: str, now: str) -> bool:
        there = target.column(name)
        if there is None or there.type == now:
            return False
        # Every value has a print; a column of another type than the source's had is the user's will.
        printed = now == "text" or (now == "text[]" and there.free.endswith("[]"))
        return (printed and there.type == was) or widens(there.type, now)

    def _lacking(self, target: Target | None) -> list[Column]:
        """The stream's columns that the table has not."""
        wanted = [column for column in self.content.columns if column.name != CHANGE]
        return [column for column in wanted if target is None or target.column(column.name) is None]

    def _comments(self, columns: Sequence[Column], types: Mapping[str, str]) -> Iterator[sql.Composed]:
        for column in columns:
            said, name = column.origin, column.name
            # Another system's own word for the same type says nothing.
            if said and (column.base or is_known_type(said)) and said != types[name]:
                at = sql.Identifier(self.table.schema, self.table.name, name)
                yield _comment("COLUMN", at, f"{said} at the source")

    def _widen(self, name: str, type_: str) -> sql.Composed:
        return sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {} USING {}::{}").format(
            self.table.sql, sql.Identifier(name), sql.SQL(type_), sql.Identifier(name), sql.SQL(type_)
        )


def types_of(connection: psycopg.Connection[Any], columns: Sequence[Column]) -> dict[str, str]:
    """The type of each new column: the source's own if it is here, else one that holds its type."""
    asked = [column.origin for column in columns if column.base and column.origin and not is_known_type(column.origin)]
    here: dict[str, str] = {}
    if asked:
        query = load_statement(ROOM, "types").format(types=sql.Literal(asked))
        here = dict(connection.execute(query).fetchall())
    return {column.name: _type(column, here) for column in columns}


def _type(column: Column, here: Mapping[str, str]) -> str:
    said, base, type_ = column.origin, column.base, column.type
    if said and base and _writable(base) and here.get(said) == base:
        return said
    # A domain that is not here is what it is made of.
    for known_ in (said, base):
        if known_ and _writable(known_) and _built_in(known_) and _becomes(known_, type_):
            return known_
    found = postgres_type(type_)
    if found is None:
        raise ValueError(f"{type_} has no form in Postgres")  # `check` has refused it before
    return found


def _writable(type_: str) -> bool:
    return without_modifier(type_).removesuffix("[]") not in _NAMING | UNREADABLE


def _built_in(type_: str) -> bool:
    # An array in a domain in an array is no array of arrays, and the kinds of other types are no types.
    return (
        is_known_type(type_) and bool(_MODIFIED.fullmatch(type_)) and not type_.endswith("[][]") and type_ not in _KINDS
    )


def _becomes(origin: str, type_: Type) -> bool:
    """Whether a source that says a type of Postgres' means what Postgres means by it."""
    try:
        form_for(origin, type_)
    except ValueError:
        return False
    return True


def _create(name: TableName, columns: Sequence[tuple[str, str]], key: Sequence[str]) -> sql.Composed:
    parts = [_column(*column) for column in columns]
    if key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(join_identifiers(key)))
    return sql.SQL("CREATE TABLE {} ({})").format(name.sql, sql.SQL(", ").join(parts))


def _add(name: TableName, columns: Sequence[tuple[str, str]]) -> sql.Composed:
    parts = (sql.SQL("ADD COLUMN {}").format(_column(*column)) for column in columns)
    return sql.SQL("ALTER TABLE {} {}").format(name.sql, sql.SQL(", ").join(parts))


def _column(name: str, type_: str) -> sql.Composed:
    return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_))


def _comment(what: str, name: sql.Identifier, words: str) -> sql.Composed:
    return sql.SQL("COMMENT ON {} {} IS {}").format(sql.SQL(what), name, sql.Literal(words))

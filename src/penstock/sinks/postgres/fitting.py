"""Which column of the table a column of the stream becomes, in which type, and whether every value fits exactly.

What is put aside is cast to the column's own type without its modifier, as the server would read its print. A modifier
(`varchar(5)`, `numeric(12,2)`) would cut or round without a word in a cast: whether it changes a value is asked first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from penstock.core.documents import Document
from penstock.core.drift import columns_of
from penstock.sinks.postgres.staging import sent
from penstock.sinks.postgres.target import Target, TargetColumn

#: the column that says what a row is: an upsert or a delete
CHANGE = "_change"

_NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")
#: types of the driver, and those that hold each of its values without a cast that could change it
_HOLDS: Mapping[str, frozenset[str]] = {
    "boolean": frozenset({"boolean"}),
    "smallint": frozenset({"smallint", "integer", "bigint", "real", "double precision", "numeric"}),
    "integer": frozenset({"smallint", "integer", "bigint", "double precision", "numeric"}),
    "bigint": frozenset({"smallint", "integer", "bigint", "numeric", "oid", "xid8"}),
    "real": frozenset({"real", "double precision"}),
    "double precision": frozenset({"double precision"}),
    "bytea": frozenset({"bytea"}),
    "date": frozenset({"date", "timestamp without time zone"}),
    "time without time zone": frozenset({"time without time zone"}),
    "timestamp without time zone": frozenset({"timestamp without time zone"}),
    "timestamp with time zone": frozenset({"timestamp with time zone"}),
}
#: the type without a modifier that a value of a limited type is compared in
_UNLIMITED: Mapping[str, str] = {"character": "bpchar", "bit": "bit varying"}


@dataclass(frozen=True, slots=True)
class Fitted:
    """A column on its way from what is put aside into the table."""

    name: str
    #: the type in which it is put aside
    sent: str
    column: TargetColumn

    def value(self, row: str) -> sql.Composed:
        """The value as the table will hold it, from the row with this alias."""
        given = sql.Identifier(row, self.name)
        full = self.column.type
        if self.sent == full or self.sent == self.column.base:
            return sql.Composed([given])
        return sql.SQL("{}::{}").format(given, sql.SQL(full))

    def changed(self, row: str) -> sql.Composed | None:
        """Whether the column's modifier would change the value, as SQL; None: it never does. Never NULL."""
        if not self.column.limited or self.sent == self.column.type:
            return None
        if _holds_decimal(self.sent, self.column.base or self.column.type):
            return None
        free = sql.SQL(_unlimited(self.column.base or self.column.bare))
        given = sql.Identifier(row, self.name)
        return sql.SQL("({0}::{1} IS DISTINCT FROM ({0}::{2})::{1})").format(given, free, sql.SQL(self.column.type))


def fits(sent_as: str, column: TargetColumn) -> bool:
    """Whether values that are sent in one type can be exact in a column; text may be anything, and is tried."""
    holds = re.sub(r"\([^)]*\)", "", column.base or column.bare)
    if sent_as == "text":
        return True
    if sent_as.endswith("[]") or holds.endswith("[]"):
        if sent_as == "text[]":
            return holds.endswith("[]")
        return sent_as.endswith("[]") and holds.endswith("[]") and _fits(sent_as[:-2], holds[:-2])
    return _fits(sent_as, holds)


def _unlimited(type_: str) -> str:
    """The type without its modifier; `character` alone would be one character, and `bit` one bit."""
    plain = re.sub(r"\([^)]*\)", "", type_)
    item = plain.removesuffix("[]")
    return _UNLIMITED.get(item, item) + plain[len(item) :]


def _fits(sent_as: str, holds: str) -> bool:
    if sent_as.startswith("numeric"):
        return holds in ("numeric", "money")
    return holds in _HOLDS.get(sent_as, ())


def _holds_decimal(sent_as: str, holds: str) -> bool:
    given, wanted = _NUMERIC.fullmatch(sent_as), _NUMERIC.fullmatch(holds)
    if given is None or wanted is None or given[1] is None or wanted[1] is None:
        return False
    return int(given[2]) <= int(wanted[2]) and int(given[1]) - int(given[2]) <= int(wanted[1]) - int(wanted[2])


def put_aside(content: Document) -> list[tuple[str, str | None]]:
    """The stream's columns, and the type in which each is put aside; None: it cannot be."""
    return [(column["name"], sent(column["arrow"])) for column in columns_of(content)]


def lacking(columns: Sequence[tuple[str, str]], target: Target | None) -> list[str]:
    """The stream's columns that the table has not."""
    return [name for name, _ in columns if name != CHANGE and (target is None or target.column(name) is None)]


def fitted(columns: Sequence[tuple[str, str]], target: Target) -> tuple[Fitted, ...]:
    """Each column of the stream with that of the table, which has them all (see `lacking`)."""
    by_name = {column.name: column for column in target.columns}
    return tuple(Fitted(name, type_, by_name[name]) for name, type_ in columns if name != CHANGE)


def described(column: Mapping[str, Any]) -> str:
    """A column of a stream for people: in the source's own words where it has any."""
    return str(column.get("type") or column["arrow"])

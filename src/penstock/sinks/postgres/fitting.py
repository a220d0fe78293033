"""Which column of the table a column of the stream becomes, in which type, and whether every value fits exactly.

What is put aside is cast to the column's own type, as the server would read its print. A modifier (`varchar(5)`,
`numeric(12,2)`) would cut or round without a word in a cast, and so do some types: whether a value is changed is asked
first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.core.content import Content
from penstock.core.types import Decimal
from penstock.core.widening import widens
from penstock.links.postgres.types import number_type, postgres_type
from penstock.sinks.postgres.target import Target, TargetColumn

#: the column that says what a row is: an upsert or a delete
CHANGE = "_change"

#: types of the driver, and those that hold each of its values, or refuse it aloud
_HOLDS: Mapping[str, frozenset[str]] = {
    "boolean": frozenset({"boolean"}),
    "smallint": frozenset({"smallint", "integer", "bigint", "real", "double precision", "numeric"}),
    "integer": frozenset({"smallint", "integer", "bigint", "double precision", "numeric"}),
    "bigint": frozenset({"smallint", "integer", "bigint", "numeric", "oid"}),
    "real": frozenset({"real", "double precision"}),
    "double precision": frozenset({"double precision"}),
    "numeric": frozenset({"numeric"}),
    "bytea": frozenset({"bytea"}),
    "date": frozenset({"date", "timestamp without time zone"}),
    "time without time zone": frozenset({"time without time zone"}),
    "timestamp without time zone": frozenset({"timestamp without time zone"}),
    "timestamp with time zone": frozenset({"timestamp with time zone"}),
}
#: types whose values the server makes and never reads
UNREADABLE = frozenset(
    {"pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "gtsvector"}
    | {"pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"}
)
#: types that take more text than they keep, and whether they would; the session's time zone is UTC
_KEEPS_LESS: Mapping[str, str] = {
    "date": "CASE WHEN {0} ~ '(:|[Tt][0-9])' THEN {0}::timestamptz IS DISTINCT FROM {0}::date::timestamptz "
    "ELSE false END",
    "time without time zone": "({0} ~ '[0-9]-[0-9]' OR {0}::timetz IS DISTINCT FROM {0}::time::timetz)",
    "timestamp without time zone": "({0}::timestamptz IS DISTINCT FROM {0}::timestamp::timestamptz)",
    "name": "({0} IS DISTINCT FROM {0}::name::text)",
}


@dataclass(frozen=True, slots=True)
class Fitted:
    """A column on its way from what is put aside into the table."""

    name: str
    #: the type in which it is put aside
    sent: str
    column: TargetColumn

    def value(self, row: str) -> sql.Composed:
        """The value as the table will hold it, from the row with this alias."""
        found = self._cast(sql.Identifier(row, self.name))
        collation = self.column.collation
        return sql.SQL("({} COLLATE {})").format(found, sql.SQL(collation)) if collation else found

    def _cast(self, given: sql.Identifier) -> sql.Composed:
        full = self.column.type
        if self.sent == full:
            return sql.Composed([given])
        if self.column.converted and self._item == "text":
            # An array is read element by element, each as its type reads it.
            if self.sent == "text[]":
                return sql.SQL("{}::text::{}").format(given, sql.SQL(full))
            return sql.SQL("(ARRAY[{}]::text::{}[])[1]").format(given, sql.SQL(full))
        return sql.SQL("{}::{}").format(given, sql.SQL(full))

    @property
    def equals(self) -> sql.Composable:
        """The operator by which a key of the table is known again."""
        return sql.SQL("OPERATOR({})").format(sql.SQL(self.column.equals)) if self.column.equals else sql.SQL("=")

    def changed(self, row: str) -> sql.Composed | None:
        """Whether the column would change the value, as SQL; None: it never does. Never NULL."""
        column, given = self.column, sql.Identifier(row, self.name)
        if self.sent == column.type:
            return None
        if not column.limited:
            less = _KEEPS_LESS.get(column.free) if self.sent == "text" else None
            return sql.SQL("({0} IS NOT NULL AND {1})").format(given, sql.SQL(less).format(given)) if less else None
        if _holds_decimal(self.sent, column.base or column.type):
            return None
        if column.inner:
            # The source prints it as this session does.
            as_sent = sql.SQL(self.sent)
            return sql.SQL("({0} IS DISTINCT FROM ({1})::{2})").format(given, self._cast(given), as_sent)
        # Operators of an extension are not in pg_catalog, where ours are looked up.
        compared = sql.SQL("{}" if column.built_in else "{}::text")
        free = sql.SQL(column.free)
        before = compared.format(sql.SQL("{}::{}").format(given, free))
        after = compared.format(sql.SQL("({})::{}").format(self._cast(given), free))
        return sql.SQL("({} IS DISTINCT FROM {})").format(before, after)

    @property
    def _item(self) -> str:
        """What is read: text, or the elements of an array of it; of an array that comes as it is printed, neither."""
        return self.sent.removesuffix("[]") if self.sent.endswith("[]") == self.column.free.endswith("[]") else ""


def fits(sent_as: str, column: TargetColumn) -> bool:
    """Whether values that are sent in one type can be exact in a column; text may be anything, and is tried."""
    holds = column.free
    if sent_as == "text":
        return True
    if sent_as.endswith("[]") or holds.endswith("[]"):
        if sent_as == "text[]":
            return holds.endswith("[]")
        return sent_as.endswith("[]") and holds.endswith("[]") and _fits(sent_as[:-2], holds[:-2])
    return _fits(sent_as, holds)


def readable(column: TargetColumn) -> bool:
    """Whether the server takes values of the column's type at all."""
    return column.free.removesuffix("[]") not in UNREADABLE


def _fits(sent_as: str, holds: str) -> bool:
    return holds in _HOLDS.get(re.sub(r"\([^)]*\)", "", sent_as), ())


def _holds_decimal(sent_as: str, holds: str) -> bool:
    given, wanted = number_type(sent_as), number_type(holds)
    if not isinstance(given, Decimal) or not isinstance(wanted, Decimal):
        return False
    return given == wanted or widens(given, wanted)


def put_aside(content: Content) -> list[tuple[str, str | None]]:
    """The stream's columns, and the type in which each is put aside; None: it cannot be.

    Rows that may be deletes say so in a column that a content need not list.
    """
    found = [(column.name, postgres_type(column.type)) for column in content.columns]
    carried = content.changes and all(name != CHANGE for name, _ in found)
    return [*found, (CHANGE, "text")] if carried else found


def lacking(columns: Sequence[tuple[str, str]], target: Target | None) -> list[str]:
    """The stream's columns that the table has not."""
    return [name for name, _ in columns if name != CHANGE and (target is None or target.column(name) is None)]


def fitted(columns: Sequence[tuple[str, str]], target: Target) -> tuple[Fitted, ...]:
    """Each column of the stream with that of the table, which has them all (see `lacking`)."""
    by_name = {column.name: column for column in target.columns}
    return tuple(Fitted(name, type_, by_name[name]) for name, type_ in columns if name != CHANGE)

"""Map a stream's columns to those of the table: the types in which they are staged, and whether every value fits.

A staged value is cast to the column's type, as the server would read its printed form. In a cast, a modifier
(`varchar(5)`, `numeric(12,2)`) and some types cut or round a value silently, so such values are looked for first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.core.content import Content
from penstock.core.types import Decimal
from penstock.core.widening import widens
from penstock.errors import StreamRefused
from penstock.links.postgres.types import number_type, postgres_type
from penstock.sinks.postgres.target import Target, TargetColumn

#: the column that says whether a row is an upsert or a delete
CHANGE = "_change"

#: for each type that the driver sends: the column types that hold all of its values, or fail on one
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
#: types whose values the server produces and does not accept
OUTPUT_ONLY = frozenset(
    {"pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "gtsvector"}
    | {"pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"}
)
#: types that accept more text than they store, each with a test for a value that would change; the time zone is UTC
_KEEPS_LESS: Mapping[str, str] = {
    "date": "CASE WHEN {0} ~ '(:|[Tt][0-9])' THEN {0}::timestamptz IS DISTINCT FROM {0}::date::timestamptz "
    "ELSE false END",
    "time without time zone": "({0} ~ '[0-9]-[0-9]' OR {0}::timetz IS DISTINCT FROM {0}::time::timetz)",
    "timestamp without time zone": "({0}::timestamptz IS DISTINCT FROM {0}::timestamp::timestamptz)",
    "name": "({0} IS DISTINCT FROM {0}::name::text)",
}


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A staged column and the table's column of the same name."""

    name: str
    #: the type in which it is staged
    sent: str
    column: TargetColumn

    def value(self, row: str) -> sql.Composed:
        """The value as the table will hold it, of the row with this alias."""
        value = self._cast(sql.Identifier(row, self.name))
        collation = self.column.collation
        return sql.SQL("({} COLLATE {})").format(value, sql.SQL(collation)) if collation else value

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
        """The operator that compares key values."""
        return sql.SQL("OPERATOR({})").format(sql.SQL(self.column.equals)) if self.column.equals else sql.SQL("=")

    def changes(self, row: str) -> sql.Composed | None:
        """SQL that tests whether the column would change the value; None: it never does. The test is never NULL."""
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
        """The type that is cast: of the value, or of an array's elements; empty: an array that is staged as text."""
        return self.sent.removesuffix("[]") if self.sent.endswith("[]") == self.column.free.endswith("[]") else ""


def fits(sent_as: str, column: TargetColumn) -> bool:
    """Whether a column can hold values of a staged type exactly. Text may hold anything, so the merge tries it."""
    holds = column.free
    if sent_as == "text":
        return True
    if sent_as.endswith("[]") or holds.endswith("[]"):
        if sent_as == "text[]":
            return holds.endswith("[]")
        return sent_as.endswith("[]") and holds.endswith("[]") and _fits(sent_as[:-2], holds[:-2])
    return _fits(sent_as, holds)


def accepts_values(column: TargetColumn) -> bool:
    """Whether the server accepts values of the column's type at all."""
    return column.free.removesuffix("[]") not in OUTPUT_ONLY


def _fits(sent_as: str, holds: str) -> bool:
    return holds in _HOLDS.get(re.sub(r"\([^)]*\)", "", sent_as), ())


def _holds_decimal(sent_as: str, holds: str) -> bool:
    sent, wanted = number_type(sent_as), number_type(holds)
    return isinstance(sent, Decimal) and isinstance(wanted, Decimal) and (sent == wanted or widens(sent, wanted))


def staged_columns(content: Content) -> list[tuple[str, str]]:
    """The stream's columns, each with the type in which it is staged; StreamRefused if Postgres has none for it.

    Rows that may be deletes say so in a column that the content need not list.
    """
    columns = []
    for column in content.columns:
        type_ = postgres_type(column.type)
        if type_ is None:
            raise StreamRefused(
                f"column {column.name} is {column.type}, which has no form in Postgres",
                next_step="leave it out or cast it with `shape` on the stream, for example to text",
            )
        columns.append((column.name, type_))
    return [*columns, (CHANGE, "text")] if has_changes(content) and CHANGE not in dict(columns) else columns


def has_changes(content: Content) -> bool:
    """Whether rows say what they are, and may be deletes."""
    return content.changes or any(column.name == CHANGE for column in content.columns)


def missing_columns(columns: Sequence[tuple[str, str]], target: Target | None) -> list[str]:
    """The stream's columns that the table does not have."""
    return [name for name, _ in columns if name != CHANGE and (target is None or target.column(name) is None)]


def map_columns(columns: Sequence[tuple[str, str]], target: Target) -> tuple[MappedColumn, ...]:
    """Each column of the stream with the table's, which has them all (see `missing_columns`)."""
    by_name = {column.name: column for column in target.columns}
    return tuple(MappedColumn(name, type_, by_name[name]) for name, type_ in columns if name != CHANGE)

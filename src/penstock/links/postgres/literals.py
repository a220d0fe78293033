"""Names and values inside SQL text, quoted by psycopg's own composer; no value ever gets there another way.

Bound parameters are not used where rows are read: with them ADBC gives up COPY and returns one huge batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from psycopg import sql

_PART = r'"(?:[^"]|"")+"|[^".]+'
_TABLE = re.compile(rf"(?:({_PART})\.)?({_PART})")

#: words that are no names in SQL unless quoted (pg_get_keywords, categories R and T)
_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
        all analyse analyze and any array as asc asymmetric authorization binary both case cast check
        collate collation column concurrently constraint create cross current_catalog current_date
        current_role current_schema current_time current_timestamp current_user default deferrable desc
        distinct do else end except false fetch for foreign freeze from full grant group having ilike in
        initially inner intersect into is isnull join lateral leading left like limit localtime
        localtimestamp natural not notnull null offset on only or order outer overlaps placing primary
        references returning right select session_user similar some symmetric system_user table
        tablesample then to trailing true union unique user using variadic verbose when where window
        with
        """,
    )
)


@dataclass(frozen=True, slots=True)
class TableName:
    """A table and its schema, spelled exactly as in the catalog."""

    schema: str
    name: str

    @classmethod
    def read(cls, text: str, default_schema: str) -> TableName:
        """From `orders`, `sales.orders`, or `sales."or.ders"` where a name has a dot; or ValueError."""
        match = _TABLE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a table name; write table or schema.table")
        schema, name = (part and _unquoted(part) for part in match.groups())
        return cls(schema or default_schema, name)

    def __str__(self) -> str:
        """For people and documents; `read` gives the same name back."""
        return f"{_quoted_if_needed(self.schema)}.{_quoted_if_needed(self.name)}"

    @property
    def sql(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    @property
    def quoted(self) -> str:
        """The name in SQL that a user is asked to run."""
        return f"{quote(self.schema)}.{quote(self.name)}"


def join_identifiers(names: Iterable[str]) -> sql.Composed:
    """Quoted names with commas between them."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


def typed_literal(text: str, type_: str) -> sql.Composed:
    """A value in Postgres' own text, of a type as `format_type` spells it (which quotes what needs it)."""
    return sql.Literal(text) + sql.SQL("::") + sql.SQL(type_)


def row_of(members: Sequence[sql.Composable]) -> sql.Composed:
    """`(a, b)`: what a row comparison compares, and the only form that is an index condition."""
    return sql.SQL("({})").format(sql.SQL(", ").join(members))


def to_text(composed: sql.Composable) -> str:
    """The SQL text, to show to a user or to hand to ADBC."""
    return composed.as_string(None)


def escape_percents(composed: sql.Composable) -> sql.SQL:
    """A piece of a statement that has bound values: in it the driver takes each % for one of its own signs."""
    return sql.SQL(to_text(composed).replace("%", "%%"))


def quote(name: str) -> str:
    """An identifier for SQL that a user is asked to run: quoted only where it must be."""
    safe = re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in _RESERVED
    return name if safe else to_text(sql.Identifier(name))


@cache
def load_statement(room: str, name: str) -> sql.SQL:
    """The SQL file `sql/name.sql` of a room (a package), for its holes to be filled by `format`."""
    return sql.SQL(resources.files(room).joinpath("sql", f"{name}.sql").read_text("utf-8"))


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _quoted_if_needed(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if re.search(r'[".]', name) else name

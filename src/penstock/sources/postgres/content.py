"""The content of a table stream, which a replay reads by, and the SQL conditions that follow from it.

All conditions are about a table with the alias `t`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import sql

from penstock.core.content import Column, Content
from penstock.core.ranges import Key, Range
from penstock.links.postgres.connection import Identity
from penstock.links.postgres.literals import TableName, row_of, typed_literal
from penstock.links.postgres.types import Form, form_for

Mode = Literal["keyset", "refresh"]
TRUE = sql.SQL("true").format()


def postgres_type_of(column: Column) -> str:
    """The Postgres type of a column: the type behind a domain, the kind of a type that is not built in."""
    return column.base or column.origin or ""


def form_of(column: Column) -> Form:
    """How a column is transferred."""
    return form_for(postgres_type_of(column), column.type)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the key that orders a keyset stream."""

    column: str
    type: str


@dataclass(frozen=True, slots=True)
class TableContent:
    """A stream as it would be read now."""

    mode: Mode
    table: TableName
    columns: tuple[Column, ...]
    #: the columns that order a keyset stream; () for a refresh
    key: tuple[KeyColumn, ...]
    #: the cursor alone is the key
    unique: bool
    #: what to do with rows whose cursor is NULL
    nulls: str
    #: whether rows hidden by row-level security are accepted
    row_security: str
    identity: Identity
    #: the server's timeline, which tells a copy of the server apart; None if the server does not show it
    timeline: int | None = None
    #: a condition in SQL that a row must meet; None: every row does
    where: str | None = None
    #: what to do with values that Arrow cannot hold: fail, null or text
    unfit: str = "fail"
    primary_key: tuple[str, ...] = ()

    def content(self) -> Content:
        """The content for the engine, shaping and sinks."""
        keyset = {
            "order": [{"column": k.column, "type": k.type} for k in self.key],
            "unique": self.unique,
            "nulls": self.nulls,
        }
        private: dict[str, Any] = {"mode": self.mode, "unfit": self.unfit, "row_security": self.row_security}
        return Content(
            columns=self.columns,
            key=self.primary_key,
            filter=self.where,
            identity={
                "system": self.identity.system,
                "oid": self.identity.oid,
                "database": self.identity.database,
                "timeline": self.timeline,
                "table": str(self.table),
            },
            private=private | (keyset if self.mode == "keyset" else {}),
        )

    @classmethod
    def read(cls, content: Content) -> TableContent:
        """From a content; ValueError if a postgres stream did not make it."""
        identity: Any = content.identity
        private: Any = content.private
        try:
            mode: Mode = {"keyset": "keyset", "refresh": "refresh"}[private["mode"]]  # type: ignore[assignment]  # of str
            return cls(
                mode=mode,
                table=TableName.read(identity["table"], ""),
                columns=content.columns,
                key=tuple(KeyColumn(k["column"], k["type"]) for k in private.get("order", ())),
                unique=private.get("unique", False),
                nulls=private.get("nulls", "fail"),
                row_security=private["row_security"],
                identity=Identity(identity["system"], identity["oid"], identity["database"]),
                timeline=identity["timeline"],
                where=content.filter,
                unfit=private["unfit"],
                primary_key=content.key,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the content of a postgres stream: {error!r}") from error

    @classmethod
    def parse(cls, text: str) -> TableContent:
        """From the canonical form of a content."""
        return cls.read(Content.parse(text))

    # ------------------------------------------------------------ SQL

    @property
    def key_names(self) -> tuple[str, ...]:
        return column_names(self.key)

    @property
    def key_sql(self) -> list[sql.Identifier]:
        return [sql.Identifier("t", column.column) for column in self.key]

    @property
    def cursor_sql(self) -> sql.Identifier:
        return self.key_sql[0]

    @property
    def key_texts(self) -> sql.Composed:
        """The key as text, for a SELECT list."""
        return sql.SQL(", ").join(sql.SQL("{}::text").format(key) for key in self.key_sql)

    @property
    def ascending(self) -> sql.Composed:
        """The key's order, for ORDER BY."""
        return sql.SQL(", ").join(self.key_sql)

    @property
    def descending(self) -> sql.Composed:
        return sql.SQL(", ").join(sql.SQL("{} DESC").format(key) for key in self.key_sql)

    @property
    def filter_sql(self) -> sql.Composed:
        """The user's condition. On lines of its own, because it may end in a comment."""
        return sql.SQL("(\n{}\n)").format(sql.SQL(self.where)) if self.where else TRUE

    def literals(self, key: Key) -> list[sql.Composed]:
        return key_literals(self.key, key)

    def range_sql(self, range_: Range) -> sql.Composed:
        """The rows of a range, as row comparisons: the form that an index can serve."""
        sides = ((">", range_.after), ("<=", range_.upto))
        comparisons = [
            sql.SQL("{} {} {}").format(row_of(self.key_sql), sql.SQL(sign), row_of(self.literals(key)))
            for sign, key in sides
            if key is not None
        ]
        return sql.SQL(" AND ").join(comparisons) if comparisons else TRUE

    def cursor_bounds(self, range_: Range) -> list[sql.Composed]:
        """What a range implies about the cursor alone, for the planner.

        It treats the two sides of a row comparison as independent, and so expects a quarter of the table from a narrow
        range in its middle: enough to scan all of it.
        """
        if range_.after is None or range_.upto is None or len(self.key) == 1:
            return []
        low, high = self.literals(range_.after)[0], self.literals(range_.upto)[0]
        return [sql.SQL("{} BETWEEN {} AND {}").format(self.cursor_sql, low, high)]


def column_names(columns: Sequence[KeyColumn]) -> tuple[str, ...]:
    return tuple(column.column for column in columns)


def key_literals(columns: Sequence[KeyColumn], key: Key) -> list[sql.Composed]:
    """A key's texts as typed literals."""
    return [typed_literal(text, column.type) for column, text in zip(columns, key, strict=True)]

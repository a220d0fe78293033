"""What is read of a table: what a replay reads by, and how a content carries it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.core.content import Column, Content
from penstock.links.postgres.connection import Identity
from penstock.links.postgres.literals import TableName
from penstock.links.postgres.types import Form, form_for

Mode = Literal["keyset", "refresh"]


def declared(column: Column) -> str:
    """The Postgres type of a column that is read: of a domain what it is made of, of others that are not built in
    their kind.
    """
    return column.base or column.origin or ""


def form_of(column: Column) -> Form:
    """How a column that is read travels."""
    return form_for(declared(column), column.type)


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
    #: what orders a keyset stream; () for a refresh
    key: tuple[KeyColumn, ...]
    #: the cursor alone is the key
    unique: bool
    #: what becomes of rows whose cursor is NULL
    nulls: str
    #: whether rows that row-level security hides are left out knowingly
    row_security: str
    identity: Identity
    #: the server's timeline, by which a copy of it is told apart; None where it will not tell
    timeline: int | None = None
    #: a condition in SQL that a row must meet; None: every row does
    where: str | None = None
    #: what becomes of values that Arrow cannot hold: fail, null or text
    unfit: str = "fail"
    primary_key: tuple[str, ...] = ()

    def content(self) -> Content:
        """The same as the engine, shaping and sinks see it."""
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
        """From a content; ValueError if it is not one of ours."""
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


def names(columns: Sequence[KeyColumn]) -> tuple[str, ...]:
    return tuple(column.column for column in columns)

"""What is read, as a document: what a slice's fingerprint hashes, and what a replay reads by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.core.documents import Document
from penstock.core.types import Type, parse_type
from penstock.links.postgres.connection import Identity
from penstock.links.postgres.literals import TableName
from penstock.links.postgres.types import Form, read_as

Mode = Literal["keyset", "refresh"]


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """A column whose values travel."""

    name: str
    #: as `format_type` spells it, with its modifier
    origin: str
    type: Type
    #: what a domain is made of, or the kind of a type that is not built in; None: `origin` itself says it
    base: str | None = None

    @property
    def form(self) -> Form:
        """How it travels."""
        return read_as(self.base or self.origin, self.type)

    def document(self) -> Document:
        named = {"name": self.name, "type": str(self.type), "origin": self.origin}
        return named | ({"base": self.base} if self.base else {})

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> ColumnRead:
        return cls(document["name"], document["origin"], parse_type(document["type"]), document.get("base"))


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the key that orders a keyset stream."""

    column: str
    type: str


@dataclass(frozen=True, slots=True)
class Content:
    """A stream as it would be read now."""

    mode: Mode
    table: TableName
    columns: tuple[ColumnRead, ...]
    #: () for a refresh
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

    def document(self) -> Document:
        keyset = self.mode == "keyset"
        return {
            "kind": self.mode,
            "table": str(self.table),
            "columns": [column.document() for column in self.columns],
            "filter": self.where,
            "unfit": self.unfit,
            "row_security": self.row_security,
            "identity": {
                "system": self.identity.system,
                "oid": self.identity.oid,
                "database": self.identity.database,
                "timeline": self.timeline,
            },
        } | (
            {
                "key": [{"column": k.column, "type": k.type} for k in self.key],
                "unique": self.unique,
                "nulls": self.nulls,
            }
            if keyset
            else {}
        )

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Content:
        """From a document; ValueError if it is not one of ours."""
        try:
            mode: Mode = {"keyset": "keyset", "refresh": "refresh"}[document["kind"]]  # type: ignore[assignment]  # of str
            identity = document["identity"]
            return cls(
                mode=mode,
                table=TableName.read(document["table"], ""),
                columns=tuple(map(ColumnRead.read, document["columns"])),
                key=tuple(KeyColumn(k["column"], k["type"]) for k in document.get("key", ())),
                unique=document.get("unique", False),
                nulls=document.get("nulls", "fail"),
                row_security=document["row_security"],
                identity=Identity(identity["system"], identity["oid"], identity["database"]),
                timeline=identity.get("timeline"),
                where=document.get("filter"),
                unfit=document.get("unfit", "fail"),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the content of a postgres stream: {error!r}") from error


def names(columns: Sequence[KeyColumn]) -> tuple[str, ...]:
    return tuple(column.column for column in columns)

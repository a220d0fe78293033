"""What is read of a table, as a document: what a slice's fingerprint hashes, and what a replay reads by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.documents import Document
from penstock.errors import StreamRefused
from penstock.lake.types import Unreadable, spelt, type_of


@dataclass(frozen=True, slots=True)
class Content:
    """A table as it would be read now."""

    table: str
    columns: tuple[Mapping[str, str], ...]
    where: str | None
    #: whether rows may be deletes
    changes: bool
    #: a keyed table's key; () for a log
    key: tuple[str, ...]
    uuid: str
    #: where it starts without a mark: beginning, now, or a number as text
    start: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column["name"] for column in self.columns)

    def document(self) -> Document:
        return {
            "kind": "lake",
            "table": self.table,
            "columns": [dict(column) for column in self.columns],
            "filter": self.where,
            "changes": self.changes,
            "key": list(self.key),
            "identity": {"uuid": self.uuid},
            "from": self.start,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Content:
        """From a document; ValueError if it is not one of ours."""
        try:
            if document["kind"] != "lake":
                raise ValueError(f"not the content of a lake stream: {document['kind']}")
            return cls(
                table=document["table"],
                columns=tuple(document["columns"]),
                where=document["filter"],
                changes=document["changes"],
                key=tuple(document["key"]),
                uuid=document["identity"]["uuid"],
                start=document["from"],
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the content of a lake stream: {error!r}") from error


def columns_of(fields: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A table's fields, as its metadata has them, with their types; StreamRefused for one that cannot be read."""
    found = []
    for each in fields:
        try:
            type_ = type_of(each["type"])
        except Unreadable:
            raise StreamRefused(
                f"the column {each['name']!r} is of type {spelt(each['type'])}, which cannot be read from the lake",
                next_step="list the other columns in `columns`",
            ) from None
        found.append({"name": each["name"], "type": str(type_), "origin": spelt(each["type"])})
    return found

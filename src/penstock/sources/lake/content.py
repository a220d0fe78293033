"""What is read of a table, as a document: what a slice's fingerprint hashes, and what a replay reads by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.documents import Document
from penstock.errors import StreamRefused

#: Iceberg's types as Arrow prints what they become in the pipe
_ARROW = {
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "date": "date32[day]",
    "time": "time64[us]",
    "timestamp": "timestamp[us]",
    "timestamptz": "timestamp[us, tz=UTC]",
    "string": "string",
    "uuid": "string",
    "binary": "binary",
}


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
    """A table's fields, as its metadata has them, with their Iceberg and Arrow types; StreamRefused for one we lack."""
    found = []
    for each in fields:
        try:
            found.append({"name": each["name"], "type": spelt(each["type"]), "arrow": arrow(each["type"])})
        except KeyError:
            raise StreamRefused(
                f"the column {each['name']!r} is of type {spelt(each['type'])}, which cannot be read from the lake",
                next_step="list the other columns in `columns`",
            ) from None
    return found


def spelt(type_: Any) -> str:
    """An Iceberg type in one line."""
    if isinstance(type_, str):
        return type_
    if type_["type"] == "list":
        return f"list<{spelt(type_['element'])}>"
    if type_["type"] == "map":
        return f"map<{spelt(type_['key'])}, {spelt(type_['value'])}>"
    inner = ", ".join(f"{f['name']}: {spelt(f['type'])}" for f in type_["fields"])
    return f"struct<{inner}>"


def arrow(type_: Any) -> str:
    """The Arrow type that an Iceberg type becomes, as pyarrow prints it; planning need not import it."""
    if isinstance(type_, str):
        if type_.startswith("decimal("):
            precision, scale = type_.removeprefix("decimal(").removesuffix(")").split(",")
            return f"decimal128({int(precision)}, {int(scale)})"
        if type_.startswith("fixed["):
            return "binary"
        return _ARROW[type_]
    if type_["type"] == "list":
        return f"list<element: {arrow(type_['element'])}>"
    if type_["type"] == "map":
        return f"map<{arrow(type_['key'])}, {arrow(type_['value'])}>"
    inner = ", ".join(f"{f['name']}: {arrow(f['type'])}" for f in type_["fields"])
    return f"struct<{inner}>"

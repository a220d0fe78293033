"""What is read of a table: what a replay reads by, and how a content carries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.content import Column, Content
from penstock.errors import StreamRefused
from penstock.lake.types import Unreadable, spelt, type_of


@dataclass(frozen=True, slots=True)
class TableContent:
    """A table as it would be read now."""

    table: str
    columns: tuple[Column, ...]
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
        return tuple(column.name for column in self.columns)

    def content(self) -> Content:
        """The same as the engine, shaping and sinks see it."""
        return Content(
            columns=self.columns,
            changes=self.changes,
            key=self.key,
            filter=self.where,
            identity={"uuid": self.uuid},
            private={"kind": "lake", "table": self.table, "from": self.start},
        )

    @classmethod
    def read(cls, content: Content) -> TableContent:
        """From a content; ValueError if it is not one of ours."""
        identity: Any = content.identity
        private: Any = content.private
        try:
            if private["kind"] != "lake":
                raise ValueError(f"not the content of a lake stream: {private['kind']}")
            return cls(
                table=private["table"],
                columns=content.columns,
                where=content.filter,
                changes=content.changes,
                key=content.key,
                uuid=identity["uuid"],
                start=private["from"],
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the content of a lake stream: {error!r}") from error

    @classmethod
    def parse(cls, text: str) -> TableContent:
        """From the canonical form of a content."""
        return cls.read(Content.parse(text))


def columns_of(fields: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
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
        found.append(Column(each["name"], type_, spelt(each["type"])))
    return tuple(found)

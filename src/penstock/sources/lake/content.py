"""What a stream reads of a table, and how an open slice is read after the table has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.content import Column, Content
from penstock.core.drift import ChangeKind, kind_of_change, successors, types_by_name
from penstock.core.types import Type
from penstock.errors import StreamRefused
from penstock.lake.metadata_types import Unreadable, format_type, parse_type
from penstock.ports import Reading
from penstock.shaping.fitting import FittedReader


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


def read_columns(fields: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """A table's fields, as its metadata has them, with their types; StreamRefused for one that cannot be read."""
    found = []
    for each in fields:
        original = format_type(each["type"])
        try:
            type_ = parse_type(each["type"])
        except Unreadable:
            raise StreamRefused(
                f"the column {each['name']!r} has the type {original}, which the lake source cannot read",
                next_step="list the other columns in `columns`",
            ) from None
        found.append(Column(each["name"], type_, original))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class AsNow:
    """A slice's columns compared with those that the table has now."""

    #: those that the table still has
    names: tuple[str, ...]
    #: the slice's own, with their types
    columns: tuple[tuple[str, Type], ...]
    #: descriptions of what has changed
    changed: tuple[str, ...]

    def fitted(self, reading: Reading) -> Reading:
        """Convert what is read to the slice's columns."""
        return replace(reading, reader=FittedReader(reading.reader, self.columns), changed=self.changed)


def compare_with_table(content: TableContent, fields: Sequence[Mapping[str, Any]], stream: str) -> AsNow | None:
    """Compare a slice with the table's fields; None: nothing has changed. StreamRefused where a value would be lost."""
    there = {each["name"]: each for each in fields}
    now = {each["name"]: format_type(each["type"]) for each in fields}
    names: list[str] = []
    changed: list[str] = []
    for was in content.columns:
        name = was.name
        if name not in there:
            perhaps = successors(name, types_by_name(content.columns), now)
            if perhaps or name in content.key:
                renamed = f"; perhaps it was renamed to {perhaps[0]!r}" if perhaps else ""
                what = f"the open slice reads the column {name!r}, which the table no longer has{renamed}"
                raise _refused(what, stream)
            changed.append(f"column {name} ({was.described}) is gone: it is NULL in this slice")
            continue
        names.append(name)
        (is_,) = read_columns([there[name]])
        if is_.type == was.type:
            continue
        before, after = was.described, is_.described
        if kind_of_change(was.type, is_.type) is ChangeKind.RETYPED:
            raise _refused(f"the open slice reads the column {name!r} as {before}, and it is {after} now", stream)
        changed.append(f"column {name} was {before} and is {after} now: it is {before} in this slice")
    if not changed:
        return None
    if not names:
        raise _refused("the open slice reads columns of which the table no longer has any", stream)
    return AsNow(tuple(names), tuple((each.name, each.type) for each in content.columns), tuple(changed))


def _refused(what: str, stream: str) -> StreamRefused:
    return StreamRefused(
        what,
        next_step="change the table back; or drop the slice with "
        f"`penstock state recover FILE --stream {stream}`: the next slice is planned again",
        stream=stream,
    )

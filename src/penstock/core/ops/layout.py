"""The declared fields of a stream of ops, with their types. It travels in the stream's content, from source to sink.

    Layout(key=(Column("id", Plain.INT64),), scalars=(...), multi=(Column("tags", Plain.INT64),), fan_outs=(...))

The rows of such a stream are documents (`FEED_COLUMNS`); a sink in mode `state` keeps one row for each entity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.core.content import Column, Columns
from penstock.core.documents import Document
from penstock.core.ops.state import FanOut, Shape
from penstock.core.types import Plain

#: what a row of a stream of ops has: its place in the source's order, when it was written, and the document as JSON
FEED_COLUMNS: Columns = (
    Column("id", Plain.INT64),
    Column("at", Plain.TIMESTAMPTZ),
    Column("document", Plain.JSON),
)


@dataclass(frozen=True)
class Layout:
    """The fields of a stream's entities; ValueError if the declaration contradicts itself."""

    #: the columns of the key, in the order of a document's `key`
    key: Columns
    #: fields with one value
    scalars: Columns = ()
    #: fields that hold a set of values; the type is that of one value
    multi: Columns = ()
    fan_outs: tuple[FanOut, ...] = ()

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("an entity needs at least one key column")
        names = [column.name for column in (*self.key, *self.scalars, *self.multi)]
        if twice := sorted(name for name in set(names) if names.count(name) > 1):
            raise ValueError(f"field '{twice[0]}' is declared twice")
        _ = self.shape

    @cached_property
    def shape(self) -> Shape:
        """What the reference fold needs."""
        return Shape(
            frozenset(column.name for column in self.scalars),
            frozenset(column.name for column in self.multi),
            self.fan_outs,
        )

    def document(self) -> Document:
        return {
            "key": [column.document() for column in self.key],
            "scalars": [column.document() for column in self.scalars],
            "multi": [column.document() for column in self.multi],
            "fan_outs": [
                {"table": each.table, "match": list(each.match), "fields": list(each.fields)} for each in self.fan_outs
            ],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Layout:
        """From its document; KeyError or ValueError if it is not one."""
        return cls(
            _columns(document["key"]),
            _columns(document["scalars"]),
            _columns(document["multi"]),
            tuple(FanOut(each["table"], tuple(each["match"]), tuple(each["fields"])) for each in document["fan_outs"]),
        )


def _columns(documents: Any) -> Columns:
    return tuple(map(Column.of, documents))

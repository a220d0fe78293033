"""What a stream's slices are made of: columns, key, the source's identity. Its hash is part of every slice's id. Pure.

A source makes a content. Shaping and drift may change its columns, and keep beside them what the source gives. The
canonical form has a version: a content of another version is not read, and neither is whatever stores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from penstock.core.documents import Document, canonical, digest, parse
from penstock.core.types import Type, parse_type

#: the version of the canonical form
FORMAT = 2


class OtherFormat(ValueError):
    """A content that another version of penstock has written."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a stream."""

    name: str
    type: Type
    #: the type in the source's own words; None: it has none
    origin: str | None = None
    #: what `origin` is made of, where it is not one of the source system's own types; None: `origin` itself says it
    base: str | None = None

    @property
    def described(self) -> str:
        """The type for people: in the source's own words where it has any."""
        return self.origin or str(self.type)

    def document(self) -> Document:
        known = {"name": self.name, "type": str(self.type), "origin": self.origin, "base": self.base}
        return {key: value for key, value in known.items() if value is not None}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Column:
        """From its document; KeyError or ValueError if it is not one."""
        return cls(document["name"], parse_type(document["type"]), document.get("origin"), document.get("base"))


Columns = tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """How the source's columns differ from those of the sink."""

    #: what the source gives
    reads: Columns
    #: the source's columns whose values may be quarantined
    quarantined: tuple[str, ...] = ()


@dataclass(frozen=True)
class Content:
    """What is read of a stream, and what arrives at the sink."""

    #: what arrives at the sink
    columns: Columns
    #: whether rows may be deletes
    changes: bool = False
    #: the columns that identify a row at the source; () if none do
    key: tuple[str, ...] = ()
    #: rows for which it is not true are left out, in the source's own language; None: every row is read
    filter: str | None = None
    #: which database, table or folder is read; a sink may compare it with its own
    identity: Document = field(default_factory=dict)
    #: what the source alone reads
    private: Document = field(default_factory=dict)
    #: what shaping alone reads; None: the stream has no shape
    shape: Document | None = None
    #: None: the sink's columns are those that the source gives
    drift: Drift | None = None
    #: the declared fields of entities (`core.ops.Layout`), where rows are documents of ops; None: rows are plain rows
    entities: Document | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def reads(self) -> Columns:
        """What the source gives, in its shape."""
        return self.drift.reads if self.drift else self.columns

    @property
    def quarantined(self) -> tuple[str, ...]:
        """The source's columns whose values may be quarantined."""
        return self.drift.quarantined if self.drift else ()

    @property
    def undrifted(self) -> Content:
        """The content as it was before the sink's columns were taken into account."""
        return self if self.drift is None else replace(self, columns=self.drift.reads, drift=None)

    @cached_property
    def text(self) -> str:
        """The canonical form."""
        document: dict[str, Any] = {
            "format": FORMAT,
            "columns": [column.document() for column in self.columns],
            "changes": self.changes,
            "key": list(self.key),
            "filter": self.filter,
            "identity": self.identity,
            "private": self.private,
        }
        if self.shape is not None:
            document["shape"] = self.shape
        if self.drift is not None:
            reads = [column.document() for column in self.drift.reads]
            document["drift"] = {"reads": reads, "quarantined": list(self.drift.quarantined)}
        if self.entities is not None:
            document["entities"] = self.entities
        return canonical(document)

    @property
    def fingerprint(self) -> str:
        """The hash of the canonical form."""
        return digest(self.text)

    @classmethod
    def parse(cls, text: str) -> Content:
        """From its canonical form; OtherFormat if its version is another one, ValueError if it is none."""
        document = _current(text)
        try:
            drift = document.get("drift")
            return cls(
                columns=_columns(document["columns"]),
                changes=document["changes"],
                key=tuple(document["key"]),
                filter=document["filter"],
                identity=document["identity"],
                private=document["private"],
                shape=document.get("shape"),
                drift=Drift(_columns(drift["reads"]), tuple(drift["quarantined"])) if drift else None,
                entities=document.get("entities"),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a content: {error!r}") from error


def check_format(text: str) -> None:
    """OtherFormat if another version of penstock has written a content."""
    _current(text)


def _current(text: str) -> dict[str, Any]:
    document = parse(text)
    found = document.get("format", 1)
    if found != FORMAT:
        raise OtherFormat(f"its format is {found}, this penstock reads {FORMAT}")
    return document


def _columns(documents: Any) -> Columns:
    return tuple(map(Column.of, documents))

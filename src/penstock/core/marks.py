"""Marks: how far a stream is, in the source's own exact terms.

A mark is opaque here. Only the source that made it may read it, and only the source may compare two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.core.documents import Document, canonical, parse


@dataclass(frozen=True, slots=True)
class Mark:
    """A small document, kept as its canonical text."""

    #: the canonical JSON text
    text: str

    @classmethod
    def of(cls, document: Document) -> Mark:
        return cls(canonical(document))

    @classmethod
    def read(cls, text: str) -> Mark:
        """A mark from stored text; re-spelled, so that equal marks are equal texts."""
        return cls(canonical(parse(text)))

    @property
    def document(self) -> dict[str, Any]:
        return parse(self.text)


@dataclass(frozen=True, slots=True)
class Position:
    """The last slice that a store or a sink holds for a stream."""

    #: the slice's number: 1, 2, 3, …
    number: int
    #: the slice's id, which hashes everything before it
    id: str
    #: the mark it led to; None after a reset: the beginning
    mark: Mark | None
    #: what the slice was made of (canonical JSON): schema, columns, filter, source identity
    content: str

"""A source around another one: everything is handed on, and the one inside gets back its own content.

What a wrapper adds to a content, it takes out again in `own`; positions carry contents, so theirs too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.slices import Slice
from penstock.ports import (
    Budget,
    DiscoveredStream,
    Discovering,
    Estimating,
    ExplainingSource,
    Gathering,
    Planned,
    Preparing,
    Reading,
    Releasing,
    Remaining,
    Remark,
    Rewinding,
    Source,
    Spool,
    StreamInfo,
    capability,
    has_capability,
)

Capability = TypeVar("Capability")


class Around:
    """The same streams as those of the source inside, unless a wrapper says otherwise."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def has_capability(self, wanted: type[Any]) -> bool:
        """A wrapper can do exactly what the source inside can: its own methods only hand on."""
        return has_capability(self.source, wanted)

    def inside(self, wanted: type[Capability]) -> Capability:
        """The source inside, as something with a capability that `has_capability` has promised."""
        found = capability(self.source, wanted)
        if found is None:
            raise RuntimeError(f"the source inside is not {wanted.__name__}: ask with `capability` first")
        return found

    def own(self, content: Content) -> Content:
        """A content as the source inside gave it."""
        raise NotImplementedError

    def own_position(self, last: Position) -> Position:
        content = Content.parse(last.content)
        own = self.own(content)
        return last if own is content else replace(last, content=own.text)

    def connect(self) -> None:
        self.source.connect()

    def catalog(self) -> Sequence[StreamInfo]:
        return self.source.catalog()

    def discover(self) -> Sequence[DiscoveredStream]:
        return self.inside(Discovering).discover()

    def content(self, stream: str) -> Content:
        return self.source.content(stream)

    def accept(self, stream: str, last: Position, content: Content) -> None:
        self.source.accept(stream, self.own_position(last), self.own(content))

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        return self.inside(Preparing).prepare(stream, self.own(content), self.own_position(last) if last else None)

    def advanced(self, stream: str, position: Position) -> None:
        self.inside(Releasing).advanced(stream, self.own_position(position))

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        return self.source.ceiling(stream, self.own(content), run, after)

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        return self.source.plan(stream, self.own(content), after, ceiling, budget)

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        return self.inside(Estimating).remaining(stream, self.own(content), after, ceiling)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        return self.inside(ExplainingSource).explain(stream, self.own(content))

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        return self.inside(Gathering).gather(stream, self.own(content), after, ceiling, budget, spool)

    def reading(self, slice_: Slice) -> AbstractContextManager[Reading]:
        content = Content.parse(slice_.content)
        own = self.own(content)
        return self.source.reading(slice_ if own is content else replace(slice_, content=own.text))

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        return self.inside(Rewinding).mark_at(stream, self.own(content), self.own_position(last) if last else None, to)

    def describe(self, mark: Mark | None) -> str:
        return self.source.describe(mark)

    def close(self) -> None:
        self.source.close()

"""A source around another one: everything is handed on, and the one inside gets back its own content.

What a wrapper adds to a content, it takes out again in `own`; positions carry contents, so theirs too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.slices import Slice
from penstock.ports import Budget, DiscoveredStream, Planned, Reading, Remaining, Remark, Source, StreamInfo


class Around:
    """The same streams as those of the source inside, unless a wrapper says otherwise."""

    def __init__(self, source: Source) -> None:
        self.source = source

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
        return self.source.discover()

    def content(self, stream: str) -> Content:
        return self.source.content(stream)

    def accept(self, stream: str, last: Position, content: Content) -> None:
        self.source.accept(stream, self.own_position(last), self.own(content))

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        return self.source.prepare(stream, self.own(content), self.own_position(last) if last else None)

    def caught_up(self, stream: str, last: Position) -> None:
        self.source.caught_up(stream, self.own_position(last))

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        return self.source.ceiling(stream, self.own(content), run, after)

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        return self.source.plan(stream, self.own(content), after, ceiling, budget)

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        return self.source.remaining(stream, self.own(content), after, ceiling)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        return self.source.explain(stream, self.own(content))

    def reading(self, slice_: Slice) -> AbstractContextManager[Reading]:
        content = Content.parse(slice_.content)
        own = self.own(content)
        return self.source.reading(slice_ if own is content else replace(slice_, content=own.text))

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        return self.source.mark_at(stream, self.own(content), self.own_position(last) if last else None, to)

    def describe(self, mark: Mark | None) -> str:
        return self.source.describe(mark)

    def close(self) -> None:
        self.source.close()

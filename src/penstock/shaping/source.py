"""A source whose streams have a shape: around any source, and without effect on streams that have none.

The source inside is planned and read as if there were no shape. A slice is shaped as its own content says, also once
the configuration has changed; only the salt is the configuration's, and must still be the one it was begun with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from penstock.core.content import Content
from penstock.core.documents import Document, canonical
from penstock.core.marks import Mark, Position
from penstock.core.slices import Slice
from penstock.errors import PenstockError, StreamRefused
from penstock.ports import (
    Budget,
    ExplainingSource,
    Planned,
    Preparing,
    Reader,
    Reading,
    Remaining,
    Remark,
    Source,
    Spool,
    StreamInfo,
)
from penstock.shaping.around import Around
from penstock.shaping.options import Shape
from penstock.shaping.reader import ShapedReader
from penstock.shaping.rules import Rules, key_after, own, resolved, salt_digest
from penstock.shaping.types import tells_apart


class Shaped(Around):
    """The streams of a source, each in the shape that is configured for it."""

    def __init__(self, source: Source, shapes: Mapping[str, Shape]) -> None:
        super().__init__(source)
        self._shapes = dict(shapes)
        #: the primary keys that the source named, by stream
        self._keys: dict[str, tuple[str, ...]] = {}
        #: filters that were found to be fine
        self._fine: set[str] = set()

    def has_capability(self, wanted: type[Any]) -> bool:
        """Shapes have something to explain and to check, whatever the source inside can do."""
        return (bool(self._shapes) and wanted in (ExplainingSource, Preparing)) or super().has_capability(wanted)

    def own(self, content: Content) -> Content:
        return own(content)

    # ------------------------------------------------------------ the streams

    def catalog(self) -> Sequence[StreamInfo]:
        found = super().catalog()
        self._keys = {info.name: tuple(info.primary_key) for info in found}
        return [self._info(info, self._shapes[info.name]) if info.name in self._shapes else info for info in found]

    def _info(self, info: StreamInfo, shape: Shape) -> StreamInfo:
        key = self._key(info.name, shape)
        return replace(info, primary_key=key, order=tuple(shape.rename.get(name, name) for name in info.order))

    def _key(self, stream: str, shape: Shape) -> tuple[str, ...]:
        """What identifies a row once it has its shape; () if nothing does."""
        key = self._keys.get(stream, ())
        cast = [name for name in key if name in shape.cast]
        return key_after(shape, key, self._cast_apart(stream, shape, cast) if cast else {})

    def _cast_apart(self, stream: str, shape: Shape, cast: Sequence[str]) -> Mapping[str, bool]:
        """Of columns that are cast, whether values that differ still do; only what is known is said."""
        try:
            content = self.source.content(stream)
        except PenstockError:
            return {}  # a broken stream is listed too; `content` says what is wrong with it
        types = {column.name: column.type for column in content.columns}
        return {name: name in types and tells_apart(types[name], shape.cast[name]) for name in cast}

    def content(self, stream: str) -> Content:
        content = super().content(stream)
        shape = self._shapes.get(stream)
        return content if shape is None else resolved(stream, shape, content).around(content)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        inside = super().has_capability(ExplainingSource)
        said = list(super().explain(stream, content)) if inside else []
        rules = Rules.of(content)
        if rules is None:
            return said
        from penstock.shaping.remarks import remarks

        self._check_filter(stream, rules)
        if stream not in self._keys:
            self.catalog()
        key, shape = self._keys.get(stream, ()), self._shapes.get(stream)
        lost = bool(key) and shape is not None and not self._key(stream, shape)
        return [*said, *remarks(rules, key, lost)]

    # ------------------------------------------------------------ planning

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        rules = Rules.of(content)
        if rules is not None:
            # Before anything is written: what is refused later would leave it behind.
            self._check_filter(stream, rules)
        done = super().prepare(stream, content, last) if super().has_capability(Preparing) else ()
        return [*done, *_salt_changed(rules, last)]

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        planned = super().plan(stream, content, after, ceiling, budget)
        rules = Rules.of(content)
        if planned is None or rules is None or rules.where is None:
            return planned
        # Only where there is something to read: a filter is understood by PyIceberg, which takes a second to load.
        self._check_filter(stream, rules)
        return replace(planned, rows=None)

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        planned = super().gather(stream, content, after, ceiling, budget, spool)
        rules = Rules.of(content)
        return planned if planned is None or rules is None or rules.where is None else replace(planned, rows=None)

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        """Rows to read: how many of them the filter lets through is not known before."""
        left = super().remaining(stream, content, after, ceiling)
        rules = Rules.of(content)
        return left if rules is None or rules.where is None else replace(left, exact=left.exact and left.rows == 0)

    def _check_filter(self, stream: str, rules: Rules) -> None:
        if rules.where is None:
            return
        asked = canonical([rules.where, [column.document() for column in rules.reads]])
        if asked in self._fine:
            return
        from penstock.shaping.filtering import bound

        try:
            bound(rules.where, rules.reads)
        except StreamRefused as refused:
            raise refused.at(stream=stream) from None
        self._fine.add(asked)

    # ------------------------------------------------------------ reading

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        with super().reading(slice_) as reading:
            rules = Rules.of(Content.parse(slice_.content))
            yield reading if rules is None else replace(reading, reader=self._reader(reading.reader, slice_, rules))

    def _reader(self, reader: Reader, slice_: Slice, rules: Rules) -> ShapedReader:
        salt = self._salt(slice_.stream)
        if rules.salt is not None and (salt is None or salt_digest(salt) != rules.salt):
            hashed = ", ".join(name for name, how in rules.hash.items() if how == "hmac-sha256")
            raise StreamRefused(
                f"slice {slice_.number} is open, and was begun with another `salt` for {hashed}"
                + (": there is none now" if salt is None else ""),
                next_step="give the salt that it was begun with, so that the slice can be finished; a new one then "
                "takes effect with the next slice",
                stream=slice_.stream,
            )
        secret = salt.encode() if salt is not None and rules.salt is not None else b""
        return ShapedReader(reader, slice_.stream, slice_.content, secret)

    def _salt(self, stream: str) -> str | None:
        shape = self._shapes.get(stream)
        return shape.salt.get_secret_value() if shape is not None and shape.salt is not None else None


def _salt_changed(rules: Rules | None, last: Position | None) -> list[str]:
    """Digests before and after a change of salt cannot be compared: said in each run until a slice has the new one."""
    before = Rules.of(Content.parse(last.content)) if last else None
    if rules is None or before is None or rules.salt is None or before.salt in (None, rules.salt):
        return []
    return ["the salt has changed: from now on the same value has another digest than those that were delivered before"]

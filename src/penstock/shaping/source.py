"""A source whose streams are shaped as configured, and fitted to the sink's columns where those have drifted.

The source inside gets back the content that it gave, and is planned and read as if there were no shape and no drift. A
slice is shaped as its own content says, even after the configuration has changed. Only the salt comes from the
configuration, and must be the one that the slice was begun with. The engine decides what the sink's columns become
(`core.drift`); this class carries it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from penstock import ports
from penstock.core.content import Content
from penstock.core.documents import Document, canonical
from penstock.core.marks import Mark, Position
from penstock.core.ranges import Key
from penstock.core.slices import Slice
from penstock.errors import PenstockError, StreamRefused
from penstock.ports import Budget, DiscoveredStream, Planned, Reader, Reading, Remaining, Remark, Source, StreamInfo
from penstock.shaping.comparing import choose_columns, name_as_read
from penstock.shaping.fitting import FittedReader
from penstock.shaping.options import Shape
from penstock.shaping.reader import ShapedReader
from penstock.shaping.resolved_shape import ResolvedShape, digest_salt, key_after, remove_shape, resolve
from penstock.shaping.types import keeps_values_distinct

Capability = TypeVar("Capability")


class ShapedSource:
    """The streams of the source inside, each in the shape that is configured for it."""

    def __init__(self, source: Source, shapes: Mapping[str, Shape] | None = None) -> None:
        self.source = source
        self._shapes = dict(shapes or {})
        #: the primary keys that the source named, by stream
        self._keys: dict[str, tuple[str, ...]] = {}
        #: filters that have passed their check
        self._checked_filters: set[str] = set()

    def has_capability(self, wanted: type[Any]) -> bool:
        """Whether the source inside has a capability. A shape adds three: it has something to explain and to check."""
        added = bool(self._shapes) and wanted in (ports.ExplainingSource, ports.Preparing, ports.Resuming)
        return added or ports.has_capability(self.source, wanted)

    def _inside(self, wanted: type[Capability]) -> Capability:
        """The source inside, which must have this capability."""
        inside = ports.capability(self.source, wanted)
        if inside is None:
            raise RuntimeError(f"the source inside is not {wanted.__name__}: ask with `capability` first")
        return inside

    def _own(self, content: Content) -> Content:
        """A content as the source inside gave it."""
        return remove_shape(content.undrifted)

    def _own_position(self, last: Position) -> Position:
        content = Content.parse(last.content)
        own = self._own(content)
        return last if own is content else replace(last, content=own.text)

    def connect(self) -> None:
        self.source.connect()

    def close(self) -> None:
        self.source.close()

    def describe(self, mark: Mark | None) -> str:
        return self.source.describe(mark)

    # ------------------------------------------------------------ the streams

    def catalog(self) -> Sequence[StreamInfo]:
        infos = self.source.catalog()
        self._keys = {info.name: tuple(info.primary_key) for info in infos}
        return [self._info(info, self._shapes[info.name]) if info.name in self._shapes else info for info in infos]

    def _info(self, info: StreamInfo, shape: Shape) -> StreamInfo:
        key = self._key(info.name, shape)
        return replace(info, primary_key=key, order=tuple(shape.rename.get(name, name) for name in info.order))

    def _key(self, stream: str, shape: Shape) -> tuple[str, ...]:
        """The columns that identify a shaped row; () if there are none."""
        key = self._keys.get(stream, ())
        cast = [name for name in key if name in shape.cast]
        return key_after(shape, key, self._distinct_after_cast(stream, shape, cast) if cast else {})

    def _distinct_after_cast(self, stream: str, shape: Shape, cast: Sequence[str]) -> Mapping[str, bool]:
        """Whether different values of each cast column stay different; {} if the columns are not known."""
        try:
            content = self.source.content(stream)
        except PenstockError:
            return {}  # a broken stream is listed too; `content` says what is wrong with it
        types = {column.name: column.type for column in content.columns}
        return {name: name in types and keeps_values_distinct(types[name], shape.cast[name]) for name in cast}

    def discover(self) -> Sequence[DiscoveredStream]:
        return self._inside(ports.Discovering).discover()

    def content(self, stream: str) -> Content:
        content = self.source.content(stream)
        shape = self._shapes.get(stream)
        return content if shape is None else resolve(stream, shape, content).add_to(content)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        inside = ports.capability(self.source, ports.ExplainingSource)
        remarks = list(inside.explain(stream, self._own(content))) if inside else []
        resolved = ResolvedShape.of(content)
        if resolved is None:
            return remarks
        self._check_filter(stream, resolved)
        if stream not in self._keys:
            self.catalog()
        key, shape = self._keys.get(stream, ()), self._shapes.get(stream)
        key_lost = bool(key) and shape is not None and not self._key(stream, shape)
        return [*remarks, *resolved.explain(key, key_lost)]

    # ------------------------------------------------------------ planning

    def accept(self, stream: str, last: Position, content: Content) -> None:
        self.source.accept(stream, self._own_position(last), self._own(content))

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        resolved = ResolvedShape.of(content)
        if resolved is not None:
            # Before anything is written: a later refusal would leave it behind.
            self._check_filter(stream, resolved)
        inside = ports.capability(self.source, ports.Preparing)
        position = self._own_position(last) if last else None
        done = inside.prepare(stream, self._own(content), position) if inside else ()
        return [*done, *_salt_warning(resolved, last)]

    def advanced(self, stream: str, position: Position) -> None:
        self._inside(ports.Releasing).advanced(stream, self._own_position(position))

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        return self.source.ceiling(stream, self._own(content), run, after)

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        planned = self.source.plan(stream, self._own(content), after, ceiling, budget)
        resolved = ResolvedShape.of(content)
        if planned is not None and resolved is not None:
            # Only where there are rows to read: PyIceberg, which parses the filter, takes a second to load.
            self._check_filter(stream, resolved)
        return _without_row_count(planned, content)

    def is_awaited(self, stream: str) -> bool:
        return self._inside(ports.Awaiting).is_awaited(stream)

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: ports.Spool
    ) -> Planned | None:
        gathering = self._inside(ports.Gathering)
        return _without_row_count(gathering.gather(stream, self._own(content), after, ceiling, budget, spool), content)

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        """Rows to read. The number that pass the filter is unknown until they are read."""
        left = self._inside(ports.Estimating).remaining(stream, self._own(content), after, ceiling)
        return replace(left, exact=left.exact and left.rows == 0) if _has_filter(content) else left

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        position = self._own_position(last) if last else None
        return self._inside(ports.Rewinding).mark_at(stream, self._own(content), position, to)

    def mark_behind(self, stream: str, content: Content, key: Sequence[str]) -> Mark:
        return self._inside(ports.Continuing).mark_behind(stream, self._own(content), key)

    # ------------------------------------------------------------ comparing

    def compared_columns(self, stream: str, content: Content) -> ports.ComparedColumns:
        inside = self._inside(ports.ComparingSource)
        return choose_columns(stream, content, inside.compared_columns(stream, self._own(content)))

    def compared_rows(
        self, stream: str, content: Content, mark: Mark, columns: ports.ComparedColumns, *, above: bool = False
    ) -> ports.ComparedRows:
        own, inside = name_as_read(content, columns), self._inside(ports.ComparingSource)
        return inside.compared_rows(stream, self._own(content), mark, own, above=above)

    def plan_repair(
        self, stream: str, content: Content, mark: Mark, keys: Sequence[Key], deletes: Sequence[Key]
    ) -> Document:
        return self._inside(ports.ComparingSource).plan_repair(stream, self._own(content), mark, keys, deletes)

    def gather_repair(
        self,
        stream: str,
        content: Content,
        mark: Mark,
        keys: Sequence[Key],
        deletes: Sequence[Key],
        spool: ports.Spool,
    ) -> int:
        inside = self._inside(ports.GatheringRepairs)
        return inside.gather_repair(stream, self._own(content), mark, keys, deletes, spool)

    def _check_filter(self, stream: str, resolved: ResolvedShape) -> None:
        if resolved.where is None:
            return
        checked = canonical([resolved.where, [column.document() for column in resolved.reads]])
        if checked in self._checked_filters:
            return
        from penstock.shaping.filtering import bind_filter

        try:
            bind_filter(resolved.where, resolved.reads)
        except StreamRefused as refused:
            raise refused.at(stream=stream) from None
        self._checked_filters.add(checked)

    # ------------------------------------------------------------ reading

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        content = Content.parse(slice_.content)
        own, resolved = self._own(content), ResolvedShape.of(content)
        with self.source.reading(slice_ if own is content else replace(slice_, content=own.text)) as reading:
            reader = reading.reader if resolved is None else self._shaped_reader(reading.reader, slice_, resolved)
            if content.drift is not None:
                reader = FittedReader.of(reader, content)
            yield replace(reading, reader=reader)

    def check_open_slice(self, slice_: Slice) -> None:
        content = Content.parse(slice_.content)
        own, resolved = self._own(content), ResolvedShape.of(content)
        if (inside := ports.capability(self.source, ports.Resuming)) is not None:
            inside.check_open_slice(slice_ if own is content else replace(slice_, content=own.text))
        if resolved is not None:
            self._find_salt(slice_, resolved)

    def _shaped_reader(self, reader: Reader, slice_: Slice, resolved: ResolvedShape) -> ShapedReader:
        return ShapedReader(reader, slice_.stream, slice_.content, self._find_salt(slice_, resolved))

    def _find_salt(self, slice_: Slice, resolved: ResolvedShape) -> bytes:
        """The salt that the slice was begun with; StreamRefused if the file has another one now."""
        shape = self._shapes.get(slice_.stream)
        salt = shape.salt.get_secret_value() if shape is not None and shape.salt is not None else None
        if resolved.salt is not None and (salt is None or digest_salt(salt) != resolved.salt):
            hashed = ", ".join(name for name, how in resolved.hash.items() if how == "hmac-sha256")
            raise StreamRefused(
                f"slice {slice_.number} is open, and was begun with another `salt` for {hashed}"
                + (": there is none now" if salt is None else ""),
                next_step="restore the salt that it was begun with, so that the slice can be finished; a new salt then "
                "takes effect with the next slice",
                stream=slice_.stream,
            )
        return salt.encode() if salt is not None and resolved.salt is not None else b""


def _has_filter(content: Content) -> bool:
    resolved = ResolvedShape.of(content)
    return resolved is not None and resolved.where is not None


def _without_row_count(planned: Planned | None, content: Content) -> Planned | None:
    return replace(planned, rows=None) if planned is not None and _has_filter(content) else planned


def _salt_warning(resolved: ResolvedShape | None, last: Position | None) -> list[str]:
    """Warn in each run until a slice has the new salt: digests from before and after cannot be compared."""
    before = ResolvedShape.of(Content.parse(last.content)) if last else None
    if resolved is None or before is None or resolved.salt is None or before.salt in (None, resolved.salt):
        return []
    return ["the salt has changed: from now on a value has another digest than the one delivered before"]

"""The wal source: what the engine asks, answered from the log of the receiver."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from penstock.core.content import Column, Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.ops import FEED_COLUMNS
from penstock.core.slices import Kind, Slice
from penstock.core.types import parse_type
from penstock.errors import UNTOUCHED, ConnectionFailed, StreamRefused, refuse_all
from penstock.ports import Budget, Context, Planned, Reading, Remaining, Remark, StreamInfo
from penstock.sources.wal import marks, places
from penstock.sources.wal.documents import DocumentReader
from penstock.sources.wal.layout import find_problems, layout_of
from penstock.sources.wal.marks import LogPosition
from penstock.sources.wal.options import StreamOptions
from penstock.sources.wal.reader import LogReader
from penstock.sources.wal.records import Records
from penstock.sources.wal.window import Window, cut_parts, look
from penstock.wal import readers
from penstock.wal.durable_end import read_end
from penstock.wal.folders import folder_of
from penstock.wal.segments import keep_damage, list_numbers


class WalSource:
    """Logs of one receiver. See `Source` in ports for what each method owes."""

    def __init__(self, directory: str, streams: Mapping[str, StreamOptions], context: Context) -> None:
        self._directory = directory
        self._streams = dict(streams)
        self._context = context

    def connect(self) -> None:
        if not os.path.isdir(self._directory):
            raise ConnectionFailed(
                f"there is no folder {self._directory}",
                next_step="check `directory`, and start `penstock serve` once, which makes it",
                pipeline=self._context.pipeline,
            )

    def close(self) -> None:
        return None

    def catalog(self) -> Sequence[StreamInfo]:
        return [
            StreamInfo(
                name=name,
                kind=Kind.ROWS,
                primary_key=("id",) if each.entities else each.primary_key,
                order=("id",) if each.entities else (),
                in_order=True,
            )
            for name, each in self._streams.items()
        ]

    def content(self, stream: str) -> Content:
        options = self._streams.get(stream)
        if options is None:
            raise StreamRefused(
                "the pipeline file does not have this stream", next_step="list it under `streams`", stream=stream
            )
        refuse_all(find_problems(options, stream))
        if options.entities is not None:
            layout = layout_of(options.entities, stream)
            return Content(FEED_COLUMNS, key=("id",), identity={"stream": stream}, entities=layout.document())
        return Content(
            columns=tuple(Column(name, parse_type(type_)) for name, type_ in options.columns.items()),
            changes=options.changes,
            key=options.primary_key,
            identity={"stream": stream},
        )

    def accept(self, stream: str, last: Position, content: Content) -> None:
        if last.mark is not None:
            places.require_mark(folder_of(self._directory, stream), LogPosition.read(last.mark), stream)

    # ------------------------------------------------------------ planning

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        folder = folder_of(self._directory, stream)
        end = read_end(folder)
        if end is not None:
            return {"segment": end.segment, "offset": end.offset, "rows": end.rows}
        if os.path.isdir(folder) and list_numbers(folder):
            raise StreamRefused(
                f"{os.path.join(folder, 'end')} is missing or damaged: up to where the log is on disk is not known",
                next_step="start `penstock serve` once: it reads the log and writes the file again",
                stream=stream,
            )
        self._context.say(stream, "nothing was sent to this stream yet")
        return None

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        found = self._window(stream, after, (_number(ceiling, "segment"), _number(ceiling, "offset")), budget)
        if not found.batches:
            return None
        return Planned(found.position.mark(), rows=found.rows, exact=not found.damages)

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        begin = self._begin(stream, after)
        # What is sent again and left out is counted too.
        return Remaining(max(0, _number(ceiling, "rows") - begin.rows))

    def _begin(self, stream: str, after: Mark | None) -> LogPosition:
        return LogPosition.read(after) if after is not None else places.first(folder_of(self._directory, stream))

    def _window(self, stream: str, after: Mark | None, end: tuple[int, int], budget: Budget | None = None) -> Window:
        """What can be read after a mark, up to a place or a budget."""
        skips = self._streams[stream].damaged == "skip"
        folder = folder_of(self._directory, stream)
        window = look(folder, self._begin(stream, after), end, stream, skips_damage=skips, budget=budget)
        options = self._streams[stream]
        if options.entities is not None and options.producers == "one" and len(window.senders) > 1:
            raise StreamRefused(
                f"several producers have sent documents to this stream ({', '.join(sorted(window.senders))}), and "
                "nothing says which of two changes of one entity comes first",
                safe=UNTOUCHED,
                next_step="give each producer a stream of its own, or set `producers: any`: documents are then applied "
                "in the order in which they were received",
                stream=stream,
            )
        return window

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        content = Content.parse(slice_.content)
        stream, folder = slice_.stream, folder_of(self._directory, slice_.stream)
        assert slice_.upto is not None
        upto = LogPosition.read(slice_.upto)
        window = self._window(stream, slice_.after, (upto.segment, upto.offset))
        records = Records(stream, folder, self._streams[stream].damaged == "skip")
        columns = tuple((column.name, str(column.type)) for column in content.columns)
        reader = DocumentReader(records) if content.entities else LogReader(records, columns, content.changes)
        yield Reading(reader, cut_parts(window.ranges), self._said(folder, window))

    def _said(self, folder: str, window: Window) -> list[str]:
        """What the user of the rows should know about them."""
        said = []
        for segment, damage in window.damages:
            kept = os.path.basename(keep_damage(folder, segment, damage))
            said.append(f"the damaged record at {segment}:{damage.offset} is left out; its bytes are kept in {kept}")
        if window.repeated:
            said.append(f"{window.repeated} slices that were delivered before were sent again and are left out")
        if len(window.schemas) > 1:
            versions = ", ".join(map(str, sorted(window.schemas)))
            said.append(f"the schema of the stream changed between these batches: versions {versions}")
        return said

    def describe(self, mark: Mark | None) -> str:
        return marks.describe(mark)

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        at = LogPosition.read(last.mark) if last and last.mark else None
        return places.find_mark(folder_of(self._directory, stream), at, to, stream)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        said = [
            Remark("guarantee", "each acknowledged batch is read once, in the order in which batches were complete"),
            Remark(
                "gap",
                "a producer that sends without an Idempotency-Key, or again after its key has expired, may "
                "have sent a batch twice",
            ),
        ]
        if self._streams[stream].damaged == "skip":
            said.append(Remark("gap", "a damaged record of the log is left out; a run names each"))
        if unread := places.unread(self._directory, self._streams):
            said.append(Remark("advice", f"the receiver has streams that no pipeline reads: {', '.join(unread)}"))
        return said

    # ------------------------------------------------------------ the log keeps what is still to be read

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        folder = folder_of(self._directory, stream)
        if not os.path.isdir(folder):
            return []
        number = last.number if last else 0
        registry = readers.read_registry(folder)
        if last is not None and last.mark is not None:
            at = LogPosition.read(last.mark)
            reader = readers.Reader(at.segment, number, _now(), at.offset, at.batches, at.rows)
        else:
            reader = readers.begin(folder, registry, number=number, at=_now())
        floor = readers.register_at(folder, self._reader(stream), reader)
        if floor > reader.segment:
            raise places.below_floor(reader.segment, floor, stream)
        if last is None and floor > 1:
            return [
                f"batches before segment {floor} were read by others and deleted: the stream begins with what is kept"
            ]
        return []

    def advanced(self, stream: str, position: Position) -> None:
        folder = folder_of(self._directory, stream)
        if position.mark is None or not os.path.isdir(folder):
            return
        at = LogPosition.read(position.mark)
        reader = readers.Reader(at.segment, position.number, _now(), at.offset, at.batches, at.rows)
        readers.raise_mark(folder, self._reader(stream), reader)
        readers.delete_read(folder)

    def _reader(self, stream: str) -> str:
        return f"{self._context.pipeline}/{stream}"


def _number(ceiling: Document, name: str) -> int:
    value = ceiling[name]
    assert isinstance(value, int)
    return value


def _now() -> int:
    return time.time_ns() // 1000

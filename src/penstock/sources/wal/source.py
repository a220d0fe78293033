"""The wal source: what the engine asks, answered from the log of the receiver."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from penstock.core.content import Column, Content
from penstock.core.documents import Document, canonical
from penstock.core.marks import Mark, Position
from penstock.core.slices import Kind, Part, Slice
from penstock.core.types import parse_type
from penstock.errors import ConnectionFailed, StreamRefused
from penstock.ports import Budget, Context, Planned, Reading, Remark, StreamInfo
from penstock.sources.wal import marks
from penstock.sources.wal.marks import LogPosition
from penstock.sources.wal.options import StreamOptions
from penstock.sources.wal.reader import LogReader
from penstock.wal import readers
from penstock.wal.durable_end import read_end
from penstock.wal.following import Found, checksum_before, follow, read_log_id
from penstock.wal.frames import HEADER_BYTES
from penstock.wal.ledger import Chunk, Place

#: compressed bytes that are worth a part of their own
PART_BYTES = 64 << 10
MOST_PARTS = 8
#: bytes of Arrow data for each compressed byte, where nothing is known yet
_GROWTH = 5


@dataclass
class _Window:
    """What lies between a mark and a place further on."""

    position: LogPosition
    places: list[Place] = field(default_factory=list)
    rows: int = 0
    damages: list[tuple[int, int]] = field(default_factory=list)


def folder_of(directory: str, stream: str) -> str:
    """The folder of a stream's log."""
    return os.path.join(directory, quote(stream, safe=""))


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
            StreamInfo(name=name, kind=Kind.ROWS, primary_key=each.primary_key, in_order=True)
            for name, each in self._streams.items()
        ]

    def content(self, stream: str) -> Content:
        options = self._streams.get(stream)
        if options is None:
            raise StreamRefused(
                "the pipeline file does not have this stream", next_step="list it under `streams`", stream=stream
            )
        if unknown := [name for name in options.primary_key if name not in options.columns]:
            raise StreamRefused(
                f"`primary_key` names {unknown[0]}, which is no column",
                next_step="list it under `columns`",
                stream=stream,
            )
        return Content(
            columns=tuple(Column(name, parse_type(type_)) for name, type_ in options.columns.items()),
            changes=options.changes,
            key=options.primary_key,
            identity={"stream": stream},
        )

    def accept(self, stream: str, last: Position, content: Content) -> None:
        if last.mark is None:
            return
        at, folder = LogPosition.read(last.mark), folder_of(self._directory, stream)
        floor = readers.read_registry(folder).floor if os.path.isdir(folder) else 1
        if at.segment < floor:
            raise self._refused(
                stream,
                f"the stream was read up to segment {at.segment}, and segments before {floor} were deleted",
                "batches in between are gone: `penstock state reset` starts from what is there",
            )
        try:
            log = read_log_id(folder, at.segment).log.hex()
        except (FileNotFoundError, ValueError):
            log = ""
        if log != at.log:
            raise self._refused(
                stream,
                f"the log in {folder} is another one than the stream was read from, or lacks segment {at.segment}",
                "put the log back, or start from what is there with `penstock state reset`",
            )
        if checksum_before(folder, at.segment, at.offset) != at.checksum:
            raise self._refused(
                stream,
                f"the log in {folder} has no record that ends at offset {at.offset} of segment {at.segment} as it was "
                "read: it was put back from an older copy",
                "put the newest copy back; `penstock state reset` starts from what is there",
            )

    def _refused(self, stream: str, what: str, next_step: str) -> StreamRefused:
        return StreamRefused(what, next_step=next_step, stream=stream)

    # ------------------------------------------------------------ planning

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        folder = folder_of(self._directory, stream)
        end = read_end(folder)
        if end is None:
            self._context.say(stream, "nobody has sent anything to this stream yet")
            return None
        return {"at": list(end)}

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        found = self._window(stream, after, ceiling["at"], budget)
        if not found.places:
            return None
        return Planned(found.position.mark(), rows=found.rows, exact=True)

    def _window(self, stream: str, after: Mark | None, end: object, budget: Budget | None = None) -> _Window:
        """What can be read after a mark, up to a place or a budget."""
        folder = folder_of(self._directory, stream)
        segment, offset = (int(each) for each in end)  # type: ignore[attr-defined]  # a list, by `ceiling`
        if after is not None:
            begin = LogPosition.read(after)
        else:
            first = readers.read_registry(folder).floor
            begin = LogPosition(read_log_id(folder, first).log.hex(), first, HEADER_BYTES, 0)
        window, position, size = _Window(begin), begin, 0
        sent = dict(begin.sent)
        for found in follow(folder, begin.segment, begin.offset, (segment, offset)):
            if not isinstance(found, Found):
                at, damage = found
                if self._streams[stream].damaged == "stop":
                    raise self._refused(
                        stream,
                        f"the record at offset {damage.offset} of segment {at} is damaged",
                        "put the segment back from a backup, or set `damaged: skip` to go on behind it",
                    )
                window.damages.append((at, damage.offset))
                continue
            position = replace(position, segment=found.place.segment, offset=found.end, checksum=found.checksum)
            if found.batch is None or found.batch.before is None:
                continue
            sender = found.batch.sender
            is_known = isinstance(sender, Chunk) and sender.number <= sent.get(sender.producer, 0)
            if not is_known:
                size += self._size(found, budget)
                rows = window.rows + found.batch.readable_rows
                if budget and window.places and (size > budget.bytes or rows > (budget.rows or rows)):
                    break
                window.places += [*found.batch.before, found.place]
                window.rows = rows
            if isinstance(sender, Chunk) and not is_known:
                sent = {**sent, sender.producer: sender.number}
            window.position = replace(position, sent=sent)
        return window

    def _size(self, found: Found, budget: Budget | None) -> int:
        assert found.batch is not None
        if budget is not None and budget.row_bytes:
            return int(found.batch.readable_rows * budget.row_bytes)
        lengths = [found.place.length, *(place.length for place in found.batch.before or ())]
        return sum(lengths) * _GROWTH

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        content = Content.parse(slice_.content)
        stream, folder = slice_.stream, folder_of(self._directory, slice_.stream)
        assert slice_.upto is not None
        upto = LogPosition.read(slice_.upto)
        window = self._window(stream, slice_.after, [upto.segment, upto.offset])
        options = self._streams[stream]
        reader = LogReader(
            stream,
            folder,
            tuple((column.name, str(column.type)) for column in content.columns),
            content.changes,
            options.damaged == "skip",
        )
        damages = [f"segment {number}: the damaged record at offset {at} was left out" for number, at in window.damages]
        yield Reading(reader, _parts(window.places), damages)

    def describe(self, mark: Mark | None) -> str:
        return marks.describe(mark)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        return [
            Remark("guarantee", "batches are read once each, in the order of their last chunks in the log"),
            Remark("gap", "a producer that sends without Idempotency-Key may have sent a batch twice"),
        ]

    # ------------------------------------------------------------ the log keeps what is still to be read

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        folder = folder_of(self._directory, stream)
        if os.path.isdir(folder):
            readers.register(folder, self._reader(stream), _now())
        return []

    def advanced(self, stream: str, position: Position) -> None:
        folder = folder_of(self._directory, stream)
        if position.mark is None or not os.path.isdir(folder):
            return
        segment = LogPosition.read(position.mark).segment
        readers.raise_mark(folder, self._reader(stream), segment, position.number, _now())
        readers.delete_read(folder)

    def _reader(self, stream: str) -> str:
        return f"{self._context.pipeline}/{stream}"


def _now() -> int:
    return time.time_ns() // 1000


def _parts(places: Sequence[Place]) -> list[Part]:
    """Records in order, cut into a few parts of about the same size."""
    total, parts, part = sum(place.length for place in places), list[list[Place]](), list[Place]()
    most = max(PART_BYTES, total // MOST_PARTS)
    size = 0
    for place in places:
        part.append(place)
        size += place.length
        if size >= most:
            parts.append(part)
            part, size = [], 0
    if part:
        parts.append(part)
    return [
        Part(index, canonical({"places": [[p.segment, p.offset, p.length] for p in each]}))
        for index, each in enumerate(parts)
    ]

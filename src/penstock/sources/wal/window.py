"""The records between a mark and a place further on: which batches become readable there, and where they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from penstock.core.documents import canonical
from penstock.core.slices import Part
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.ports import Budget
from penstock.sources.wal.marks import LogPosition, SentOtherwise
from penstock.sources.wal.places import read_header
from penstock.wal.batches import Head
from penstock.wal.following import Found, follow, follow_segment, is_whole
from penstock.wal.frames import Damage
from penstock.wal.ledger import Bare, Chunk, Place
from penstock.wal.segments import path_of

#: compressed bytes that are worth a part of their own
PART_BYTES = 64 << 10
MOST_PARTS = 8
#: bytes of Arrow data for each compressed byte, where nothing is known yet
_GROWTH = 5
_DAMAGED = "its checksum is wrong"


@dataclass(frozen=True, slots=True)
class Range:
    """Whole records that lie next to each other."""

    place: Place
    #: the number of their first row, counted since the log began
    first: int


@dataclass
class Window:
    """What lies between a mark and a place further on."""

    #: the last record whose batches are in the window
    position: LogPosition
    #: up to PART_BYTES each, in order
    ranges: list[Range] = field(default_factory=list)
    rows: int = 0
    batches: int = 0
    #: left out, by segment
    damages: list[tuple[int, Damage]] = field(default_factory=list)
    #: versions of the stream's schema that the batches were checked against
    schemas: set[int] = field(default_factory=set)
    #: slices that were sent again and are left out
    repeated: int = 0
    #: who sent them, and the producers of what was delivered before
    senders: set[str] = field(default_factory=set)
    #: the number of the row after the last range
    _next: int = 0

    def add(self, place: Place, first: int, rows: int) -> None:
        last = self.ranges[-1].place if self.ranges else None
        is_next = last and (last.segment, last.offset + last.length) == (place.segment, place.offset)
        if last and is_next and first == self._next and last.length + place.length <= PART_BYTES:
            whole = Place(last.segment, last.offset, last.length + place.length)
            self.ranges[-1] = Range(whole, self.ranges[-1].first)
        else:
            self.ranges.append(Range(place, first))
        self._next = first + rows


def look(
    folder: str,
    begin: LogPosition,
    end: tuple[int, int],
    stream: str,
    *,
    skips_damage: bool,
    budget: Budget | None = None,
) -> Window:
    """What can be read after a position, up to a place or a budget. StreamRefused where something is missing."""
    try:
        return _look(folder, begin, end, stream, skips_damage, budget)
    except FileNotFoundError as error:
        raise StreamRefused(
            f"{error.filename} is missing: batches that were acknowledged are gone",
            safe=UNTOUCHED,
            next_step="put the file back from a backup; `penstock rewind FILE --to SEGMENT:OFFSET` goes on behind it",
            stream=stream,
        ) from None


def _look(
    folder: str, begin: LogPosition, end: tuple[int, int], stream: str, skips_damage: bool, budget: Budget | None
) -> Window:
    window, position, size = Window(begin, senders=set(begin.sent)), begin, 0
    damages: list[tuple[int, Damage]] = []
    segment = 0
    for found in follow(folder, begin.segment, begin.offset, end, whole=skips_damage):
        number = found.place.segment if isinstance(found, Found) else found[0]
        if number != segment:
            segment = number
            read_header(folder, segment, begin.log)
        if not isinstance(found, Found):
            damages.append(_left_out(folder, found, stream, skips_damage))
            continue
        position = replace(
            position,
            segment=found.place.segment,
            offset=found.end,
            begins=found.place.offset,
            checksum=found.checksum,
        )
        batch = found.batch
        if batch is None or batch.before is None:
            continue
        if not damages:
            _require_no_gap(folder, position, found, batch, stream)
        position = replace(position, batches=batch.total[0], rows=batch.total[1])
        sender = batch.sender
        if isinstance(sender, Chunk) and _was_delivered(position, sender, found, stream):
            window.repeated += 1
        else:
            size += _size(found, budget)
            rows = window.rows + batch.readable_rows
            if budget and window.batches and (size > budget.bytes or rows > (budget.rows or rows)):
                break
            places = [*batch.before, found.place]
            lost = {(segment, damage.offset) for segment, damage in (*window.damages, *damages)}
            for place, first, count in _numbered(folder, places, batch):
                is_earlier = skips_damage and (place.segment, place.offset) < (begin.segment, begin.offset)
                if is_earlier and not is_whole(folder, place):
                    damages.append((place.segment, Damage(place.offset, place.offset + place.length, _DAMAGED)))
                elif (place.segment, place.offset) not in lost:
                    window.add(place, first, count)
            window.rows, window.batches = rows, window.batches + len(places)
            window.schemas.add(batch.schema)
            window.senders.add(_name_of(sender))
            if isinstance(sender, Chunk):
                position = position.with_slice(sender)
        window.position = position
        window.damages += damages
        damages = []
        if budget and budget.look and window.batches:
            break
    if budget is None:
        window.damages += damages
    return window


def _numbered(folder: str, places: Sequence[Place], last: Head) -> Iterator[tuple[Place, int, int]]:
    """The chunks of a slice with the number of their first row and their rows; `last` is the head of the last one."""
    number = last.total[1] - last.readable_rows + 1
    for place in places[:-1]:
        found = next(follow_segment(folder, place.segment, place.offset, place.offset + place.length), None)
        rows = found.batch.rows if isinstance(found, Found) and found.batch else 0
        yield place, number, rows
        number += rows
    yield places[-1], last.total[1] - last.rows + 1, last.rows


def _require_no_gap(folder: str, before: LogPosition, found: Found, batch: Head, stream: str) -> None:
    """StreamRefused if batches are missing although every record is whole: a segment ends too early."""
    readable = len(batch.before or ()) + 1
    missing = batch.total[0] - readable - before.batches
    if missing > 0:
        place = f"{found.place.segment}:{found.place.offset}"
        raise StreamRefused(
            f"{missing} batches that were acknowledged are missing before {place} in {folder}: a segment was cut off, "
            "or put back from an older copy",
            safe=UNTOUCHED,
            next_step="put the segment back from a backup; `penstock wal verify` names it. Without one, "
            f"`penstock rewind FILE --to {place} --stream {stream}` goes on behind the gap",
            stream=stream,
        )


def _left_out(folder: str, found: tuple[int, Damage], stream: str, skips_damage: bool) -> tuple[int, Damage]:
    segment, damage = found
    if not skips_damage:
        raise StreamRefused(
            f"the record at offset {damage.offset} of {path_of(folder, segment)} is damaged: {damage.reason}",
            next_step="put the segment back from a backup, or set `damaged: skip` to go on without it",
            stream=stream,
        )
    return found


def _was_delivered(position: LogPosition, sender: Chunk, found: Found, stream: str) -> bool:
    try:
        return position.was_delivered(sender)
    except SentOtherwise as error:
        place = f"{found.place.segment}:{found.place.offset}"
        raise StreamRefused(
            f"{error}: the log or the producer was restored, and the rows of both slices may overlap",
            next_step=f"`penstock rewind FILE --to {place} --stream {stream}` delivers the slice at {place} and those "
            "after it, whatever was delivered before; a keyed sink keeps each row once",
            stream=stream,
        ) from None


def _name_of(sender: Chunk | Bare | None) -> str:
    if isinstance(sender, Chunk):
        return sender.producer
    return f"keys of {sender.owner or 'anybody'}" if sender else "somebody without a key"


def _size(found: Found, budget: Budget | None) -> int:
    """Bytes of Arrow data to expect."""
    assert found.batch is not None
    if budget is not None and budget.row_bytes:
        return int(found.batch.readable_rows * budget.row_bytes)
    return (found.place.length + sum(place.length for place in found.batch.before or ())) * _GROWTH


def cut_parts(ranges: Sequence[Range]) -> list[Part]:
    """Ranges in order, cut into a few parts of about the same size."""
    most = max(PART_BYTES, sum(each.place.length for each in ranges) // MOST_PARTS)
    parts: list[list[Range]] = []
    size = most
    for each in ranges:
        if size >= most:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += each.place.length
    return [
        Part(
            index,
            canonical({"ranges": [[r.place.segment, r.place.offset, r.place.length, r.first] for r in each]}),
        )
        for index, each in enumerate(parts)
    ]

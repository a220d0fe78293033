"""The files of a log: one segment after the other, each with a header and a copy of the ledger at its beginning.

<folder>/lock                         held while the log is open
<folder>/end                          the durable end
<folder>/readers.json                 who reads the log, and how far
<folder>/000000000001.wal             segments
<folder>/000000000003.torn-8192       bytes cut off the end of a segment: they may have been acknowledged
<folder>/000000000002.damaged-4096    a copy of a damaged record, kept when its segment is deleted
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from penstock.links.durable import sync, write_bytes_durably
from penstock.wal.frames import (
    HEADER_BYTES,
    RECORD_BYTES,
    Damage,
    Header,
    Kind,
    Record,
    UnreadableHeader,
    decode_header,
    decode_record_head,
    read_record,
    scan,
)
from penstock.wal.ledger import Ledger, from_document

#: errors of a disk without room
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
#: pieces that the kernel takes in one write
_MOST_PIECES = 1024
_NAME = re.compile(r"^(\d{12})\.wal$")
_KEPT = re.compile(r"^(\d{12})\.(torn|damaged)-(\d+)(?:-\d+)?$")


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment as it was read."""

    number: int
    path: str
    header: Header
    #: whole records, in order
    records: tuple[Record, ...] = field(repr=False)
    damages: tuple[Damage, ...]
    size: int

    @property
    def end(self) -> int:
        """Where the last whole record ends."""
        return self.records[-1].end if self.records else HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes that were cut off the end of a segment, and kept beside it."""

    #: None: they were not kept, because the disk is full and nothing in them was acknowledged
    path: str | None
    segment: int
    offset: int
    bytes: int
    #: the durable end lay behind them: batches that were acknowledged are among them
    was_acknowledged: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """A file with bytes that are no longer part of the log."""

    path: str
    #: torn or damaged
    what: str
    segment: int
    offset: int
    bytes: int


def path_of(folder: str, number: int) -> str:
    return os.path.join(folder, f"{number:012}.wal")


def list_numbers(folder: str) -> list[int]:
    """The numbers of the segments that are there, in order."""
    return sorted(int(found[1]) for name in os.listdir(folder) if (found := _NAME.match(name)))


def read_segment(folder: str, number: int) -> Segment:
    """A segment with all its records; UnreadableHeader if it is none."""
    path = path_of(folder, number)
    with open(path, "rb") as file:
        data = file.read()
    header = decode_header(data)
    if header.number != number:
        raise UnreadableHeader(f"it is segment {header.number} of its log")
    records: list[Record] = []
    damages: list[Damage] = []
    for found in scan(data):
        if isinstance(found, Record):
            records.append(found)
        else:
            damages.append(found)
    return Segment(number, path, header, tuple(records), tuple(damages), len(data))


def read_copy(folder: str, number: int) -> Ledger | None:
    """The copy of the ledger that a segment begins with; None: it is damaged."""
    with open(path_of(folder, number), "rb") as file:
        head = decode_record_head(file.read(HEADER_BYTES + RECORD_BYTES), HEADER_BYTES)
        if head is None or head.kind != Kind.LEDGER:
            return None
        file.seek(0)
        found = read_record(file.read(HEADER_BYTES + head.size), HEADER_BYTES)
    return from_document(json.loads(found.payload)) if isinstance(found, Record) else None


def create_segment(folder: str, header: Header, first: bytes) -> str:
    """A new segment with its first record, on disk under its name before anything else is written to it."""
    path = path_of(folder, header.number)
    new = f"{path}.new"
    try:
        write_bytes_durably(new, header.encode() + first)
    except OSError:
        with suppress(OSError):
            os.remove(new)  # a disk that is full gets its room back
        raise
    os.rename(new, path)
    sync(folder)
    return path


def cut_tail(folder: str, number: int, offset: int, end: tuple[int, int] | None) -> Torn | None:
    """Keep the bytes from a place on in a file of their own and cut them off; None: there are none.

    `end` is the durable end, if it is known: bytes below it that are gone altogether are reported too.
    """
    path = path_of(folder, number)
    size = os.path.getsize(path)
    was_acknowledged = end is not None and end > (number, offset)
    if size == offset and not was_acknowledged:
        return None
    with open(path, "rb") as file:
        file.seek(offset)
        tail = file.read()
    try:
        kept = _keep(folder, f"{number:012}.torn-{offset}", tail)
    except OSError as error:
        if was_acknowledged or error.errno not in NO_SPACE:
            raise
        kept = None
    os.truncate(path, offset)
    sync(path)
    return Torn(kept, number, offset, len(tail), was_acknowledged)


def keep_damage(folder: str, number: int, damage: Damage) -> str:
    """Copy a damaged record into a file of its own, once; its path. Its segment will be deleted when it was read."""
    path = path_of(folder, number)
    kept = os.path.join(folder, f"{number:012}.damaged-{damage.offset}")
    if not os.path.exists(kept):
        end = os.path.getsize(path) if damage.end is None else damage.end
        with open(path, "rb") as file:
            content = os.pread(file.fileno(), end - damage.offset, damage.offset)
        # Renamed when it is whole: a process that is killed leaves no half copy under this name.
        write_bytes_durably(f"{kept}.new", content)
        os.rename(f"{kept}.new", kept)
        sync(folder)
    return kept


def list_kept(folder: str) -> list[Kept]:
    """Files with what was cut off or found damaged, in the order of their places."""
    found = []
    for name in os.listdir(folder):
        if match := _KEPT.match(name):
            path = os.path.join(folder, name)
            found.append(Kept(path, match[2], int(match[1]), int(match[3]), os.path.getsize(path)))
    return sorted(found, key=lambda each: (each.segment, each.offset, each.path))


def remove_unfinished(folder: str) -> None:
    """Remove what a process that was killed has begun to write, and nobody uses."""
    for name in os.listdir(folder):
        if name.endswith(".new"):
            os.remove(os.path.join(folder, name))


def _keep(folder: str, name: str, content: bytes) -> str:
    path, count = os.path.join(folder, name), 1
    while os.path.exists(path):
        count += 1
        path = os.path.join(folder, f"{name}-{count}")
    try:
        write_bytes_durably(path, content)
    except OSError:
        with suppress(OSError):
            os.remove(path)  # a disk that is full gets its room back
        raise
    sync(folder)
    return path


def write_at(descriptor: int, pieces: Sequence[bytes], offset: int) -> None:
    """Write all pieces at this place, one after the other."""
    left = deque(memoryview(piece) for piece in pieces if piece)
    while left:
        written = os.pwritev(descriptor, [*islice(left, _MOST_PIECES)], offset)
        offset += written
        while left and written >= len(left[0]):
            written -= len(left.popleft())
        if written:
            left[0] = left[0][written:]


def missing_numbers(numbers: Sequence[int], first: int = 0, last: int = 0) -> list[int]:
    """The numbers that are missing between those that are there, from `first` on and up to `last`."""
    if not numbers:
        return list(range(first or 1, last + 1)) or [first or 1]
    expected = range(first or numbers[0], max(last, numbers[-1]) + 1)
    return sorted(set(expected) - set(numbers))


def measure(folder: str, before: int) -> int:
    """The bytes of all segments before one. A reader may delete some meanwhile."""
    size = 0
    for number in list_numbers(folder):
        if number < before:
            with suppress(FileNotFoundError):
                size += os.path.getsize(path_of(folder, number))
    return size

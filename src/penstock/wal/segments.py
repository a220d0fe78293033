"""The files of a log: one segment after the other, each with a header and a copy of the ledger at its beginning.

<folder>/lock                      held while the log is open
<folder>/000000000001.wal          segments
<folder>/000000000003.torn-8192    bytes cut off the end of a segment: they may have been acknowledged
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

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

_NAME = re.compile(r"^(\d{12})\.wal$")


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
        head = decode_record_head(file.read(HEADER_BYTES + RECORD_BYTES)[HEADER_BYTES:])
        if head is None or head.kind != Kind.LEDGER:
            return None
        file.seek(0)
        found = read_record(file.read(HEADER_BYTES + head.size), HEADER_BYTES)
    return from_document(json.loads(found.payload)) if isinstance(found, Record) else None


def create_segment(folder: str, header: Header, first: bytes) -> str:
    """A new segment with its first record, on disk under its name before anything else is written to it."""
    path = path_of(folder, header.number)
    new = f"{path}.new"
    write_bytes_durably(new, header.encode() + first)
    os.rename(new, path)
    sync(folder)
    return path


def cut_tail(folder: str, segment: Segment) -> str | None:
    """Keep bytes after the last whole record in a file of their own and cut them off; its path, or None."""
    if segment.size == segment.end:
        return None
    with open(segment.path, "rb") as file:
        file.seek(segment.end)
        tail = file.read()
    kept = os.path.join(folder, f"{segment.number:012}.torn-{segment.end}")
    write_bytes_durably(kept, tail)
    sync(folder)
    os.truncate(segment.path, segment.end)
    sync(segment.path)
    return kept


def write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of it at this place."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def missing_numbers(numbers: list[int]) -> Iterator[int]:
    """The numbers that lie between those that are there, and are not."""
    for before, after in zip(numbers, numbers[1:], strict=False):
        yield from range(before + 1, after)

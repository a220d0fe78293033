"""Follows a log from a place up to its durable end, without reading the rows of its batches.

The next place is known from the heads of records. Their checksums are those of the whole record: workers check them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from penstock.wal.batches import Head, decode_head
from penstock.wal.frames import (
    HEADER_BYTES,
    RECORD_BYTES,
    Damage,
    Header,
    Kind,
    RecordHead,
    decode_header,
    decode_record_head,
    find_record,
)
from penstock.wal.ledger import Place
from penstock.wal.segments import path_of

#: bytes read at once: the head of a record, and of the batch in it
_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Found:
    """A record of the log."""

    place: Place
    checksum: int
    #: None: it is no batch
    batch: Head | None

    @property
    def end(self) -> int:
        return self.place.offset + self.place.length


def read_log_id(folder: str, segment: int) -> Header:
    """The header of a segment; FileNotFoundError if it is not there."""
    with open(path_of(folder, segment), "rb") as file:
        return decode_header(file.read(HEADER_BYTES))


def checksum_before(folder: str, segment: int, offset: int) -> int | None:
    """The checksum of the record that ends at this place; None: none does."""
    last: Found | None = None
    with suppress(FileNotFoundError):
        for found in follow_segment(folder, segment, HEADER_BYTES, offset):
            last = found if isinstance(found, Found) else last
    return last.checksum if last is not None and last.end == offset else None


def follow(folder: str, segment: int, offset: int, end: tuple[int, int]) -> Iterator[Found | tuple[int, Damage]]:
    """Records from a place on, in order. FileNotFoundError if a segment is gone."""
    while (segment, offset) < end:
        upto = end[1] if segment == end[0] else os.path.getsize(path_of(folder, segment))
        yield from follow_segment(folder, segment, max(offset, HEADER_BYTES), upto)
        segment, offset = segment + 1, HEADER_BYTES


def follow_segment(folder: str, segment: int, at: int, end: int) -> Iterator[Found | tuple[int, Damage]]:
    """The records of one segment between two places."""
    with open(path_of(folder, segment), "rb") as file:
        while at < end:
            data = os.pread(file.fileno(), _HEAD_BYTES, at)
            head = decode_record_head(data)
            if head is None or at + head.size > end:
                rest = os.pread(file.fileno(), end - at, at)
                following = find_record(rest, 1)
                upto = None if following is None else at + following
                yield segment, Damage(at, upto, "no whole record begins here")
                at = end if upto is None else upto
                continue
            yield Found(Place(segment, at, head.size), head.checksum, _batch_of(file.fileno(), at, head, data))
            at += head.size


def _batch_of(descriptor: int, at: int, head: RecordHead, data: bytes) -> Head | None:
    if head.kind != Kind.BATCH:
        return None
    wanted = Head.bytes_of(data[RECORD_BYTES:])
    if wanted > len(data) - RECORD_BYTES:
        data = os.pread(descriptor, RECORD_BYTES + wanted, at)
    return decode_head(data[RECORD_BYTES:])

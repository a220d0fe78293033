"""Follows a log from a place up to its durable end, without reading the rows of its batches.

The heads of records and of batches have checksums of their own. Whole records are checked by the workers that read
their rows, and here with `whole`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import google_crc32c

from penstock.wal.batches import Head, UnreadableHead, decode_head
from penstock.wal.frames import (
    HEADER_BYTES,
    RECORD_BYTES,
    Damage,
    Header,
    Kind,
    Record,
    RecordHead,
    after_damage,
    decode_header,
    decode_record_head,
    read_record,
)
from penstock.wal.ledger import Place
from penstock.wal.segments import path_of

#: bytes read at once where records are small, so that one read gives many heads
_BLOCK_BYTES = 64 << 10
#: bytes read at once where records are large: the head of one, and of the batch in it
_HEAD_BYTES = 4 << 10


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


class _Bytes:
    """Bytes of a file, read in blocks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._begin = 0
        self._block = b""

    def read(self, at: int, size: int, ahead: int) -> bytes:
        """From a place on: at least `size` bytes, or up to the end of the file."""
        if not (self._begin <= at and at + size <= self._begin + len(self._block)):
            self._begin, self._block = at, os.pread(self._descriptor, max(size, ahead), at)
        return self._block[at - self._begin :][: max(size, _HEAD_BYTES)]


def read_log_id(folder: str, segment: int) -> Header:
    """The header of a segment; FileNotFoundError if it is not there."""
    with open(path_of(folder, segment), "rb") as file:
        return decode_header(file.read(HEADER_BYTES))


def head_at(folder: str, segment: int, offset: int) -> RecordHead | None:
    """The head of the record that begins at a place; None: none does. FileNotFoundError if the segment is gone."""
    with open(path_of(folder, segment), "rb") as file:
        return decode_record_head(os.pread(file.fileno(), RECORD_BYTES, offset))


def is_whole(folder: str, place: Place) -> bool:
    """Whether the record at a place is as it was written. FileNotFoundError if the segment is gone."""
    with open(path_of(folder, place.segment), "rb") as file:
        return isinstance(read_record(os.pread(file.fileno(), place.length, place.offset), 0), Record)


def follow(
    folder: str, segment: int, offset: int, end: tuple[int, int], *, whole: bool = False
) -> Iterator[Found | tuple[int, Damage]]:
    """Records from a place on, in order. FileNotFoundError if a segment is gone."""
    while (segment, offset) < end:
        upto = end[1] if segment == end[0] else os.path.getsize(path_of(folder, segment))
        yield from follow_segment(folder, segment, max(offset, HEADER_BYTES), upto, whole=whole)
        segment, offset = segment + 1, HEADER_BYTES


def follow_segment(
    folder: str, segment: int, at: int, end: int, *, whole: bool = False
) -> Iterator[Found | tuple[int, Damage]]:
    """The records of one segment between two places."""
    with open(path_of(folder, segment), "rb") as file:
        source, ahead = _Bytes(file.fileno()), _BLOCK_BYTES
        while at < end:
            data = source.read(at, RECORD_BYTES, ahead)
            head = decode_record_head(data)
            if head is None or at + head.size > end:
                following = after_damage(os.pread(file.fileno(), end - at, at), 0)
                upto = None if following is None else at + following
                yield segment, Damage(at, upto, "no whole record begins here")
                at = end if upto is None else upto
                continue
            ahead = _BLOCK_BYTES if head.size < _BLOCK_BYTES else _HEAD_BYTES
            try:
                if whole:
                    data = source.read(at, head.size, ahead)
                    _check(data, head)
                batch = _batch_of(source, at, head, data)
            except UnreadableHead as error:
                yield segment, Damage(at, at + head.size if at + head.size < end else None, str(error))
            else:
                yield Found(Place(segment, at, head.size), head.checksum, batch)
            at += head.size


def _check(data: bytes, head: RecordHead) -> None:
    if google_crc32c.value(data[RECORD_BYTES : head.size]) != head.payload_checksum:
        raise UnreadableHead("its checksum is wrong")


def _batch_of(source: _Bytes, at: int, head: RecordHead, data: bytes) -> Head | None:
    if head.kind != Kind.BATCH:
        return None
    data = source.read(at, min(head.size, RECORD_BYTES + Head.LEAST_BYTES), _HEAD_BYTES)
    wanted = RECORD_BYTES + Head.bytes_of(data[RECORD_BYTES:])
    if wanted > head.size:
        raise UnreadableHead("the length of its batch's head is wrong")
    if wanted > len(data):
        data = source.read(at, wanted, _HEAD_BYTES)
    return decode_head(data[RECORD_BYTES:wanted])

"""Records on disk: each has a marker, its length, a checksum, a kind and a payload.

A damaged record hides no other: a reader finds the next marker whose record is whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import google_crc32c

#: version of everything in a segment
FORMAT = 1
MAGIC = b"penstock"
#: magic, format, segment number, log id, time of creation in microseconds; a checksum follows
_HEADER = struct.Struct(">8sHQ16sQ")
_CHECKSUM = struct.Struct(">I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_MARKER = b"\xf5rec"
#: marker, length of the payload, kind; a checksum of length, kind and payload follows, then the payload
_RECORD = struct.Struct(">4sIB")
RECORD_BYTES = _RECORD.size + _CHECKSUM.size
#: a longer payload is taken for damage
MAX_PAYLOAD_BYTES = 1 << 30


class Kind(IntEnum):
    """What a record holds."""

    LEDGER = 1
    BATCH = 2
    WITHDRAWAL = 3


@dataclass(frozen=True, slots=True)
class Header:
    """The beginning of a segment."""

    #: segments of a log are numbered 1, 2, 3, …
    number: int
    #: the log's identity, 16 bytes
    log: bytes
    #: microseconds since 1970
    created: int

    def encode(self) -> bytes:
        text = _HEADER.pack(MAGIC, FORMAT, self.number, self.log, self.created)
        return text + _CHECKSUM.pack(google_crc32c.value(text))


@dataclass(frozen=True, slots=True)
class Record:
    """A whole record, and where it lies in its segment."""

    offset: int
    kind: int
    payload: bytes
    #: of length, kind and payload
    checksum: int

    @property
    def end(self) -> int:
        return self.offset + RECORD_BYTES + len(self.payload)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no record. `end` is where the next whole record begins; None: there is none after them."""

    offset: int
    end: int | None
    reason: str


class UnreadableHeader(ValueError):
    """A file that does not begin as a segment of this version does."""


def decode_header(text: bytes) -> Header:
    """The header of a segment; UnreadableHeader if it is none, or of another version."""
    if len(text) < HEADER_BYTES or not text.startswith(MAGIC):
        raise UnreadableHeader("it does not begin as a segment does")
    _, version, number, log, created = _HEADER.unpack_from(text)
    if version != FORMAT:
        raise UnreadableHeader(f"it has format {version}, and this version of penstock reads format {FORMAT}")
    if _CHECKSUM.unpack_from(text, _HEADER.size)[0] != google_crc32c.value(text[: _HEADER.size]):
        raise UnreadableHeader("the checksum of its header is wrong")
    return Header(number, log, created)


def encode_record(kind: Kind, payload: bytes) -> bytes:
    head = _RECORD.pack(_MARKER, len(payload), kind)
    return head + _CHECKSUM.pack(_checksum(head, payload)) + payload


def _checksum(head: bytes, payload: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(head), payload))


@dataclass(frozen=True, slots=True)
class RecordHead:
    """What is known of a record before its payload is read."""

    kind: int
    #: of the whole record, in bytes
    size: int
    checksum: int


def decode_record_head(data: bytes) -> RecordHead | None:
    """The head of a record that begins here; None: none does."""
    if len(data) < RECORD_BYTES:
        return None
    marker, length, kind = _RECORD.unpack_from(data)
    if marker != _MARKER or length > MAX_PAYLOAD_BYTES:
        return None
    return RecordHead(kind, RECORD_BYTES + length, _CHECKSUM.unpack_from(data, _RECORD.size)[0])


def read_record(data: bytes | memoryview, at: int) -> Record | str:
    """The record at this place, or why there is none. `data` begins where the segment does."""
    if at + RECORD_BYTES > len(data):
        return "it is cut off"
    head = bytes(data[at : at + _RECORD.size])
    marker, length, kind = _RECORD.unpack(head)
    if marker != _MARKER or length > MAX_PAYLOAD_BYTES:
        return "no record begins here"
    begin = at + RECORD_BYTES
    if begin + length > len(data):
        return "it is cut off, or its length is wrong"
    payload = bytes(data[begin : begin + length])
    checksum = _CHECKSUM.unpack_from(data, at + _RECORD.size)[0]
    if checksum != _checksum(head, payload):
        return "its checksum is wrong"
    return Record(at, kind, payload, checksum)


def scan(data: bytes, at: int = HEADER_BYTES) -> Iterator[Record | Damage]:
    """All records from a place on, in order, and what lies between them where they are damaged."""
    while at < len(data):
        found = read_record(data, at)
        if isinstance(found, Record):
            yield found
            at = found.end
            continue
        following = find_record(data, at + 1)
        yield Damage(at, following, found)
        if following is None:
            return
        at = following


def find_record(data: bytes, at: int) -> int | None:
    """Where the next whole record begins; None: there is none."""
    while (at := data.find(_MARKER, at)) >= 0:
        if isinstance(read_record(data, at), Record):
            return at
        at += 1
    return None

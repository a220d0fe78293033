"""Records on disk: each has a marker, its length, a kind, checksums and a payload.

The head of a record has a checksum of its own, so that a reader can go from record to record without reading payloads.
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
#: marker, length of the payload, kind, checksum of the payload; a checksum of these follows, then the payload
_RECORD = struct.Struct(">4sIBI")
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
    #: of its head, and so of its length, kind and payload
    checksum: int

    @property
    def end(self) -> int:
        return self.offset + RECORD_BYTES + len(self.payload)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no whole record. `end` is where reading goes on; None: nothing follows them."""

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


def encode_record(kind: Kind, *payload: bytes) -> bytes:
    """A record as it is written, its payload in pieces; ValueError if readers would take its length for damage."""
    return b"".join(encode_pieces(kind, *payload))


def encode_pieces(kind: Kind, *payload: bytes) -> tuple[bytes, ...]:
    """The same without a copy of the payload: what is to be written, one piece after the other."""
    length, checksum = sum(map(len, payload)), 0
    if length > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a record of {length:,} bytes is longer than {MAX_PAYLOAD_BYTES:,}")
    for piece in payload:
        checksum = google_crc32c.extend(checksum, piece)
    head = _RECORD.pack(_MARKER, length, kind, checksum)
    return head + _CHECKSUM.pack(google_crc32c.value(head)), *payload


@dataclass(frozen=True, slots=True)
class RecordHead:
    """What is known of a record before its payload is read."""

    kind: int
    #: of the whole record, in bytes
    size: int
    #: of the head, and so of length, kind and payload
    checksum: int
    payload_checksum: int


def decode_record_head(data: bytes | memoryview, at: int = 0) -> RecordHead | None:
    """The head of a record that begins here; None: none does."""
    if len(data) < at + RECORD_BYTES:
        return None
    marker, length, kind, of_payload = _RECORD.unpack_from(data, at)
    checksum = int(_CHECKSUM.unpack_from(data, at + _RECORD.size)[0])
    if marker != _MARKER or checksum != google_crc32c.value(bytes(data[at : at + _RECORD.size])):
        return None
    return RecordHead(kind, RECORD_BYTES + length, checksum, of_payload) if length <= MAX_PAYLOAD_BYTES else None


def read_record(data: bytes | memoryview, at: int) -> Record | str:
    """The record at this place of `data`, or why there is none."""
    head = decode_record_head(data, at)
    if head is None:
        return "it is cut off" if at + RECORD_BYTES > len(data) else "no record begins here"
    if at + head.size > len(data):
        return "it is cut off"
    payload = bytes(data[at + RECORD_BYTES : at + head.size])
    if head.payload_checksum != google_crc32c.value(payload):
        return "its checksum is wrong"
    return Record(at, head.kind, payload, head.checksum)


def scan(data: bytes, at: int = HEADER_BYTES) -> Iterator[Record | Damage]:
    """All records from a place on, in order, and what lies between them where they are damaged."""
    while at < len(data):
        found = read_record(data, at)
        if isinstance(found, Record):
            yield found
            at = found.end
            continue
        following = after_damage(data, at)
        yield Damage(at, following, found)
        if following is None:
            return
        at = following


def after_damage(data: bytes, at: int) -> int | None:
    """Where reading goes on after a damaged record; None: nothing follows it.

    The record after one whose head is whole may be damaged too; else it is the next whole one.
    """
    head = decode_record_head(data, at)
    if head is not None:
        return at + head.size if at + head.size < len(data) else None
    while (at := data.find(_MARKER, at + 1)) >= 0:
        if isinstance(read_record(data, at), Record):
            return at
    return None

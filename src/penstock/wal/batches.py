"""What a record of the log holds: a batch with its header, or the withdrawal of a slice."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import google_crc32c

from penstock.wal.ledger import Bare, Chunk, Place
from penstock.wal.meta import Meta

#: length of the head, and its checksum: a reader that goes from head to head reads no rows
_HEAD = struct.Struct(">II")
_to_json = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
_FIELD_NAMES = {kind: tuple(each.name for each in fields(kind)) for kind in (Chunk, Bare)}


class UnreadableHead(ValueError):
    """A batch whose head is not as it was written."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that somebody sent, as they are stored."""

    #: who sent them: a chunk of a slice, a batch with a key of its own, or a batch without any key (None)
    sender: Chunk | Bare | None
    rows: int
    #: compressed lines of JSON
    body: bytes
    #: the version of the stream's schema that they were checked against
    schema: int = 1
    #: rows or ops
    kind: str = "rows"
    #: what the sender says of its origin
    meta: Meta | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """What a batch says of itself, without its rows."""

    sender: Chunk | Bare | None
    rows: int
    schema: int
    kind: str
    #: microseconds since 1970, by the log's clock
    at: int
    #: earlier chunks of the slice, which become readable with this one; None: more are to come
    before: tuple[Place, ...] | None
    #: rows of those chunks
    rows_before: int
    #: batches that can be read since the log began, with those of this record, and their rows
    total: tuple[int, int]
    meta: Meta | None = None

    @property
    def readable_rows(self) -> int:
        """Rows that become readable with this batch."""
        return 0 if self.before is None else self.rows + self.rows_before

    @property
    def source(self) -> str:
        """Who sent it: the source that its meta names, or else the producer or the owner of its key."""
        if self.meta is not None and self.meta.source is not None:
            return self.meta.source
        if self.sender is None:
            return ""
        return self.sender.producer if isinstance(self.sender, Chunk) else self.sender.owner

    #: bytes of a payload that tell how long its head is
    LEAST_BYTES: ClassVar[int] = _HEAD.size

    @staticmethod
    def bytes_of(payload: bytes) -> int:
        """The bytes of a payload that hold its head; UnreadableHead if it is too short."""
        if len(payload) < _HEAD.size:
            raise UnreadableHead("it is too short for a batch")
        return _HEAD.size + int(_HEAD.unpack_from(payload)[0])


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch as it is in the log."""

    batch: Batch
    head: Head
    #: the chunks that can be read from here on, in order; () until the last chunk of a slice is stored
    readable: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The open slice of a producer, whose chunks will never be read."""

    producer: str
    slice: str


def encode_batch(batch: Batch, head: Head) -> tuple[bytes, bytes]:
    """The payload of a record in two pieces: the head of the batch, and its body."""
    sender = batch.sender
    document = {
        "sender": None
        if sender is None
        else {"is": "chunk" if isinstance(sender, Chunk) else "bare", **_fields_of(sender)},
        "rows": batch.rows,
        "schema": batch.schema,
        "kind": batch.kind,
        "at": head.at,
        "rows_before": head.rows_before,
        "before": None
        if head.before is None
        else [[place.segment, place.offset, place.length] for place in head.before],
        "total": head.total,
        **({} if head.meta is None else {"meta": head.meta.document()}),
    }
    text = _to_json(document).encode()
    return _HEAD.pack(len(text), google_crc32c.value(text)) + text, batch.body


def _fields_of(sender: Chunk | Bare) -> dict[str, str | int]:
    """Its fields by name: `asdict`, which copies deeply, takes ten times as long."""
    return {name: getattr(sender, name) for name in _FIELD_NAMES[type(sender)]}


def decode_head(payload: bytes) -> Head:
    """The head of a batch, from at least that part of the payload; UnreadableHead if it is damaged."""
    text = payload[_HEAD.size : Head.bytes_of(payload)]
    if google_crc32c.value(text) != _HEAD.unpack_from(payload)[1]:
        raise UnreadableHead("the head of its batch is damaged")
    document: Mapping[str, Any] = json.loads(text)
    sender: Chunk | Bare | None = None
    if document["sender"] is not None:
        fields = dict(document["sender"])
        sender = Chunk(**fields) if fields.pop("is") == "chunk" else Bare(**fields)
    before = None if document["before"] is None else tuple(Place(*place) for place in document["before"])
    return Head(
        sender,
        document["rows"],
        document["schema"],
        document["kind"],
        document["at"],
        before,
        document["rows_before"],
        (document["total"][0], document["total"][1]),
        Meta(**document["meta"]) if "meta" in document else None,
    )


def decode_batch(payload: bytes, own: Place) -> Stored:
    """`own` is where the record lies."""
    head = decode_head(payload)
    body = payload[Head.bytes_of(payload) :]
    readable = () if head.before is None else (*head.before, own)
    return Stored(Batch(head.sender, head.rows, body, head.schema, head.kind, head.meta), head, readable)


def encode_withdrawal(withdrawal: Withdrawal, at: int) -> bytes:
    return _to_json({**asdict(withdrawal), "at": at}).encode()


def decode_withdrawal(payload: bytes) -> tuple[Withdrawal, int]:
    document = json.loads(payload)
    return Withdrawal(document["producer"], document["slice"]), document["at"]

"""What a record of the log holds: a batch with its header, or the withdrawal of a slice."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.wal.ledger import Bare, Chunk, Place

_LENGTH = struct.Struct(">I")


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
    rows_before: int = 0

    @property
    def readable_rows(self) -> int:
        """Rows that become readable with this batch."""
        return 0 if self.before is None else self.rows + self.rows_before

    @staticmethod
    def bytes_of(payload: bytes) -> int:
        """The bytes of a payload that hold its head."""
        return _LENGTH.size + int(_LENGTH.unpack_from(payload)[0])


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch as it is in the log."""

    batch: Batch
    #: microseconds since 1970, by the log's clock
    at: int
    #: the chunks that can be read from here on, in order; () until the last chunk of a slice is stored
    readable: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The open slice of a producer, whose chunks will never be read."""

    producer: str
    slice: str


def encode_batch(batch: Batch, at: int, before: tuple[Place, ...], rows_before: int, *, is_last: bool) -> bytes:
    """`before` are the earlier chunks of a slice, which become readable with its last one; they have `rows_before`."""
    sender = batch.sender
    head = {
        "sender": None
        if sender is None
        else {"is": "chunk" if isinstance(sender, Chunk) else "bare", **asdict(sender)},
        "rows": batch.rows,
        "schema": batch.schema,
        "kind": batch.kind,
        "at": at,
        "rows_before": rows_before,
        "before": [[place.segment, place.offset, place.length] for place in before] if is_last else None,
    }
    text = json.dumps(head, separators=(",", ":"), sort_keys=True).encode()
    return _LENGTH.pack(len(text)) + text + batch.body


def decode_head(payload: bytes) -> Head:
    """The head of a batch; only that part of the payload is needed."""
    head: Mapping[str, Any] = json.loads(payload[_LENGTH.size : Head.bytes_of(payload)])
    sender: Chunk | Bare | None = None
    if head["sender"] is not None:
        fields = dict(head["sender"])
        sender = Chunk(**fields) if fields.pop("is") == "chunk" else Bare(**fields)
    before = None if head["before"] is None else tuple(Place(*place) for place in head["before"])
    return Head(sender, head["rows"], head["schema"], head["kind"], head["at"], before, head["rows_before"])


def decode_batch(payload: bytes, own: Place) -> Stored:
    """`own` is where the record lies."""
    head = decode_head(payload)
    body = payload[Head.bytes_of(payload) :]
    readable = () if head.before is None else (*head.before, own)
    return Stored(Batch(head.sender, head.rows, body, head.schema, head.kind), head.at, readable)


def encode_withdrawal(withdrawal: Withdrawal, at: int) -> bytes:
    return json.dumps({**asdict(withdrawal), "at": at}, separators=(",", ":"), sort_keys=True).encode()


def decode_withdrawal(payload: bytes) -> tuple[Withdrawal, int]:
    document = json.loads(payload)
    return Withdrawal(document["producer"], document["slice"]), document["at"]

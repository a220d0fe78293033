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


def encode_batch(batch: Batch, at: int, before: tuple[Place, ...], *, is_last: bool) -> bytes:
    """`before` are the earlier chunks of a slice, which become readable with its last one."""
    sender = batch.sender
    head = {
        "sender": None
        if sender is None
        else {"is": "chunk" if isinstance(sender, Chunk) else "bare", **asdict(sender)},
        "rows": batch.rows,
        "schema": batch.schema,
        "kind": batch.kind,
        "at": at,
        "before": [[place.segment, place.offset, place.length] for place in before] if is_last else None,
    }
    text = json.dumps(head, separators=(",", ":"), sort_keys=True).encode()
    return _LENGTH.pack(len(text)) + text + batch.body


def decode_batch(payload: bytes, own: Place) -> Stored:
    """`own` is where the record lies."""
    (length,) = _LENGTH.unpack_from(payload)
    head: Mapping[str, Any] = json.loads(payload[_LENGTH.size : _LENGTH.size + length])
    sender: Chunk | Bare | None = None
    if head["sender"] is not None:
        fields = dict(head["sender"])
        sender = Chunk(**fields) if fields.pop("is") == "chunk" else Bare(**fields)
    batch = Batch(sender, head["rows"], payload[_LENGTH.size + length :], head["schema"], head["kind"])
    readable = () if head["before"] is None else (*(Place(*place) for place in head["before"]), own)
    return Stored(batch, head["at"], readable)


def encode_withdrawal(withdrawal: Withdrawal, at: int) -> bytes:
    return json.dumps({**asdict(withdrawal), "at": at}, separators=(",", ":"), sort_keys=True).encode()


def decode_withdrawal(payload: bytes) -> tuple[Withdrawal, int]:
    document = json.loads(payload)
    return Withdrawal(document["producer"], document["slice"]), document["at"]

"""Rows of the quarantine as requests: those that came in one chunk go in one request again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from penstock.core.documents import digest, parse
from penstock.sinks.http.chunks import MEDIA_TYPES, ChunkShape
from penstock.sinks.http.memory import NO_CHUNK, KeptRow
from penstock.sinks.http.receiver import Batch


def batches_to_replay(rows: Iterable[KeptRow], shape: ChunkShape) -> Iterator[tuple[list[KeptRow], Batch]]:
    """The rows of each request, and the request. The same rows have the same key."""
    for _, group in groupby(rows, lambda row: _request_of(row, shape)):
        together = list(group)
        body = shape.body("".join(row.row + shape.end for row in together).encode())
        first = together[0]
        key = f"{first.slice[:32]}/{first.chunk}/{digest(first.head, body.decode())[:32]}"
        compression = "" if shape.compression == "none" else shape.compression
        head = parse(first.head) if first.head else {}
        batch = Batch(key, len(together), shape.compress(body), MEDIA_TYPES[shape.format], compression, head)
        yield together, batch


def _request_of(row: KeptRow, shape: ChunkShape) -> tuple[str, int, int]:
    is_alone = row.chunk == NO_CHUNK or shape.format == "object"
    return row.slice, row.chunk, row.id if is_alone else 0

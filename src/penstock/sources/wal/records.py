"""The batches of a range of a log, inside a worker: their rows as lines of JSON. Every checksum is checked again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.errors import StreamFailed
from penstock.wal.batches import Head, decode_head
from penstock.wal.frames import Damage, Kind, scan
from penstock.wal.segments import path_of

#: segment, offset, length, number of the first row
RangeTerms = Sequence[int]


@dataclass(frozen=True, slots=True)
class Lines:
    """The rows of a record, as lines of JSON."""

    segment: int
    offset: int
    #: bytes of the lines
    size: int
    #: the number of the first line, counted since the log began
    first: int
    head: Head
    lines: list[bytes]


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a log. Small and picklable."""

    stream: str
    folder: str
    #: a damaged record is left out instead of failing the slice
    skips_damage: bool

    def read(self, ranges: Sequence[RangeTerms]) -> Iterator[Lines]:
        for segment, offset, length, first in ranges:
            path = path_of(self.folder, segment)
            with open(path, "rb") as file:
                data = os.pread(file.fileno(), length, offset)
            for found in scan(data, 0):
                if isinstance(found, Damage):
                    self._refuse_damage(path, offset + found.offset, found.reason)
                elif found.kind == Kind.BATCH:
                    lines = _lines(found.payload, segment, offset + found.offset, first)
                    first += lines.head.rows
                    yield lines
            if len(data) < length:
                self._refuse_damage(path, offset + len(data), "the segment ends there")

    def _refuse_damage(self, path: str, offset: int, reason: str) -> None:
        if self.skips_damage:
            return
        raise StreamFailed(
            f"the record at offset {offset} of {path} is damaged: {reason}",
            next_step="put the file back from a backup, or set `damaged: skip` to go on without its rows",
            stream=self.stream,
        )


def _lines(payload: bytes, segment: int, offset: int, first: int) -> Lines:
    import pyarrow as pa

    body = pa.py_buffer(payload).slice(Head.bytes_of(payload))
    text: bytes = pa.input_stream(body, compression="zstd").read() if body.size else b""
    return Lines(segment, offset, len(text), first, decode_head(payload), text.splitlines())

"""Up to where a log is on disk: written after each sync, for readers in other processes.

The file itself is not synced. After a power failure it may say less than is there, and never more.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

import google_crc32c

_NAME = "end"
#: segment, offset, batches, rows, clock; a checksum follows
_END = struct.Struct(">QQQQQ")
_CHECKSUM = struct.Struct(">I")
#: a reader may meet a write: it reads again
_TRIES = 10


@dataclass(frozen=True, slots=True, order=True)
class End:
    """The durable end of a log."""

    segment: int
    offset: int
    #: batches that could be read since the log began, and their rows
    batches: int = 0
    rows: int = 0
    #: the time of the last record, in microseconds since 1970, by the log's clock
    clock: int = 0

    @property
    def place(self) -> tuple[int, int]:
        return self.segment, self.offset


class EndFile:
    """The file, for the process that writes the log."""

    def __init__(self, folder: str) -> None:
        self._descriptor = os.open(os.path.join(folder, _NAME), os.O_WRONLY | os.O_CREAT, 0o600)

    def write(self, end: End) -> None:
        text = _END.pack(end.segment, end.offset, end.batches, end.rows, end.clock)
        os.pwrite(self._descriptor, text + _CHECKSUM.pack(google_crc32c.value(text)), 0)

    def close(self) -> None:
        os.close(self._descriptor)


def read_end(folder: str) -> End | None:
    """None: there is no log, or the process that writes it must be started once."""
    for _ in range(_TRIES):
        try:
            with open(os.path.join(folder, _NAME), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        text = data[: _END.size]
        is_whole = len(data) >= _END.size + _CHECKSUM.size
        if is_whole and _CHECKSUM.unpack_from(data, _END.size)[0] == google_crc32c.value(text):
            return End(*_END.unpack(text))
    return None

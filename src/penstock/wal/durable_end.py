"""Up to where a log is on disk: written after each sync, for readers in other processes.

The file itself is not synced. After a power failure it may say less than is there, and never more.
"""

from __future__ import annotations

import os
import struct

import google_crc32c

_NAME = "end"
#: segment, offset; a checksum follows
_END = struct.Struct(">QQ")
_CHECKSUM = struct.Struct(">I")


def write_end(folder: str, segment: int, offset: int) -> None:
    text = _END.pack(segment, offset)
    descriptor = os.open(os.path.join(folder, _NAME), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, text + _CHECKSUM.pack(google_crc32c.value(text)), 0)
    finally:
        os.close(descriptor)


def read_end(folder: str) -> tuple[int, int] | None:
    """(segment, offset); None: there is no log, or the process that writes it must be started once."""
    try:
        with open(os.path.join(folder, _NAME), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    text = data[: _END.size]
    if len(data) < _END.size + _CHECKSUM.size or _CHECKSUM.unpack_from(data, _END.size)[0] != google_crc32c.value(text):
        return None
    segment, offset = _END.unpack(text)
    return segment, offset

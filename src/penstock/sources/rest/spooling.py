"""The files of a spool: compressed lines of JSON, one record each, in files that workers read at the same time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

#: bytes of records in one file: what one worker reads
FILE_BYTES = 16 << 20
_SUFFIX = ".ndjson.zst"


class SpoolWriter:
    """Writes records into the folder of a spool. The spool itself syncs and digests the files.

    Without a folder they are kept in memory, compressed, until there is one.
    """

    def __init__(self, folder: str | None, row_bytes: float | None) -> None:
        self._folder = folder
        self._row_bytes = row_bytes or 0.0
        self._buffers: list[Any] = []
        self._buffer: Any = None
        self._file: Any = None
        self._in_file = 0
        self._files = 0
        #: what was written so far
        self.rows = 0
        self.bytes = 0

    @property
    def memory(self) -> int:
        """Bytes of the pages that are kept in memory, compressed; what the codec holds back is not counted."""
        held = sum(buffer.size for buffer in self._buffers)
        return int(held + (self._buffer.tell() if self._buffer is not None else 0))

    def size_of(self, texts: Sequence[bytes]) -> int:
        """The Arrow bytes that records are expected to have."""
        return max(sum(map(len, texts)), int(len(texts) * self._row_bytes))

    def write(self, texts: Sequence[bytes]) -> None:
        if not texts:
            return
        if self._file is None:
            self._file = self._open()
        self._file.write(b"\n".join(texts) + b"\n")
        size = self.size_of(texts)
        self.rows += len(texts)
        self.bytes += size
        self._in_file += size
        if self._in_file >= FILE_BYTES:
            self.close()

    def move_into(self, folder: str) -> None:
        """Write what was kept in memory into a folder, and go on there."""
        self.close()
        self._folder = folder
        for buffer in self._buffers:
            with open(self._next_path(folder), "wb") as file:
                file.write(buffer)
        self._buffers = []

    def _open(self) -> Any:
        import pyarrow as pa

        self._in_file = 0
        if self._folder is not None:
            return pa.output_stream(self._next_path(self._folder), compression="zstd")
        self._buffer = pa.BufferOutputStream()
        return pa.CompressedOutputStream(self._buffer, "zstd")

    def _next_path(self, folder: str) -> str:
        self._files += 1
        return os.path.join(folder, f"records-{self._files - 1:05}{_SUFFIX}")

    def close(self) -> None:
        """End the file at hand. Idempotent."""
        file, self._file = self._file, None
        if file is None:
            return
        file.close()
        if self._buffer is not None:
            self._buffers.append(self._buffer.getvalue())
            self._buffer = None


def list_files(folder: str) -> list[str]:
    """The files with records of a spool, in the order in which they were written."""
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(_SUFFIX)]


def read_lines(path: str, most_bytes: int) -> Iterator[list[bytes]]:
    """The records of a file, in lists of about `most_bytes`."""
    import pyarrow as pa

    rest = b""
    with pa.input_stream(path, compression="zstd") as file:
        while block := file.read(most_bytes):
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            if lines:
                yield lines
    if rest:
        yield [rest]

"""PyIceberg's metadata on the disk before the catalog names it: its own writer leaves that to the operating system.

A power cut after a commit would otherwise leave a catalog whose newest metadata document is empty.
"""

from __future__ import annotations

import os
from typing import Any

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class DurableFileIO(PyArrowFileIO):
    """Local files are synced when they are closed, and so is the folder that has their name."""

    def new_output(self, location: str) -> PyArrowFile:
        made = super().new_output(location)
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return made
        return _DurableFile(location, path, made._filesystem, made._buffer_size)


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        return _Synced(super().create(overwrite), self._path)


class _Synced:
    """A stream that is on the disk once it is closed."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, b: bytes) -> int:
        written: int = self._stream.write(b)
        return written

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def close(self) -> None:
        if self._stream.closed:
            return
        self._stream.close()
        _sync(self._path)
        _sync(os.path.dirname(self._path))

    def __enter__(self) -> _Synced:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

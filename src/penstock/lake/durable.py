"""A table's metadata on the disk before the catalog names it: PyIceberg and Spark leave that to the operating system.

A power cut after a commit would otherwise leave a catalog whose newest metadata document is empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.lake.parquet import local_path, sync

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


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
        sync(self._path)
        sync(os.path.dirname(self._path))

    def __enter__(self) -> _Synced:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def sync_metadata(table: Table, snapshot: Snapshot) -> None:
    """Sync everything that another program wrote for a snapshot: metadata, manifests, data and delete files."""
    local = [path for uri in _written(table, snapshot) if (path := local_path(uri)) is not None]
    for path in (*local, *sorted({os.path.dirname(path) for path in local})):
        sync(path)


def _written(table: Table, snapshot: Snapshot) -> Iterator[str]:
    yield table.metadata_location
    yield snapshot.manifest_list
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        yield manifest.manifest_path
        for entry in manifest.fetch_manifest_entry(table.io):
            if entry.snapshot_id == snapshot.snapshot_id:
                yield entry.data_file.file_path

"""Writes data files: row groups in, an Iceberg DataFile out. Local files are on disk before they count."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import BufferedWriter
from io import FileIO as RawFile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, OutputStream, load_file_io
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    MetricModeTypes,
    MetricsMode,
    PyArrowFile,
    PyArrowFileIO,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from penstock.lake.fitting import make_file_schema
from penstock.lake.iceberg_types import make_arrow_columns
from penstock.lake.names import METRICS, SEQ
from penstock.links.durable import sync

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

#: Arrow bytes of a row group: small enough that a reader of a few numbers skips nearly everything
ROW_GROUP_BYTES = 12 << 20
#: bytes of a finished data file
TARGET_FILE_BYTES = 128 << 20
#: largest dictionary: columns of mostly different values are written 1.3 times faster without one, and smaller
MAX_DICTIONARY_BYTES = 64 << 10
_METRICS = "write.metadata.metrics."
_TIMES = (DateType, TimestampType, TimestamptzType)


@dataclass(frozen=True)
class FileLayout:
    """How a table's data files are written. Picklable."""

    schema: Schema
    spec: PartitionSpec
    #: the folder of its data files, as a URI or a path
    location: str
    #: FileIO properties; they may hold secrets
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: columns that identify a row of a keyed table; a NULL in one is refused
    key: tuple[str, ...] = ()
    #: table properties that choose which bounds manifests hold
    metrics: Mapping[str, str] = field(default_factory=dict)
    compression: str = "zstd"
    level: int | None = 1
    #: Arrow bytes of a row group
    row_group: int = ROW_GROUP_BYTES
    #: file bytes after which the next file is started
    target: int = TARGET_FILE_BYTES

    @classmethod
    def of(cls, table: Table, key: tuple[str, ...] = ()) -> FileLayout:
        """The layout of a table, by its own write properties where it has any."""
        properties = table.metadata.properties
        codec = properties.get(TableProperties.PARQUET_COMPRESSION, "zstd")
        level = properties.get(TableProperties.PARQUET_COMPRESSION_LEVEL, "1" if codec == "zstd" else None)
        return cls(
            schema=table.schema(),
            spec=table.spec(),
            location=properties.get(TableProperties.WRITE_DATA_PATH, f"{table.location().rstrip('/')}/data"),
            properties=dict(table.io.properties),
            key=key,
            metrics={name: value for name, value in properties.items() if name.startswith(_METRICS)},
            compression="none" if codec == "uncompressed" else codec,
            level=int(level) if level is not None else None,
            target=int(properties.get(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, TARGET_FILE_BYTES)),
        )

    def file_io(self) -> FileIO:
        return load_file_io(dict(self.properties), self.location)


def local_path(location: str) -> str | None:
    """The path of a local location; None: it is not local."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return location
    return "/" + rest.lstrip("/") if scheme == "file" else None


class DataFileWriter:
    """A data file that is being written."""

    def __init__(
        self, layout: FileLayout, io: FileIO, name: str, partition: Record, spec_id: int, columns: pa.Schema
    ) -> None:
        self.layout, self.io = layout, io
        self.uri = f"{layout.location.rstrip('/')}/{name}"
        self.partition, self.spec_id = partition, spec_id
        self.path = local_path(self.uri)
        # Names are random, so there is nothing to overwrite, and no need to ask.
        self.stream: Any = (
            pa.OSFile(self.path, "wb") if self.path is not None else io.new_output(self.uri).create(overwrite=True)
        )
        paths = parquet_path_to_id_mapping(make_file_schema(layout.schema))
        self.writer: Any = pq.ParquetWriter(
            self.stream,
            columns,
            compression=layout.compression,
            compression_level=layout.level,
            # Numbers never repeat: a dictionary of them would be three times as large as they are.
            use_dictionary=[path for path in paths if path != SEQ],
            dictionary_pagesize_limit=MAX_DICTIONARY_BYTES,
            store_decimal_as_integer=True,
        )

    def write(self, table: pa.Table) -> None:
        """Write a table in row groups of about the wanted size, all alike."""
        groups = max(1, round(table.nbytes / self.layout.row_group))
        self.writer.write_table(table, row_group_size=max(1, -(-table.num_rows // groups)))

    def size(self) -> int:
        return int(self.stream.tell())

    def close(self) -> DataFile:
        """Finish the file; a local one is on the disk, its name is not yet (`sync` the folder)."""
        self.writer.close()
        size = self.size()
        self.stream.close()
        if self.path is not None:
            sync(self.path)
        made = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.uri,
            file_format=FileFormat.PARQUET,
            partition=self.partition,
            file_size_in_bytes=size,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **collect_statistics(self.writer.writer.metadata, self.layout).to_serialized_dict(),
        )
        made.spec_id = self.spec_id  # not a field of its record, so `from_args` would drop it
        return made

    def abandon(self) -> None:
        """Close the file without finishing it."""
        # Arrow would write the footer when it frees the writer, into a stream that is closed by then.
        self.writer.is_open = False
        with contextlib.suppress(OSError):
            self.stream.close()


def remove(uri: str, io: FileIO) -> None:
    """Remove a file of ours that no one knows of; it may not exist."""
    path = local_path(uri)
    with contextlib.suppress(OSError):  # what cannot be removed now is swept later
        if path is not None:
            os.unlink(path)
        else:
            io.delete(uri)


def collect_statistics(metadata: pq.FileMetaData, layout: FileLayout) -> DataFileStatistics:
    """Collect what the manifest holds about a file: counts, sizes, bounds."""
    schema = make_file_schema(layout.schema)
    ids = parquet_path_to_id_mapping(schema)
    plan = compute_statistics_plan(schema, {**layout.metrics, **METRICS})
    try:
        found = data_file_statistics_from_parquet_metadata(metadata, plan, ids)
    except OverflowError:
        # pyarrow gives bounds as Python's dates, which end with the year 9999.
        plan = {id_: _counted(each) if isinstance(each.iceberg_type, _TIMES) else each for id_, each in plan.items()}
        found = data_file_statistics_from_parquet_metadata(metadata, plan, ids)
    for place in range(metadata.num_columns):
        if _unbounded(metadata, place):
            found.column_aggregates.pop(ids[metadata.row_group(0).column(place).path_in_schema], None)
    return found


def _counted(collector: StatisticsCollector) -> StatisticsCollector:
    return replace(collector, mode=MetricsMode(MetricModeTypes.COUNTS))


def _unbounded(metadata: pq.FileMetaData, place: int) -> bool:
    """Whether some row group has values and no bounds, as for long texts.

    PyIceberg then takes the bounds of the other row groups for those of the file, and readers would skip rows.
    """
    found = (metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups))
    return any(each is None or (each.num_values > 0 and not each.has_min_max) for each in found)


def make_arrow_schema(layout: FileLayout) -> pa.Schema:
    """The Arrow schema of new data files."""
    return make_arrow_columns(make_file_schema(layout.schema))


class DurableFileIO(PyArrowFileIO):
    """Syncs local files when they are closed, and the folder that has their name.

    PyIceberg leaves that to the operating system: a power cut after a commit could leave a catalog whose newest
    metadata document is empty.
    """

    def new_output(self, location: str) -> PyArrowFile:
        made = super().new_output(location)
        scheme, _, path = self.parse_location(location, self.properties)
        return _DurableFile(location, path, made._filesystem, made._buffer_size) if scheme == "file" else made


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        return _SyncedFile(self._path, "wb" if overwrite else "xb")


class _SyncedFile(BufferedWriter):
    """A file that is on the disk once it is closed."""

    def __init__(self, path: str, mode: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        super().__init__(RawFile(path, mode))
        self.path = path

    def close(self) -> None:
        if not self.closed:
            super().close()
            sync(self.path)
            sync(os.path.dirname(self.path))


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

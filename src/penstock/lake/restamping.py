"""New numbers for rows that were put aside: after a lost race the same rows come later in the order."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

from penstock.lake.names import SEQ
from penstock.lake.parquet import OpenFile, Shape, local_path, remove, sync

#: files that are rewritten at the same time
THREADS = 4


def restamp(
    files: Sequence[DataFile], shape: Shape, *, old_start: int, new_start: int, name: str, threads: int = THREADS
) -> list[DataFile]:
    """The same rows in new files, each number shifted from `old_start` to `new_start`; order and gaps stay.

    `shape` is the one that the files were written with, `name` the beginning of the new files' names. The old files
    stay: only the caller learns whether they are needed. On a failure the new ones are removed.
    """
    io, own = shape.file_io(), uuid.uuid4().hex[:8]
    names = [f"{name}-r{k}-{own}.parquet" for k in range(len(files))]
    with ThreadPoolExecutor(max(1, min(threads, len(files)))) as pool:
        futures = [
            pool.submit(_rewritten, file, shape, io, new, new_start - old_start)
            for file, new in zip(files, names, strict=True)
        ]
        try:
            done = [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            for new in names:
                remove(f"{shape.location.rstrip('/')}/{new}", io)
            raise
    folder = local_path(shape.location)
    if folder is not None and files:
        sync(folder)
    return done


def _rewritten(old: DataFile, shape: Shape, io: FileIO, name: str, shift: int) -> DataFile:
    path = local_path(old.file_path)
    with pa.OSFile(path) if path is not None else io.new_input(old.file_path).open() as stream:
        source = pq.ParquetFile(stream)
        # The file's own columns and field ids: the table may have grown since.
        columns = source.schema_arrow
        place = columns.get_field_index(SEQ)
        new = OpenFile(shape, io, name, old.partition, old.spec_id, columns)
        try:
            for group in range(source.num_row_groups):
                rows = source.read_row_group(group)
                numbers = pc.add_checked(rows.column(place), shift)
                new.write(rows.set_column(place, columns.field(place), numbers))
            return new.close()
        except BaseException:
            new.abandon()
            raise

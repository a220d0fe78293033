"""Data files, delete files and small tables for the tests of reading, and a FileIO that counts what is read."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, LongType, NestedField, StringType

from penstock.core.slices import Part
from penstock.lake import names
from penstock.lake.data_files import NumberRange, ScanFile
from penstock.lake.reading import LakeReader

#: id, note, the tombstone's mark, and the number
PLAIN = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "note", StringType()),
    NestedField(3, names.DELETED, BooleanType()),
    NestedField(4, "_ingest_seq", LongType()),
)


def rows_of(numbers: Iterable[int | None], **more: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Rows whose id and note follow from their number."""
    known = list(numbers)
    rows: dict[str, Sequence[Any]] = {
        "id": [number or 0 for number in known],
        "note": [f"note {number}" for number in known],
        names.DELETED: [None] * len(known),
        "_ingest_seq": known,
    }
    return {**rows, **more}


def write(
    path: Path,
    rows: Mapping[str, Sequence[Any]],
    schema: Schema = PLAIN,
    *,
    group: int = 1 << 20,
    deletes: Iterable[Path] = (),
    bounds: bool = True,
    ids: bool = True,
    constants: tuple[tuple[int, str], ...] = (),
    **options: Any,
) -> ScanFile:
    """A data file as a table's writer makes it, and the piece that stands for it."""
    arrow = schema_to_pyarrow(schema, include_field_ids=ids)
    present = pa.schema([field for field in arrow if field.name in rows])
    table = pa.table({field.name: pa.array(rows[field.name], field.type) for field in present}, schema=present)
    pq.write_table(table, path, row_group_size=group, **options)
    numbers = [number for number in rows.get("_ingest_seq", ()) if number is not None]
    low, high = (min(numbers), max(numbers)) if numbers and bounds else (None, None)
    paths = tuple(str(delete) for delete in deletes)
    return ScanFile(str(path), path.stat().st_size, table.num_rows, low, high, paths, constants)


def write_deletes(path: Path, dead: Mapping[str, Iterable[int]], *, group: int = 1 << 20) -> Path:
    """A position delete file: sorted by path and place, with the field ids that the format reserves."""
    places = [(data, place) for data in sorted(dead) for place in sorted(dead[data])]
    fields = [("file_path", pa.string(), 2147483546), ("pos", pa.int64(), 2147483545)]
    schema = pa.schema(
        [pa.field(name, type_, nullable=False, metadata={"PARQUET:field_id": str(id_)}) for name, type_, id_ in fields]
    )
    columns = {"file_path": [data for data, _ in places], "pos": [place for _, place in places]}
    pq.write_table(pa.table(columns, schema=schema), path, row_group_size=group)
    return path


def reader_of(schema: Schema = PLAIN, columns: Sequence[str] = ("id", "note"), **options: Any) -> LakeReader:
    return LakeReader(PyArrowFileIO(), schema, tuple(columns), **options)


def read(reader: LakeReader, after: int, upto: int, *pieces: ScanFile) -> pa.Table:
    """A range as a worker reads it, through pickles."""
    reader, part = pickle.loads(pickle.dumps((reader, NumberRange(after, upto, pieces).part(0))))
    return table_of(reader, part)


def table_of(reader: LakeReader, part: Part) -> pa.Table:
    with reader.open(part) as batches:
        table = batches.read_all()
    table.validate(full=True)
    return table


def catalog_at(folder: Path) -> SqlCatalog:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("db")
    return catalog


class CountingFile(io.FileIO):
    """A file that tells how much of it was read."""

    counts: CountingIO

    def readinto(self, buffer: Any) -> int:
        read = super().readinto(buffer)
        self.counts.bytes += read or 0
        return read or 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(-1 if size is None else size) or b""
        self.counts.bytes += len(data)
        return data


class _Input(InputFile):
    def __init__(self, location: str, counts: CountingIO) -> None:
        super().__init__(location)
        self._counts = counts

    def __len__(self) -> int:
        return Path(self.location).stat().st_size

    def exists(self) -> bool:
        return Path(self.location).exists()

    def open(self, seekable: bool = True) -> Any:
        file = CountingFile(self.location.removeprefix("file://"))
        file.counts = self._counts
        self._counts.opened.append(file)
        return file


class CountingIO(PyArrowFileIO):
    """Local files, with a count of bytes read and a list of what was opened."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.opened: list[CountingFile] = []

    def new_input(self, location: str) -> Any:
        return _Input(location, self)

"""Real Iceberg tables in a folder, and rows on their way into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from tests.harness.contents import types_of

from penstock.core.slices import Part, Receipt
from penstock.lake.names import METRICS, file_stem
from penstock.lake.parquet import FileLayout
from penstock.lake.partitions import make_partition_spec
from penstock.lake.schema import make_iceberg_schema
from penstock.lake.writing import NUMBERS_PER_PART, LakeWriter, decode_files

STAMP = "_ingest_seq"

#: one column of every Arrow type that becomes an Iceberg type of its own or by a cast
EVERYTHING = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "small": pa.array([1, None, -3, 4], pa.int16()),
        "unsigned": pa.array([2**32 - 1, 0, None, 7], pa.uint32()),
        "huge": pa.array([2**64 - 1, 0, None, 7], pa.uint64()),
        "flag": [True, False, None, True],
        "half": pa.array([1.5, None, 0.25, 2.0], pa.float32()).cast(pa.float16()),
        "ratio": pa.array([0.1, None, float("inf"), -0.0], pa.float64()),
        "amount": pa.array([Decimal("1.10"), None, Decimal("-9.99"), Decimal("0.00")], pa.decimal128(12, 2)),
        "wide": pa.array([Decimal(10) ** 37, None, Decimal(-1), Decimal(0)], pa.decimal256(38, 0)),
        "text": ["", None, "zwölf 😀", "x" * 40],
        "large": pa.array(["a", None, "b", "c"], pa.large_string()),
        "word": pa.array(["a", None, "a", "c"]).dictionary_encode(),
        "bytes": [b"", None, b"\x00\xff", b"x" * 40],
        "fixed": pa.array([b"abcd", None, b"efgh", b"ijkl"], pa.binary(4)),
        "uuid": pa.array([UUID(int=5).bytes, None, UUID(int=7).bytes, UUID(int=2**127).bytes], pa.uuid()),
        "day": pa.array([0, None, -719162, 2932896], pa.date32()),
        "clock": pa.array([0, None, 86399, 5], pa.time32("s")),
        "naive": pa.array([0, None, -1, 1700000000], pa.timestamp("s")),
        "instant": pa.array([0, None, -1, 1700000000000000], pa.timestamp("us", "Europe/Berlin")),
        "nothing": pa.nulls(4),
        "list": pa.array([[1, None], None, [], [3]], pa.list_(pa.int16())),
        "struct": pa.array([{"a b": 1, "c": ["x"]}, None, {"a b": None, "c": None}, {"a b": 4, "c": []}]),
        "map": pa.array([[("k", 1)], None, [], [("l", None)]], pa.map_(pa.string(), pa.int32())),
        "odd name.with-dots": [1, 2, None, 4],
    }
)

#: the same rows as they come back: a time of day is text
LANDED = EVERYTHING.set_column(
    EVERYTHING.column_names.index("clock"), "clock", pa.array(["00:00:00", None, "23:59:59", "00:00:05"])
)


class FarFileIO(FileIO):
    """Another machine's folder: it can be reached through its FileIO only."""

    def _near(self, location: str) -> str:
        return location.replace("far://", f"file://{self.properties['far.folder']}/")

    def new_input(self, location: str) -> InputFile:
        return PyArrowFileIO({}).new_input(self._near(location))

    def new_output(self, location: str) -> OutputFile:
        return PyArrowFileIO({}).new_output(self._near(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        PyArrowFileIO({}).delete(self._near(str(location)))


def far(layout: FileLayout, folder: Path) -> FileLayout:
    """The same table with its data far away."""
    properties = {"py-io-impl": f"{__name__}.FarFileIO", "far.folder": str(folder)}
    return replace(layout, location="far://data", properties=properties)


def catalog(folder: Path) -> SqlCatalog:
    made = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    made.create_namespace_if_not_exists("shop")
    return made


def table_for(
    lake: SqlCatalog,
    arrow: pa.Schema,
    *,
    name: str = "orders",
    key: Sequence[str] = (),
    deletes: bool = False,
    partitions: Sequence[str] = (),
) -> Table:
    schema = make_iceberg_schema(types_of(arrow), key=key, deletes=deletes)
    return lake.create_table(
        f"shop.{name}", schema, partition_spec=make_partition_spec(partitions, schema), properties={**METRICS}
    )


def writer_for(table: Table, *, start: int = 1, key: tuple[str, ...] = (), block: int = NUMBERS_PER_PART) -> LakeWriter:
    stem = file_stem("shop", "orders", 1, "a1")
    return LakeWriter("shop", "orders", FileLayout.of(table, key), stem, "a1", start, block)


def written(writer: LakeWriter, rows: pa.Table, *, part: int = 0, batch_rows: int | None = None) -> Receipt:
    batches = rows.combine_chunks().to_batches(max_chunksize=batch_rows)
    return writer.write(pa.RecordBatchReader.from_batches(rows.schema, batches), Part(part, "{}"))


def append(table: Table, files: Sequence[DataFile]) -> None:
    with table.transaction() as tx, tx.update_snapshot().merge_append() as snapshot:
        for file in files:
            snapshot.append_data_file(file)


def landed(table: Table, receipts: Sequence[Receipt]) -> None:
    append(table, [file for receipt in receipts for file in decode_files(receipt)])


def read(table: Table) -> pa.Table:
    """Every row in the order of its number."""
    return table.scan().to_arrow().sort_by(STAMP)


def files_in(table: Table) -> list[Path]:
    folder = Path(FileLayout.of(table).location.removeprefix("file://"))
    return sorted(folder.glob("*")) if folder.exists() else []

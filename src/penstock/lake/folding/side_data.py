"""What a state table keeps beside its entities, in files on a branch of the same table.

Early ops, the last values of fan-outs, and ops in quarantine are no entities: readers of the table must not see them.
They are in the same commit as the entities because a branch is moved by the commit that moves main, and a property
names its snapshot. A later row about the same thing takes the place of an earlier one.

    kind    a                       b          c       v              since
    early   -                       entity     -       ops, as JSON   when the first of them came
    fan     fan-out and its match   its value  field   last value     -
    bad     the document's key      op         reason  slice          when it was written; `id`: the document
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from penstock.lake import names
from penstock.lake.parquet import FileLayout, local_path
from penstock.links.durable import make_folder, sync

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

#: the version of the files: their columns, and what is in them
FORM = "1"
#: the branch that holds the files of the last commit
BRANCH = "penstock_side"
KINDS = ("early", "fan", "bad")
#: files with early ops and fan-out values after which they are rewritten as one
MAX_FILES = 24
#: rows of a batch that goes to Spark
BATCH_ROWS = 10_000

SIDE = "kind string, a string, b string, c string, v string, since bigint, gone boolean, number bigint, id bigint"
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("kind", "a", "b", "c", "v")),
        *(("since", pa.int64()), ("gone", pa.bool_()), ("number", pa.int64()), ("id", pa.int64())),
    ]
)


class OtherForm(Exception):
    """Side data that another version of penstock has written."""


def list_files(table: Table, snapshot: int | None) -> list[DataFile]:
    """The files of a snapshot of the side data; KeyError if the snapshot is gone, OtherForm if it is not ours."""
    if snapshot is None:
        return []
    found = table.metadata.snapshot_by_id(snapshot)
    if found is None:
        raise KeyError(snapshot)
    form = found.summary.additional_properties.get(names.SIDE_FORM) if found.summary else None
    if form != FORM:
        raise OtherForm(f"its form is {form}, this penstock reads {FORM}")
    return [
        entry.data_file for manifest in found.manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)
    ]


def kind_of(file: DataFile) -> str:
    """What a file holds, by its name."""
    name = file.file_path.rpartition("/")[2]
    return next(kind for kind in KINDS if f"-{kind}-" in name)


def read_side(
    layout: FileLayout, paths: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a worker runs: its row's id says which file is its own."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.lake.folding.side_data import read_files

        for batch in batches:
            yield from read_files(layout.file_io(), [paths[place] for place in batch.column(0).to_pylist()])

    return rows


def read_files(io: FileIO, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with io.new_input(path).open() as stream:
            yield from pq.ParquetFile(stream).iter_batches(BATCH_ROWS, columns=SCHEMA.names)


def current_rows(rows: DataFrame) -> DataFrame:
    """The last row about each thing, where it still holds."""
    from pyspark.sql import functions as F

    last = rows.groupBy("kind", "a", "b", "c").agg(F.expr("max(struct(number, gone, v, since)) as last"))
    return last.where("not last.gone").selectExpr("kind", "a", "b", "c", "last.v as v", "last.since as since")


def write_side(layout: FileLayout, name: str, rows: pa.Table) -> list[DataFile]:
    """Write rows into a file for each kind, in the table's folder; `name`: with a place for the kind."""
    made = []
    for kind in KINDS:
        of_kind = rows.filter(pa.compute.equal(rows.column("kind"), kind))
        if of_kind.num_rows:
            made.append(_write(layout, name.format(kind=kind), of_kind))
    return made


def _write(layout: FileLayout, name: str, rows: pa.Table) -> DataFile:
    uri = f"{layout.location.rstrip('/')}/{name}"
    path = local_path(uri)
    stream: Any
    if path is not None:
        make_folder(path.rpartition("/")[0])
        stream = pa.OSFile(path, "wb")
    else:
        stream = layout.file_io().new_output(uri).create(overwrite=True)
    with stream:
        pq.write_table(rows, stream, compression="zstd", compression_level=1)
        size = int(stream.tell())
    if path is not None:
        sync(path)
        sync(path.rpartition("/")[0])
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        # These are no rows of a partition, whatever the table is partitioned by.
        partition=Record(*(None for _ in layout.spec.fields)),
        record_count=rows.num_rows,
        file_size_in_bytes=size,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        split_offsets=None,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    file.spec_id = layout.spec.spec_id
    return file

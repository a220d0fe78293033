"""Memory follows from the batch, not from the table: rows of a megabyte, and tables of 1,600 columns.

The parts are moved by a process of its own, as a worker would, and that process says how much memory it took at most.
"""

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.lake.writing_tables import catalog, table_for, writer_for
from tests.sinks.files.folder import open_sink
from tests.sources.tables import execute, source
from tests.sources.test_postgres_keyset import slices

from penstock.core.slices import Slice
from penstock.links.arrow_types import arrow_type
from penstock.ports import Budget, Writer
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.reader import BATCH_BYTES

#: as many as a table can have
COLUMNS = 1600

#: moves the parts that it finds in a file, and prints their rows, their bytes and the memory that this took
WORKER = """
import pickle, sys
import pyarrow, pyarrow.compute, pyarrow.parquet, pyiceberg.io.pyarrow, penstock.lake.writing
from penstock.links.pipe import carry
from penstock.links.postgres import arrow, conversion
from penstock.sinks.files import formats

def highest():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

with open(sys.argv[1], "rb") as file:
    reader, writer, parts = pickle.load(file)
before = highest()
receipts = [carry(reader, writer, part) for part in parts]
print(sum(r.rows for r in receipts), sum(r.bytes for r in receipts), highest() - before)
"""

Into = Callable[[Path, Slice], Writer]


def into_files(folder: Path, slice_: Slice) -> Writer:
    sink = open_sink(folder)
    sink.connect()
    return sink.writer(slice_, "attempt")


def into_the_lake(folder: Path, slice_: Slice) -> Writer:
    columns = pa.schema([(c.name, arrow_type(c.type)) for c in TableContent.parse(slice_.content).columns])
    return writer_for(table_for(catalog(folder), columns))


def moved(url: str, folder: Path, into: Into) -> tuple[int, int, int]:
    """Rows, bytes as Arrow, and bytes of memory that moving all of `t` took."""
    origin = source(url, {"t": {"cursor": "id", "unique": True}})
    [slice_] = slices(origin, "t", Budget(bytes=4 << 30, workers=1))
    with origin.reading(slice_) as reading:
        file = folder / "part.pickle"
        file.write_bytes(pickle.dumps((reading.reader, into(folder, slice_), reading.parts)))
        worker = subprocess.run(
            [sys.executable, "-c", WORKER, str(file)], capture_output=True, text=True, timeout=120, check=False
        )
    assert worker.returncode == 0, worker.stderr
    rows, bytes_, memory = map(int, worker.stdout.split())
    return rows, bytes_, memory


@pytest.mark.parametrize("into", [into_files, into_the_lake])
def test_rows_of_a_megabyte(database: str, tmp_path: Path, into: Into) -> None:
    execute(
        database,
        "CREATE TABLE t (id int PRIMARY KEY, wide text); ALTER TABLE t ALTER wide SET STORAGE EXTERNAL",
        "INSERT INTO t SELECT g, repeat(md5(g::text), 31250) FROM generate_series(1, 300) g",
    )
    rows, bytes_, memory = moved(database, tmp_path, into)
    assert rows == 300
    assert bytes_ > 300_000_000
    assert memory < 10 * BATCH_BYTES


@pytest.mark.parametrize("into", [into_files, into_the_lake])
def test_as_many_columns_as_a_table_can_have(database: str, tmp_path: Path, into: Into) -> None:
    types = ("int", "text", "numeric(38,2)", "timestamptz", "int[]")
    named = [(f"c{n}", types[n % len(types)]) for n in range(COLUMNS - 1)]
    filled = {"int": "g", "text": "'text ' || g"}
    some = [(name, filled[type_]) for name, type_ in named if type_ in filled][:300]
    execute(
        database,
        f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(f'{name} {type_}' for name, type_ in named)})",
        f"INSERT INTO t (id, {', '.join(name for name, _ in some)})"
        f" SELECT g, {', '.join(value for _, value in some)} FROM generate_series(1, 2000) g",
    )
    rows, _, memory = moved(database, tmp_path, into)
    assert rows == 2000
    assert memory < 10 * BATCH_BYTES

"""Readers and writers with misfortunes, for Spark's workers, which find this module by the tests' own path."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.slices import Part, Receipt
from penstock.ports import Writer
from penstock.testing.contracts.mover import Numbers

if TYPE_CHECKING:
    import pyarrow as pa


def first_time(folder: str, name: str) -> bool:
    """Whether nobody has asked this before, in any process."""
    try:
        Path(folder, name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class FailsOnce:
    """The rows of each part break off at the first try."""

    folder: str

    def open(self, part: Part) -> pa.RecordBatchReader:
        import pyarrow as pa

        good = Numbers().open(part)

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in good:
                yield batch
                if first_time(self.folder, f"failed-{part.index}"):
                    raise ConnectionResetError("the server hung up")

        return pa.RecordBatchReader.from_batches(good.schema, rows())


@dataclass(frozen=True)
class KilledOnce:
    """A writer whose worker is killed after it has put part 1 aside, before it can say so."""

    writer: Writer
    folder: str

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        receipt = self.writer.write(batches, part)
        if part.index == 1 and first_time(self.folder, "killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        return receipt


@dataclass(frozen=True)
class AlwaysKilled:
    """A reader whose worker dies each time."""

    def open(self, part: Part) -> pa.RecordBatchReader:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a dead process goes on")


@dataclass(frozen=True)
class Where:
    """A writer that notes who runs it and with which path."""

    folder: str

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        import json
        import sys

        rows = batches.read_all().num_rows
        here = {"pid": os.getpid(), "python": sys.executable, "path": sys.path}
        Path(self.folder, f"here-{part.index}").write_text(json.dumps(here))
        return Receipt(part.index, f"{os.getpid()}", rows, rows, 0, "", "{}")


def describe_worker(numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
    """What a worker has when its first part begins."""
    for _ in numbers:
        zips = [path for path in sys.path if path.endswith((".zip", ".jar"))]
        # The other worker must not be done before this one is asked for.
        time.sleep(0.5)
        yield {"modules": list(sys.modules), "zips": zips, "parent": os.getppid()}


def use_threads(folders: Iterator[str]) -> Iterator[int]:
    """Use both pools of threads that PyArrow has, for computing and for files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for folder in folders:
        path = f"{folder}/{os.getpid()}.parquet"
        pq.write_table(pa.table({"a": range(100_000), "b": range(100_000)}), path, row_group_size=1000)
        table = pq.read_table(path, use_threads=True, pre_buffer=True)
        yield int(table.group_by("b", use_threads=True).aggregate([("a", "sum")])["a_sum"].to_pandas().sum())

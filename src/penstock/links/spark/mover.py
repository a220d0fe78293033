"""The Mover on Spark: every part is an Arrow pipe in a Python worker; only receipts come back.

No row enters the JVM or the driver. A part that fails is tried again by Spark; each try has names of its own, so
retried, speculative and zombie tasks are harmless.
"""

from __future__ import annotations

import os
import pickle
import sys
import sysconfig
import zipimport
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from penstock import __version__
from penstock.core.slices import Part, Receipt
from penstock.errors import InputError, PenstockError
from penstock.links.spark.house import SparkHouse
from penstock.ports import Reader, Writer

if TYPE_CHECKING:
    import pyarrow as pa


class SparkMover:
    """Moves parts on the process's Spark session, which the first slice starts if nobody has."""

    def __init__(self, house: SparkHouse) -> None:
        self.house = house

    @property
    def workers(self) -> int:
        return self.house.workers

    def begin(self) -> None:
        self.house.begin()

    def warm(self) -> None:
        self.house.session()

    def move(self, reader: Reader, writer: Writer, parts: Sequence[Part]) -> Sequence[Receipt]:
        if not parts:
            return []
        session = self.house.session()
        pipe = pipe_of(payload_of(reader, writer, parts))

        def collect() -> Sequence[Any]:
            rows = session.range(0, len(parts), 1, len(parts)).mapInArrow(pipe, "outcome binary").collect()
            self.house.ask_size()
            return cast(Sequence[Any], rows)

        rows = self.house.wait(collect, failed="a part could not be moved")
        return [_receipt(bytes(row.outcome)) for row in rows]

    def cancel(self) -> None:
        self.house.cancel()

    def close(self) -> None:
        self.house.close()


def payload_of(reader: Reader, writer: Writer, parts: Sequence[Part]) -> bytes:
    """What workers are sent, with our version outside: theirs may not be able to read the rest."""
    return pickle.dumps((__version__, pickle.dumps((reader, writer, list(parts)))))


def pipe_of(payload: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a worker runs: its row's id says which part is its own."""

    def pipe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from penstock.links.spark.mover import run_parts

        return run_parts(payload, batches)

    return pipe


def run_parts(payload: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    shed_zips()
    import pyarrow as pa

    from penstock.links.pipe import carry

    version, inside = pickle.loads(payload)
    work = pickle.loads(inside) if version == __version__ else None
    for batch in batches:
        for index in batch.column(0).to_pylist():
            try:
                if work is None:
                    raise _other_version(version)
                reader, writer, parts = work
                outcome = pickle.dumps(carry(reader, writer, parts[index]))
            except PenstockError as error:
                # A reason we know will not change by trying again: hand it to the driver as it is.
                outcome = pickle.dumps(error)
            yield pa.RecordBatch.from_arrays([pa.array([outcome], pa.binary())], names=["outcome"])


def _other_version(version: str) -> InputError:
    return InputError(
        f"Spark's workers have penstock {__version__}, and this process has {version}",
        next_step=f"install penstock {version} for {sys.executable} on every machine of the cluster",
    )


def shed_zips() -> None:
    """Take zip files out of this worker's path: each import would look into them, 130 ms a task before our first line.

    Only where pyspark is installed in the worker's own environment too.
    """
    if not os.path.isdir(os.path.join(sysconfig.get_path("purelib"), "pyspark")):
        return
    sys.path[:] = [path for path in sys.path if not path.endswith((".zip", ".jar"))]
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            sys.path_importer_cache.pop(path)


def _receipt(outcome: bytes) -> Receipt:
    found = pickle.loads(outcome)
    if isinstance(found, PenstockError):
        raise found
    assert isinstance(found, Receipt)
    return found

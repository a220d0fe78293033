"""The Mover on Spark: every part is an Arrow pipe in a Python worker; only receipts come back.

No row enters the JVM or the driver. A part that fails is tried again by Spark; each try has names of its own, so
retried, speculative and zombie tasks are harmless.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import sysconfig
import threading
import zipimport
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.slices import Part, Receipt
from penstock.errors import PenstockError, StreamFailed
from penstock.links.spark.session import SparkLog, SparkOptions, end_jvm, start
from penstock.ports import Reader, Writer

if TYPE_CHECKING:
    import pyarrow as pa

#: how often a waiting driver looks up, so that a signal is heeded
_LOOK = 0.1


class SparkMover:
    """Moves parts on a Spark session of its own, started at the first slice."""

    def __init__(self, options: SparkOptions | None = None) -> None:
        self.options = options or SparkOptions()
        self.workers = self.options.workers
        self._session: Any = None
        self._cancelled = threading.Event()
        self._log = SparkLog()

    def move(self, reader: Reader, writer: Writer, parts: Sequence[Part]) -> Sequence[Receipt]:
        if not parts:
            return []
        if self._session is None:
            # Beside this thread too: Spark, started on the main one, would take over SIGINT.
            self._session = self._wait(lambda: start(self.options, self._log))
        pipe = pipe_of(pickle.dumps((reader, writer, list(parts))))
        frame = self._session.range(0, len(parts), 1, len(parts)).mapInArrow(pipe, "outcome binary")
        rows = self._wait(frame.collect)
        return [_receipt(bytes(row.outcome)) for row in rows]

    def _wait(self, work: Callable[[], Any]) -> Any:
        """Run a Spark action beside this thread, so that a signal can end the wait."""
        outcome: list[Any] = []
        failure: list[BaseException] = []

        def act() -> None:
            try:
                outcome.append(work())
            except BaseException as error:  # noqa: BLE001 (handed to the thread that waits)
                failure.append(error)
            finally:
                hang_up()

        thread = threading.Thread(target=act, name="penstock-move", daemon=True)
        thread.start()
        while thread.is_alive() and not self._cancelled.is_set():
            thread.join(_LOOK)
        if self._cancelled.is_set():
            raise StreamFailed("the move was given up on request", next_step="run again; the slice is still open")
        if failure:
            raise _explained(failure[0], self._log)
        return outcome[0]

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        """End the session and its JVM: `stop()` alone would leave the JVM behind."""
        session, self._session = self._session, None
        if session is not None and not self._cancelled.is_set():
            session.stop()
        if session is not None:
            end_jvm()
        self._log.close()


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

    reader, writer, parts = pickle.loads(payload)
    for batch in batches:
        for index in batch.column(0).to_pylist():
            try:
                outcome = pickle.dumps(carry(reader, writer, parts[index]))
            except PenstockError as error:
                # A reason we know will not change by trying again: hand it to the driver as it is.
                outcome = pickle.dumps(error)
            yield pa.RecordBatch.from_arrays([pa.array([outcome], pa.binary())], names=["outcome"])


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


def _explained(error: BaseException, log: SparkLog) -> PenstockError:
    """A worker's failure in one line; the whole of it is added to Spark's own log, which is kept."""
    if isinstance(error, PenstockError):
        return error
    return StreamFailed(
        f"a part could not be moved: {telling(str(error)) or type(error).__name__}",
        next_step=f"run again; if it happens again, Spark's log is in {log.keep(str(error))}",
    )


def telling(text: str) -> str:
    """The line of a failure that says what happened: where a Python traceback ends, or else Spark's own first words."""
    _, traced, trace = text.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in (trace if traced else text).splitlines() if line.strip()]
    if traced:
        lines = [line for line in lines if not line.startswith(" ")]
    return next((line.strip(": ") for line in lines if not line.startswith(("An error occurred while", "\tat "))), "")


def hang_up() -> None:
    """Close this thread's connection to the JVM, which py4j would leave to the garbage collector."""
    from pyspark import SparkContext

    client = getattr(SparkContext._jvm, "_gateway_client", None)
    connection = client.get_thread_connection() if client is not None else None
    if client is not None and connection is not None:
        with contextlib.suppress(ValueError):  # someone else has closed it
            client.deque.remove(connection)
        connection.close()

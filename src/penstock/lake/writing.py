"""Writes one part's rows, numbered, into data files that no table names yet. Runs in a worker.

Files are in the order of the numbers; upkeep applies a user's own sort order. A file's name contains the stream, slice
and attempt, so that leftovers can be found.
"""

from __future__ import annotations

import base64
import contextlib
import pickle
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from penstock.core.documents import canonical, digest, parse
from penstock.core.slices import Part, Receipt
from penstock.errors import PenstockError, StreamFailed
from penstock.lake.disk_space import is_full, make_no_space
from penstock.lake.fitting import make_fitting
from penstock.lake.parquet import DataFileWriter, FileLayout, local_path, make_arrow_schema, remove
from penstock.lake.partitions import Values, make_splitter
from penstock.links.durable import make_folder, sync
from penstock.ports import NoProbe, Probe

#: numbers that each part of a slice has for its rows
NUMBERS_PER_PART = 1 << 26
#: Arrow bytes that wait for their files, over all partitions of a part
MAX_WAITING_BYTES = 64 << 20
#: files of one part that are open at the same time; partitions beyond it close the one that waited longest
MAX_OPEN_FILES = 64


@dataclass(frozen=True)
class LakeWriter:
    """Stages parts as data files. Small and picklable."""

    pipeline: str
    stream: str
    layout: FileLayout
    #: beginning of every file's name: stream, slice number, attempt
    name: str
    attempt: str
    #: the first number of the slice: one above the head that it was prepared from
    start: int
    block: int = NUMBERS_PER_PART
    #: columns that are NULL in every row: the table need not have them
    empty: tuple[str, ...] = ()
    probe: Probe = field(default_factory=NoProbe)

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        # Another try at this part, even one that still runs, has another name.
        own = uuid.uuid4().hex[:8]
        first = self.start + part.index * self.block
        rows = size = 0
        with PartFiles(self.layout, lambda k: f"{self.name}-{part.index}-{k}-{own}.parquet") as files:
            with explain_write_errors(self.pipeline, self.stream, self.layout):
                fit = make_fitting(batches.schema, self.layout.schema, self.layout.key, self.empty)
            for (
                batch
            ) in batches:  # outside `explain_write_errors`: what the source cannot give is not what the lake refuses
                if not batch.num_rows:
                    continue
                with explain_write_errors(self.pipeline, self.stream, self.layout):
                    self._refuse_many(rows + batch.num_rows)
                    files.add(fit(batch, first + rows))
                rows += batch.num_rows
                size += batch.nbytes
            with explain_write_errors(self.pipeline, self.stream, self.layout):
                written = files.finish()
        self.probe.at("lake.part_written", part=part.index)
        return Receipt(
            part=part.index,
            attempt=f"{self.attempt}{own}",
            read=rows,
            rows=sum(file.record_count for file in written),
            bytes=size,
            schema=digest(batches.schema.remove_metadata().to_string()),
            pieces=canonical(
                {"files": [encode_file(file) for file in written], "last": first + rows - 1 if rows else None}
            ),
        )

    def _refuse_many(self, rows: int) -> None:
        if rows > self.block:
            raise StreamFailed(
                f"one part has more than {self.block} rows, but only {self.block} row numbers are reserved for a part",
                next_step="lower `slice_bytes`, so that a slice is cut into smaller parts",
            )


def encode_file(file: DataFile) -> str:
    return base64.b64encode(pickle.dumps(file)).decode()


def decode_files(receipt: Receipt) -> list[DataFile]:
    """The data files that a receipt of this module names."""
    return [pickle.loads(base64.b64decode(text)) for text in parse(receipt.pieces)["files"]]


def read_last_number(receipt: Receipt) -> int | None:
    """The highest number that a part has used; None: it had no rows."""
    last: int | None = parse(receipt.pieces)["last"]
    return last


@contextlib.contextmanager
def explain_write_errors(pipeline: str, stream: str, layout: FileLayout) -> Iterator[None]:
    """Raise a StreamFailed that names the stream, if files cannot be written."""
    try:
        yield
    except PenstockError as error:
        error.at(pipeline=pipeline, stream=stream)
        raise
    except OSError as error:
        if is_full(error):
            raise make_no_space(layout.location, pipeline=pipeline, stream=stream) from error
        raise StreamFailed(
            f"cannot write to {layout.location}: {error}",
            next_step="check that the warehouse can be reached and written, then run again",
            pipeline=pipeline,
            stream=stream,
        ) from error
    except pa.ArrowInvalid as error:
        # Parquet refuses a NULL inside a list or struct whose elements the table requires.
        raise StreamFailed(
            f"rows do not fit the table: {error}",
            next_step="correct the rows at the source, or make the column optional in the table",
            pipeline=pipeline,
            stream=stream,
        ) from error


class PartFiles:
    """The files of one part that are being written. All rows go to `partition`, or each to the partition of its values.

    On an error inside the `with` block the files are removed: under names of their own, in no receipt, no one misses
    them.
    """

    def __init__(self, layout: FileLayout, name: Callable[[int], str], partition: Record | None = None) -> None:
        self.layout, self.name, self.partition = layout, name, partition
        self.io = layout.file_io()
        self.columns = make_arrow_schema(layout)
        whole = partition is not None or layout.spec.is_unpartitioned()
        self.split = None if whole else make_splitter(layout.spec, layout.schema)
        self.waiting: dict[Values, list[pa.RecordBatch]] = {}
        self.bytes: dict[Values, int] = {}
        self.total = 0
        self.open: dict[Values, DataFileWriter] = {}
        self.made: list[str] = []
        self.done: list[DataFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        for values, rows in self.split(batch) if self.split else [((), batch)]:
            self.waiting.setdefault(values, []).append(rows)
            self.bytes[values] = self.bytes.get(values, 0) + rows.nbytes
            self.total += rows.nbytes
            if self.bytes[values] >= self.layout.row_group:
                self.flush(values)
        while self.total >= MAX_WAITING_BYTES:
            self.flush(max(self.bytes, key=lambda each: self.bytes[each]))

    def flush(self, values: Values) -> None:
        """Write what waits for one partition; close its file once it is large enough."""
        batches = self.waiting.pop(values)
        self.total -= self.bytes.pop(values)
        if values not in self.open:
            if len(self.open) >= MAX_OPEN_FILES:
                self.close(next(iter(self.open)))
            self.open[values] = self.begin(values)
        self.open[values].write(pa.Table.from_batches(batches, self.columns))
        if self.open[values].size() >= self.layout.target:
            self.close(values)

    def begin(self, values: Values) -> DataFileWriter:
        folder = local_path(self.layout.location)
        if folder is not None and not self.made:
            make_folder(folder)
        name = self.name(len(self.made))
        self.made.append(f"{self.layout.location.rstrip('/')}/{name}")
        partition = self.partition if self.partition is not None else Record(*values)
        return DataFileWriter(self.layout, self.io, name, partition, self.layout.spec.spec_id, self.columns)

    def close(self, values: Values) -> None:
        self.done.append(self.open[values].close())
        del self.open[values]

    def finish(self) -> list[DataFile]:
        for values in list(self.waiting):
            self.flush(values)
        for values in list(self.open):
            self.close(values)
        folder = local_path(self.layout.location)
        if folder is not None and self.made:
            sync(folder)
        return self.done

    def __enter__(self) -> PartFiles:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            return
        for file in self.open.values():
            file.abandon()
        for uri in self.made:
            remove(uri, self.io)

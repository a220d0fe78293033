"""Stages the documents of a slice as Parquet files in the table's folder, and reads them for Spark, in their order."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.documents import canonical, digest, parse
from penstock.core.slices import Part, Receipt
from penstock.errors import StreamFailed
from penstock.lake.parquet import FileLayout, local_path, remove
from penstock.lake.writing import explain_write_errors
from penstock.links.durable import make_folder, sync
from penstock.ports import NoProbe, Probe

#: documents that a part may have
MAX_ROWS = 1 << 26
#: places that one document has in the order: its ops on all entities are applied one after the other
PLACES = 1 << 10
#: rows of a batch that goes to Spark
BATCH_ROWS = 10_000

STAGED = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("document", pa.string())])
#: what Spark gets: a document's place in the order, and its time in microseconds
DOCUMENTS = "pos bigint, id bigint, at bigint, document string"
_DOCUMENTS = pa.schema([("pos", pa.int64()), ("id", pa.int64()), ("at", pa.int64()), ("document", pa.string())])


@dataclass(frozen=True)
class StagingWriter:
    """Stages parts. Small and picklable."""

    pipeline: str
    stream: str
    layout: FileLayout
    #: beginning of every file's name
    name: str
    attempt: str
    probe: Probe = field(default_factory=NoProbe)

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        own = uuid.uuid4().hex[:8]
        uri = f"{self.layout.location.rstrip('/')}/{self.name}-{part.index}-{own}.parquet"
        rows = size = creating = 0
        with explain_write_errors(self.pipeline, self.stream, self.layout), _open(self.layout, uri) as writer:
            for batch in batches:
                if rows + batch.num_rows > MAX_ROWS:
                    raise StreamFailed(
                        f"one part has more than {MAX_ROWS} documents", next_step="lower `slice_bytes`, then run again"
                    )
                writer.write_batch(_staged(batch))
                rows += batch.num_rows
                size += batch.nbytes
                creating += _count_creating(batch.column("document"))
        self.probe.at("lake.part_written", part=part.index)
        return Receipt(
            part=part.index,
            attempt=f"{self.attempt}{own}",
            read=rows,
            rows=rows,
            bytes=size,
            schema=digest(batches.schema.remove_metadata().to_string()),
            pieces=canonical({"staged": uri, "rows": rows, "creating": creating}),
        )


@contextlib.contextmanager
def _open(layout: FileLayout, uri: str) -> Iterator[pq.ParquetWriter]:
    """A file that is on the disk, with its name, when the block ends."""
    path, io = local_path(uri), layout.file_io()
    if path is not None:
        make_folder(path.rpartition("/")[0])
    stream = pa.OSFile(path, "wb") if path is not None else io.new_output(uri).create(overwrite=True)
    try:
        writer = pq.ParquetWriter(stream, STAGED, compression="zstd", compression_level=1, use_dictionary=False)
        yield writer
        writer.close()
        stream.close()
        if path is not None:
            sync(path)
            sync(path.rpartition("/")[0])
    except BaseException:
        with contextlib.suppress(OSError):
            stream.close()
        remove(uri, io)
        raise


def _count_creating(documents: pa.Array) -> int:
    if isinstance(documents, pa.ExtensionArray):
        documents = documents.storage
    creates = pc.match_substring_regex(documents.cast(pa.string()), '"creates": *true')
    return int(pc.sum(creates).as_py() or 0)


def _staged(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = []
    for wanted in STAGED:
        column = batch.column(wanted.name)
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        columns.append(column.cast(wanted.type))
    return pa.RecordBatch.from_arrays(columns, schema=STAGED)


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A staged part, as its receipt names it."""

    part: int
    uri: str
    rows: int
    #: about how many of its documents create an entity
    creating: int = 0


def read_receipts(receipts: Sequence[Receipt]) -> list[StagedPart]:
    """The staged parts, in their order."""
    found = []
    for receipt in sorted(receipts, key=lambda each: each.part):
        pieces = parse(receipt.pieces)
        counts = (int(str(pieces.get(name, 0))) for name in ("rows", "creating"))
        found.append(StagedPart(receipt.part, str(pieces["staged"]), *counts))
    return found


def read_parts(layout: FileLayout, parts: Iterable[StagedPart]) -> Iterator[pa.RecordBatch]:
    """The documents of staged parts, each with its place."""
    io = layout.file_io()
    for part in parts:
        done = 0
        with io.new_input(part.uri).open() as stream:
            for batch in pq.ParquetFile(stream).iter_batches(BATCH_ROWS):
                first = ((part.part << 26) + done) * PLACES
                done += batch.num_rows
                places = pa.array(range(first, first + batch.num_rows * PLACES, PLACES), pa.int64())
                times = batch.column("at").cast(pa.int64())
                yield pa.RecordBatch.from_arrays(
                    [places, batch.column("id"), times, batch.column("document")], schema=_DOCUMENTS
                )
        if done != part.rows:
            raise StreamFailed(
                f"the staged file {part.uri} has {done} documents, its receipt says {part.rows}",
                next_step="run again; the slice is staged again",
            )

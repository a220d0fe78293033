"""What the lake's benchmarks share: `orders` as Arrow, and tables of many of them landed without a source.

Rows are put aside and committed by the lake's own writer and landing, one landing after the other, so the table has
the files, the history and the numbers that as many slices would have given it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from tests.harness.contents import columns_of as columns_in

from penstock.core.content import Content
from penstock.core.marks import Mark, Position
from penstock.core.slices import Part, Receipt, Slice, following
from penstock.lake.lake import Lake
from penstock.lake.landing import Landing, StagedSlice
from penstock.lake.metadata import read_state
from penstock.lake.table_state import find_link
from penstock.lake.writing import decode_files, read_last_number
from penstock.ports import Context, NoProbe
from penstock.sinks import lake

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer_id", pa.int32()),
        ("status", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("note", pa.string()),
        ("payload", pa.string()),
        ("created_at", pa.timestamp("us", "UTC")),
        ("updated_at", pa.timestamp("us", "UTC")),
    ]
)
#: the stream, and its table in whichever namespace
STREAM = "orders"
#: rows of the texts that are used over and over: making texts is slower than writing them
TEXTS = 100_000
#: the first order's time, in microseconds
BEGAN = 1_704_067_200_000_000


class Orders:
    """Rows like those of `_orders.make_orders`, made from their ids."""

    def __init__(self) -> None:
        random = np.random.default_rng(1).integers(0, 256, (2, TEXTS, 15), np.uint8)
        notes, refs = ([row.tobytes().hex() for row in half] for half in random)
        numbers = pa.array(np.arange(TEXTS))
        self._notes = pc.binary_join_element_wise("order note ", pc.utf8_slice_codeunits(pa.array(notes), 0, 29), "")
        self._payloads = pc.binary_join_element_wise(
            '{"qty": 3, "ref": "',
            pc.utf8_slice_codeunits(pa.array(refs), 0, 16),
            '", "sku": "SKU-',
            pc.cast(numbers, pa.string()),
            '", "channel": "store"}',
            "",
        )
        self._statuses = pa.array(["new", "paid", "shipped", "delivered", "cancelled"])

    def rows(self, ids: np.ndarray) -> pa.RecordBatch:
        ids = np.asarray(ids, np.int64)
        texts = pa.array((ids * 7919) % TEXTS)
        made = ids * 10_000_000 + BEGAN
        # A decimal is 128 bits: the number of cents, and nothing above it.
        cents = np.stack((ids * 104_729 % 1_000_000_000, np.zeros_like(ids)), axis=1)
        amount = pa.Array.from_buffers(pa.decimal128(12, 2), len(ids), [None, pa.py_buffer(cents)])
        return pa.RecordBatch.from_arrays(
            [
                pa.array(ids),
                pa.array((ids * 7919 % 400_000).astype(np.int32)),
                self._statuses.take(pa.array(ids % 5)),
                amount,
                self._notes.take(texts),
                self._payloads.take(texts),
                pa.array(made, pa.timestamp("us", "UTC")),
                pa.array(made + ids * 7919 % 1_000_003 * 37_000, pa.timestamp("us", "UTC")),
            ],
            schema=SCHEMA,
        )


class Lander:
    """Lands batches in the table `orders` of one namespace as a pipeline of its own would, one slice each."""

    def __init__(self, folder: Path, namespace: str, *, keyed: bool = False, pipeline: str = "load") -> None:
        options = lake.Options(namespace=namespace)
        chosen = lake.StreamOptions(mode="merge", key=("id",)) if keyed else lake.StreamOptions()
        self._sink = lake.build(options, {STREAM: chosen}, Context(pipeline, str(folder), NoProbe()))
        self._pipeline = pipeline
        self._place = Lake.from_options(options, folder=str(folder), pipeline=pipeline)
        link = find_link(read_state(self._place, STREAM), pipeline, STREAM, STREAM)
        self._last: Position | None = link.position if link else None

    @property
    def data(self) -> Path:
        """Where the table's data files lie."""
        assert self._place.folder is not None
        return Path(self._place.folder, self._place.namespace, STREAM, "data")

    def land(self, *parts: pa.RecordBatch) -> None:
        """One slice, a file for each batch. It is appended also in a keyed table, so its keys must be new there."""
        number = self._last.number + 1 if self._last else 1
        slice_ = following(
            self._last,
            pipeline=self._pipeline,
            stream=STREAM,
            upto=Mark.of({"landing": number}),
            content=Content(columns_in(SCHEMA)),
        )
        attempt = uuid.uuid4().hex[:12]
        writer = self._sink.writer(slice_, attempt)
        receipts = [
            writer.write(pa.RecordBatchReader.from_batches(SCHEMA, [batch]), Part(index, "{}"))
            for index, batch in enumerate(parts)
        ]
        self._commit(slice_, attempt, receipts)
        self._last = slice_.position

    def _commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> None:
        """Not by the sink, which would look in a keyed table for what is there already."""
        numbers = [(last, receipt.rows) for receipt in receipts if (last := read_last_number(receipt)) is not None]
        landed = StagedSlice(
            files=[file for receipt in receipts for file in decode_files(receipt)],
            rows=sum(receipt.rows for receipt in receipts),
            bytes=sum(receipt.bytes for receipt in receipts),
            start=min(last - rows + 1 for last, rows in numbers),
            last=max(last for last, _ in numbers),
            restamp=alone,
        )
        Landing(self._place, STREAM, slice_, attempt, NoProbe()).land(landed)


def alone(_files: Sequence[DataFile], was: int, now: int) -> Sequence[DataFile]:
    """Nobody else lands while a table is made, so no number is ever handed out anew."""
    raise SystemExit(f"someone else has landed {now - was} numbers in a table of this benchmark")


def fill(lander: Lander, *, rows: int, landings: int, first: int = 0) -> None:
    """Give a table its rows, in as many landings of one file each."""
    orders = Orders()
    ends = [first + rows * (index + 1) // landings for index in range(landings)]
    for begin, end in zip([first, *ends[:-1]], ends, strict=True):
        lander.land(orders.rows(np.arange(begin, end)))

"""One part through one pipe: the reader's batches into the writer, counted on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.slices import Part, Receipt
from penstock.ports import Reader, Writer

if TYPE_CHECKING:
    import pyarrow as pa


def carry(reader: Reader, writer: Writer, part: Part) -> Receipt:
    """Move one part; the receipt says what came out of the source and what was put aside."""
    import pyarrow as pa

    count = 0

    def counted(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches:
            count += batch.num_rows
            yield batch

    with reader.open(part) as batches:
        passing = pa.RecordBatchReader.from_batches(batches.schema, counted(batches))
        receipt = writer.write(passing, part)
    return replace(receipt, read=count)

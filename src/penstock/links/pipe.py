"""One part through one pipe: the reader's batches into the writer, counted on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.slices import Part, Receipt
from penstock.ports import Reader, Writer

if TYPE_CHECKING:
    import pyarrow as pa

#: values that have become NULL in the part that is being moved; a list of one number, so that helpers can add to it
_NULLED: ContextVar[list[int] | None] = ContextVar("nulled", default=None)


def nulled(values: int) -> None:
    """For whoever reads: so many values had no exact form and have become NULL, as the stream wants it."""
    count = _NULLED.get()
    if count is not None:
        count[0] += values


def carry(reader: Reader, writer: Writer, part: Part) -> Receipt:
    """Move one part; the receipt says what came out of the source and what was put aside."""
    import pyarrow as pa

    count = 0
    lost = [0]
    _NULLED.set(lost)

    def counted(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches:
            count += batch.num_rows
            yield batch

    with reader.open(part) as batches:
        passing = pa.RecordBatchReader.from_batches(batches.schema, counted(batches))
        receipt = writer.write(passing, part)
    return replace(receipt, read=count, nulled=lost[0])

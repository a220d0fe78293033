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


#: in the metadata of a field: the source no longer has the column, and each of its values is NULL
_ABSENT = b"penstock.absent"


def as_absent(column: pa.Field) -> pa.Field:
    """Mark a column that the source no longer has. A sink then leaves alone what it holds of it."""
    return column.with_metadata({**(column.metadata or {}), _ABSENT: b"true"})


def is_absent(column: pa.Field) -> bool:
    """Whether a column is marked by `as_absent`."""
    return _ABSENT in (column.metadata or {})


def nulled(values: int) -> None:
    """Count values without an exact form that a reader replaced by NULL, as the stream is configured."""
    count = _NULLED.get()
    if count is not None:
        count[0] += values


def carry(reader: Reader, writer: Writer, part: Part) -> Receipt:
    """Move one part; the receipt says what was read from the source and what was staged."""
    import pyarrow as pa

    count = 0
    absent: tuple[str, ...] = ()
    lost = [0]
    _NULLED.set(lost)

    def counted(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches:
            count += batch.num_rows
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema) if absent else batch

    with reader.open(part) as batches:
        absent = tuple(column.name for column in batches.schema if is_absent(column))
        # The receipt says it: the mark itself is not to be written into anyone's files.
        schema = pa.schema([column.remove_metadata() if is_absent(column) else column for column in batches.schema])
        schema = schema.with_metadata(batches.schema.metadata) if absent else batches.schema
        passing = pa.RecordBatchReader.from_batches(schema, counted(batches))
        receipt = writer.write(passing, part)
    return replace(receipt, read=count, nulled=lost[0], absent=absent)

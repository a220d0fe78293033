"""Readers and writers: a worker opens a part of a slice with one and stages it with the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.core.slices import Part, Receipt

if TYPE_CHECKING:
    import pyarrow as pa


class Reader(Protocol):
    """Reads a slice's rows inside a worker. Small and picklable; opens its own connections."""

    def open(self, part: Part) -> pa.RecordBatchReader:
        """Return the part's rows, batch by batch, each batch bounded in bytes.

        Every part of a slice has the same schema. A batch may carry a column `_change` ('upsert' or 'delete');
        without it every row is an upsert. Rows come in the order in which they apply: of two rows with one key, in one
        part, the later one wins. Ending the reader or dropping it frees its connection.
        """
        ...


class Writer(Protocol):
    """Stages a slice's rows inside a worker. Small and picklable."""

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        """Stage the part durably under a name that only this attempt has. Nothing becomes visible.

        Two attempts at one part, even at the same time, must not disturb each other. Apply a column `_change`. A sink
        that cannot apply deletes refuses the stream in `check`, before anything is read.
        """
        ...

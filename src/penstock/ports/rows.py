"""Rows on their way: how a worker opens a part of a slice, and how it stages one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.core.slices import Part, Receipt

if TYPE_CHECKING:
    import pyarrow as pa


class Reader(Protocol):
    """A slice's rows, from inside a worker. Small and picklable; opens its own connections."""

    def open(self, part: Part) -> pa.RecordBatchReader:
        """Return the part's rows, batch by batch, each batch bounded in bytes.

        Every part of a slice has the same schema. A batch may carry a column `_change` ('upsert' or 'delete');
        without it every row is an upsert. Rows come in the order in which they apply: of two rows with one key, in one
        part, the later one wins. Ending the reader or dropping it frees its connection.
        """
        ...


class Writer(Protocol):
    """Stages a slice's rows, from inside a worker. Small and picklable."""

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        """Stage the part durably under a name of this attempt alone; nothing becomes visible.

        Two attempts at one part, even at the same time, must not disturb each other. A column `_change` is applied:
        a sink that cannot render a delete refuses the stream in `check`, before anything is read.
        """
        ...

"""Shapes a slice's rows inside a worker: first the filter, then casts, then digests and masks, then new names.

Imports pyarrow only when a part is opened. Only the reader holds the salt; it is never stored or printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.content import Content
from penstock.core.slices import Part
from penstock.errors import StreamFailed
from penstock.links.pipe import nulled
from penstock.ports import Reader
from penstock.shaping.resolved_shape import ResolvedShape

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.shaping.filtering import BoundFilter

CHANGE = "_change"


@dataclass(frozen=True)
class ShapedReader:
    """A reader of shaped batches. Small and picklable."""

    reader: Reader
    stream: str
    #: the slice's content, which includes the shape
    content: str = field(repr=False)
    salt: bytes = field(repr=False, default=b"")

    def open(self, part: Part) -> pa.RecordBatchReader:
        """The part's rows; closing this reader closes the one inside."""
        import pyarrow as pa

        given = self.reader.open(part)
        shaper = BatchShaper(self, given.schema)
        return pa.RecordBatchReader.from_batches(shaper.schema, shaper.shape_all(given))


class BatchShaper:
    """Shapes batches of one schema."""

    def __init__(self, reader: ShapedReader, given: pa.Schema) -> None:
        import pyarrow as pa

        shape = ResolvedShape.of(Content.parse(reader.content))
        assert shape is not None
        self._shape = shape
        self._stream = reader.stream
        self._salt = reader.salt
        self._filter = _bind_filter(shape)
        fields = [given.field(old).with_name(new) for old, new in shape.names]
        # The new type does not depend on the rows: an empty column has it too.
        types = [self._column(old, pa.nulls(0, given.field(old).type)).type for old, _ in shape.names]
        fields = [
            each if each.type == type_ else each.with_type(type_).with_nullable(True)
            for each, type_ in zip(fields, types, strict=True)
        ]
        if CHANGE in given.names:
            fields.append(given.field(CHANGE))
        self.schema = pa.schema(fields)

    def shape_all(self, given: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with given:
            for batch in given:
                shaped = self._shape_batch(batch)
                if shaped.num_rows:
                    yield shaped

    def _shape_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        if self._filter is not None:
            batch = self._filter.apply(batch)
        arrays = [self._column(old, batch.column(old)) for old, _ in self._shape.names]
        if CHANGE in batch.schema.names:
            arrays.append(batch.column(CHANGE))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, array: pa.Array) -> pa.Array:
        from penstock.shaping.casting import cast
        from penstock.shaping.masking import hash_values, mask_values
        from penstock.shaping.types import type_of

        shape = self._shape
        if name in shape.cast:
            found = cast(array, type_of(shape.cast[name]))
            lost = found.null_count - array.null_count
            if lost and shape.on_error == "fail":
                raise self._error(name, shape.cast[name], lost, len(array))
            nulled(lost)
            array = found
        if name in shape.hash:
            return hash_values(array, shape.hash[name], self._salt)
        return mask_values(array, shape.mask[name]) if name in shape.mask else array

    def _error(self, name: str, type_: str, count: int, rows: int) -> StreamFailed:
        values = "1 value has" if count == 1 else f"{count} values have"
        return StreamFailed(
            f"column {name}: {values} no exact form as {type_} (in a batch of {rows} rows)",
            next_step=f"correct the source, cast {name} to a type that can hold all values (text can), or set "
            "`on_error: null` in the stream's `shape` to deliver NULL instead",
            stream=self._stream,
        )


def _bind_filter(shape: ResolvedShape) -> BoundFilter | None:
    if shape.where is None:
        return None
    from penstock.shaping.filtering import bind_filter

    return bind_filter(shape.where, shape.reads)

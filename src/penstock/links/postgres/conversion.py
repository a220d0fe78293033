"""Fetched batches as the stream's own: every column in its Arrow type, and values that it cannot hold found.

Dates and times are looked at here, not on the server, where it would cost as much as sending them. The driver adds the
distance between two epochs to what the server sends and lets it overflow, so `infinity` comes as a time far outside the
years 1 to 9999; never as one inside, because no two values become one. Imports pyarrow: only workers come here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.links.postgres.types import NOT_NUMBERS

#: the integers that lie in the years 1 to 9999, or in a day, and the type that shows them
_LIMITS: Mapping[pa.DataType, tuple[int, int, pa.DataType]] = {
    pa.date32(): (-719_162, 2_932_896, pa.int32()),
    pa.time64("us"): (0, 86_399_999_999, pa.int64()),
    **dict.fromkeys(
        (pa.timestamp("us"), pa.timestamp("us", "UTC")), (-62_135_596_800_000_000, 253_402_300_799_999_999, pa.int64())
    ),
}
_NO_NUMBERS = pa.array(NOT_NUMBERS)


class Unfit(Exception):
    """Values that their Arrow type cannot hold."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__(", ".join(columns))
        #: the known ones; a value that is not a list does not tell its column
        self.columns = columns


class Changed(Exception):
    """A column that does not arrive as planned: the table was altered meanwhile."""

    def __init__(self, column: str, given: pa.DataType, wanted: pa.DataType) -> None:
        super().__init__(f"{column} comes as {given}, not as {wanted}")


class Conversion:
    """Turns one part's fetched batches into the stream's."""

    def __init__(self, schema: pa.Schema, nulled: Callable[[int], None] | None) -> None:
        self.schema = schema
        #: called with the number of values that became NULL; None: such values are an error
        self.nulled = nulled
        self._unfit: list[str] = []

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the stream's schema. An extra last column counts the arrays of each row that are no lists.

        Unfit if values do not fit and may not become NULL; Changed if the columns are not the requested ones.
        """
        self._unfit = []
        fields = self.schema
        arrays = [self._column(field, array) for field, array in zip(fields, batch.columns, strict=False)]
        if batch.num_columns > len(fields):
            self._count(pc.sum(batch.column(len(fields)), min_count=0).as_py(), None)
        if self._unfit:
            raise Unfit([name for name in self._unfit if name])
        return pa.RecordBatch.from_arrays(arrays, schema=fields)

    def pieces(self, batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
        """The batch, cut where it would take far more than `most` bytes: a decimal takes 16 also where it is NULL."""
        decimals = sum(pa.types.is_decimal(field.type) for field in self.schema)
        bytes_ = batch.nbytes + 16 * decimals * batch.num_rows
        rows = max(1, batch.num_rows * most * 2 // max(bytes_, 1))
        for first in range(0, batch.num_rows, rows):
            yield batch.slice(first, rows)

    def _column(self, field: pa.Field, array: pa.Array) -> pa.Array:
        if not pa.types.is_list(field.type):
            return self._values(field.name, field.type, array)
        if not pa.types.is_list(array.type):
            raise Changed(field.name, array.type, field.type)
        offsets = array.offsets
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        given = array.values.slice(first, last - first)
        values = self._values(field.name, field.type.value_type, given)
        if values is given and array.type == field.type:
            return array
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(pc.subtract(offsets, first), values, type=field.type, mask=mask)

    def _values(self, name: str, wanted: pa.DataType, array: pa.Array) -> pa.Array:
        plain = array.storage if isinstance(array, pa.ExtensionArray) else array
        if pa.types.is_decimal(wanted) and pa.types.is_string(plain.type):
            return self._decimals(name, wanted, plain)
        if plain.type != wanted:
            raise Changed(name, plain.type, wanted)
        if wanted in _LIMITS:
            return self._within(name, plain)
        return plain

    def _within(self, name: str, array: pa.Array) -> pa.Array:
        low, high, integers = _LIMITS[array.type]
        numbers = array.view(integers)
        found = pc.min_max(numbers)
        least, most = found["min"].as_py(), found["max"].as_py()
        if least is None or (least >= low and most <= high):
            return array
        return self._without(name, array, pc.or_(pc.less(numbers, low), pc.greater(numbers, high)))

    def _decimals(self, name: str, wanted: pa.DataType, texts: pa.Array) -> pa.Array:
        try:
            return texts.cast(wanted)
        except pa.ArrowInvalid:
            numbers = self._without(name, texts, pc.is_in(texts, _NO_NUMBERS))
        try:
            return numbers.cast(wanted)
        except pa.ArrowInvalid:
            # A number of more digits than declared, as a foreign table may give; or words that will fail all the same.
            self._unfit.append(name)
            return pa.nulls(len(texts), wanted)

    def _without(self, name: str, array: pa.Array, outside: pa.Array) -> pa.Array:
        """Replace the values outside the limits by NULL."""
        self._count(pc.sum(outside, min_count=0).as_py(), name)
        return pc.if_else(outside, pa.scalar(None, array.type), array)

    def _count(self, values: int, name: str | None) -> None:
        if values and self.nulled is None:
            self._unfit.append(name or "")
        elif values and self.nulled is not None:
            self.nulled(values)

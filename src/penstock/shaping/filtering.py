"""The row filter of a shape, for batches of any source; same language and three-valued logic as the lake's filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from penstock.core.content import Column
from penstock.core.types import Plain
from penstock.lake.filtering import Filter, read_filter
from penstock.lake.iceberg_types import NoForm, iceberg_type
from penstock.lake.projection import arrow_type as travelling
from penstock.shaping.text_form import decode, to_text

#: the column with the kind of each row, and the value for a deleted row
CHANGE, DELETE = "_change", "delete"


@dataclass(frozen=True)
class BoundFilter:
    """A filter that is bound to a source's columns."""

    filter: Filter
    #: its columns, and the types in which they are compared
    types: Mapping[str, pa.DataType]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Keep the rows for which it is true, and every delete, of which only the key is known."""
        arrays = [_convert(batch.column(name), type_) for name, type_ in self.types.items()]
        # A filter without columns is true or false for all rows.
        seen = pa.RecordBatch.from_arrays(arrays, list(self.types)) if arrays else batch
        mask = self.filter.mask(seen)
        if CHANGE in batch.schema.names:
            mask = pc.or_kleene(mask, pc.equal(batch.column(CHANGE), DELETE))
        return batch.filter(pc.fill_null(mask, False))


def bind_filter(where: str, columns: Sequence[Column]) -> BoundFilter:
    """Bind a filter to a content's columns; StreamRefused if it is invalid or does not fit them."""
    ids = count(1)
    fields = []
    for column in columns:
        if column.type is Plain.UUID:
            continue  # sixteen bytes, which have no literal
        try:
            form = iceberg_type(column.type, ids)
        except NoForm:
            continue  # a type without literals
        fields.append(NestedField(next(ids), column.name, form, required=False))
    schema = Schema(*fields)
    filter_ = read_filter(where, schema)
    return BoundFilter(filter_, {name: travelling(schema.find_type(name)) for name in filter_.columns})


def _convert(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A column in the type in which it is compared."""
    array = decode(array)
    if array.type == type_:
        return array
    return to_text(array) if pa.types.is_string(type_) else array.cast(type_)

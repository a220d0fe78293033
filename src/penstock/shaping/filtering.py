"""The row filter of a shape, on batches of any source: the language and the three-valued logic of the lake's filter."""

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
from penstock.lake.forms import NoForm, iceberg_type
from penstock.lake.projection import arrow_type as travelling
from penstock.shaping.spelling import plain, text

#: the column that says what each row is, and the word for one that is gone
CHANGE, DELETE = "_change", "delete"


@dataclass(frozen=True)
class Where:
    """A filter that is bound to a source's columns."""

    filter: Filter
    #: the columns it looks at, and the types they are compared as
    types: Mapping[str, pa.DataType]

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which it is true, and every delete: of a row that is gone only the key is known."""
        arrays = [_as(batch.column(name), type_) for name, type_ in self.types.items()]
        # One that looks at no column is true or false of all rows.
        seen = pa.RecordBatch.from_arrays(arrays, list(self.types)) if arrays else batch
        mask = self.filter.mask(seen)
        if CHANGE in batch.schema.names:
            mask = pc.or_kleene(mask, pc.equal(batch.column(CHANGE), DELETE))
        return batch.filter(pc.fill_null(mask, False))


def bound(where: str, columns: Sequence[Column]) -> Where:
    """A filter for columns as a content lists them; StreamRefused if it is not one, or does not fit them."""
    ids = count(1)
    fields = []
    for column in columns:
        if column.type is Plain.UUID:
            continue  # sixteen bytes, which nobody writes
        try:
            form = iceberg_type(column.type, ids)
        except NoForm:
            continue  # a type that nothing can be compared with
        fields.append(NestedField(next(ids), column.name, form, required=False))
    schema = Schema(*fields)
    filter_ = read_filter(where, schema)
    return Where(filter_, {name: travelling(schema.find_type(name)) for name in filter_.columns})


def _as(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A column as its values are compared."""
    array = plain(array)
    if array.type == type_:
        return array
    return text(array) if pa.types.is_string(type_) else array.cast(type_)

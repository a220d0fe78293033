"""Converts a stream's batches to its table's columns: matched by name, cast exactly, each row with its number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.types import NestedField

from penstock.errors import StreamFailed
from penstock.lake.iceberg_types import NO_FORM_CHOICE, NoForm, describe_type, fits, iceberg_type, make_arrow_columns
from penstock.lake.names import DELETED, INTERNAL, SEQ
from penstock.links.arrow_types import NoType, type_of

#: the column in which batches carry whether a row is an upsert or a delete
CHANGE = "_change"
_UPSERT, _DELETE = "upsert", "delete"
#: makes one column of the table from a batch
Filler = Callable[[pa.RecordBatch], pa.Array]
_DEFECT = "this is a defect of penstock or of the source: report it with this message"


def make_file_schema(schema: Schema) -> Schema:
    """The schema of data files: Iceberg's writers replace characters that Avro does not allow in names."""
    return sanitize_column_names(schema)


@dataclass(frozen=True)
class Fitting:
    """Turns batches of one schema into batches of the table."""

    #: the table's columns
    columns: pa.Schema
    #: one for each column, None where the numbers go
    fillers: Sequence[Filler | None]

    def __call__(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """The batch as the table holds it; its rows are numbered from `first`."""
        numbers = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
        arrays = [fill(batch) if fill else numbers for fill in self.fillers]
        return pa.RecordBatch.from_arrays(arrays, schema=self.columns)


@dataclass(frozen=True)
class _WithoutDeletes(Fitting):
    """For a table without a column for tombstones."""

    change: int

    def __call__(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        if pc.any(_deletes(batch.column(self.change)), min_count=0).as_py():
            raise StreamFailed(
                f"the stream deletes rows, and the table has no column {DELETED!r} to say so",
                next_step="use mode: merge, or land in a new table with `into`",
            )
        return super().__call__(batch, first)


def make_fitting(incoming: pa.Schema, schema: Schema, key: Sequence[str] = (), empty: Sequence[str] = ()) -> Fitting:
    """Make the conversion of batches to the table's columns; StreamFailed, before any row, if there is none.

    Columns that are `empty` may be missing in the table: they are NULL in every row.
    """
    names = {field.name for field in schema.fields}
    for name in incoming.names:
        if incoming.names.count(name) > 1:
            raise StreamFailed(f"the stream has two columns {name!r}", next_step="rename one at the source")
        if name in INTERNAL or (name not in names and name != CHANGE and name not in empty):
            raise StreamFailed(f"a batch has a column {name!r}, which the table does not have", next_step=_DEFECT)
    plain, columns = make_arrow_columns(schema), make_arrow_columns(make_file_schema(schema))
    fillers: list[Filler | None] = []
    change = incoming.get_field_index(CHANGE)
    for field, within, target in zip(schema.fields, plain, columns, strict=True):
        if field.name == SEQ:
            fillers.append(None)
        elif field.name == DELETED:
            fillers.append(_tombstones(change))
        else:
            fillers.append(_column(incoming, field, within.type, target.type, field.name in key))
    if DELETED not in names and change >= 0:
        return _WithoutDeletes(columns, fillers, change)
    return Fitting(columns, fillers)


def _tombstones(index: int) -> Filler:
    def fill(batch: pa.RecordBatch) -> pa.Array:
        if index < 0:
            # Not NULL, for which `WHERE NOT _tombstone` would be neither true nor false.
            return pa.repeat(pa.scalar(False), batch.num_rows)
        return _deletes(batch.column(index))

    return fill


def _deletes(change: pa.Array) -> pa.Array:
    deletes = pc.equal(change, _DELETE)
    known = pc.or_(deletes, pc.equal(change, _UPSERT))
    if change.null_count or not pc.all(known, min_count=0).as_py():
        other = pc.unique(pc.filter(change, pc.invert(pc.fill_null(known, False)))).to_pylist()
        raise StreamFailed(
            f"column {CHANGE!r} holds {other[:3]}; a row is an {_UPSERT!r} or a {_DELETE!r}", next_step=_DEFECT
        )
    return deletes


def _column(incoming: pa.Schema, field: NestedField, within: pa.DataType, target: pa.DataType, key: bool) -> Filler:
    index = incoming.get_field_index(field.name)
    if index < 0:
        if field.required:
            raise StreamFailed(
                f"column {field.name!r} of the table is required, and the stream has no such column",
                next_step="ship the column, or make it optional in the table",
            )
        return lambda batch: pa.nulls(batch.num_rows, target)
    given = incoming.field(index).type
    _refuse_lossy(field, given)

    def fill(batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(index)
        if column.null_count and (key or field.required):
            raise _null(field.name, column.null_count, batch.num_rows, key)
        if given == target:
            return column
        try:
            cast = column.cast(within)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise StreamFailed(
                f"column {field.name!r}: a value of type {given} cannot be converted to "
                f"{describe_type(field.field_type)}: {error}",
                next_step="correct or cast the value at the source",
            ) from error
        # Arrow casts structs by their fields' names; names that files spell otherwise are put on afterwards.
        return cast if within == target else cast.view(target)

    return fill


def _refuse_lossy(field: NestedField, given: pa.DataType) -> None:
    if pa.types.is_null(given):
        return
    try:
        form = iceberg_type(type_of(given))
    except NoForm as none:
        raise StreamFailed(f"column {field.name!r}: {none}", next_step=none.choice) from none
    except NoType as none:
        raise StreamFailed(f"column {field.name!r}: {none}", next_step=NO_FORM_CHOICE) from none
    if not fits(form, field.field_type):
        raise StreamFailed(
            f"column {field.name!r} comes as {type_of(given)} and is {describe_type(field.field_type)} in the table; "
            "a value could be lost between them",
            next_step="cast the column at the source, or land in a new table with `into`",
        )


def _null(name: str, count: int, rows: int, key: bool) -> StreamFailed:
    what = "key column" if key else "required column"
    return StreamFailed(
        f"the {what} {name!r} is NULL in {count} of {rows} rows",
        next_step="choose a key that is never NULL, or correct the rows at the source"
        if key
        else "correct the rows at the source, or make the column optional in the table",
    )

"""Fits batches to the sink's columns inside a worker: by name, with exact casts only, by Arrow's own kernels.

A column that the stream no longer has is NULL, a column that became narrower is widened, and values that do not fit go
as text into one extra column. Imports pyarrow only when a part is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.content import Content
from penstock.core.drift import QUARANTINE_COLUMN
from penstock.core.slices import Part
from penstock.core.types import Type, is_nested
from penstock.core.widening import widens
from penstock.errors import StreamFailed
from penstock.links.pipe import as_absent, is_absent
from penstock.ports import Reader

if TYPE_CHECKING:
    import pyarrow as pa

#: the column in which batches carry whether a row is an upsert or a delete
CHANGE = "_change"


@dataclass(frozen=True)
class FittedReader:
    """A reader whose batches have the sink's columns. Small and picklable."""

    reader: Reader
    #: the sink's columns and their types
    columns: tuple[tuple[str, Type], ...] = field(repr=False)
    #: columns with values that may not fit
    quarantined: tuple[str, ...] = ()

    @classmethod
    def of(cls, reader: Reader, content: Content) -> FittedReader:
        return cls(reader, tuple((column.name, column.type) for column in content.columns), content.quarantined)

    def open(self, part: Part) -> pa.RecordBatchReader:
        """The part's rows; closing this reader closes the one inside."""
        import pyarrow as pa

        given = self.reader.open(part)
        fitter = _BatchFitter(given.schema, self.columns, self.quarantined)
        return pa.RecordBatchReader.from_batches(fitter.schema, fitter.fit_all(given))


class _BatchFitter:
    """Fits batches of one schema to the sink's columns."""

    def __init__(self, given: pa.Schema, columns: Sequence[tuple[str, Type]], quarantined: Sequence[str]) -> None:
        import pyarrow as pa

        from penstock.links import arrow_types

        types = {each.name: each.type for each in given}
        self._quarantined = [name for name in quarantined if name in types]
        self._sink_columns = {name for name, _ in columns}
        fields = [
            # Keep the given Arrow type if it fits: several Arrow types stand for one type.
            pa.field(
                name,
                types[name]
                if name in types and arrow_types.type_of(types[name]) == type_
                else arrow_types.arrow_type(type_),
            )
            for name, type_ in columns
        ]
        made = {QUARANTINE_COLUMN} if self._quarantined else set()
        fields = [
            as_absent(each)
            if each.name not in made and (each.name not in types or is_absent(given.field(each.name)))
            else each
            for each in fields
        ]
        if CHANGE in types and CHANGE not in self._sink_columns:
            fields.append(given.field(CHANGE))
        self.schema = pa.schema(fields)

    def fit_all(self, given: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with given:
            for batch in given:
                yield self._fit(batch)

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        from penstock.shaping.misfits import json_objects, split_misfits

        misfits: dict[str, pa.Array] = {
            name: batch.column(name) for name in self._quarantined if name not in self._sink_columns
        }
        arrays: list[pa.Array | None] = []
        for wanted in self.schema:
            if wanted.name == QUARANTINE_COLUMN and self._quarantined:
                arrays.append(None)
            elif wanted.name not in batch.schema.names:
                arrays.append(pa.nulls(batch.num_rows, wanted.type))
            elif wanted.name in self._quarantined:
                fits, misfits[wanted.name] = split_misfits(batch.column(wanted.name), wanted.type)
                arrays.append(fits)
            else:
                arrays.append(_cast(batch.column(wanted.name), wanted))
        texts = (
            json_objects({name: misfits[name] for name in self._quarantined}, batch.num_rows)
            if self._quarantined
            else None
        )
        return pa.RecordBatch.from_arrays([texts if each is None else each for each in arrays], schema=self.schema)


def _cast(array: pa.Array, wanted: pa.Field) -> pa.Array:
    """Cast a column to the sink's type; StreamFailed if a value would change."""
    import pyarrow as pa

    from penstock.links import arrow_types

    given, type_ = arrow_types.type_of(array.type), arrow_types.type_of(wanted.type)
    if array.type == wanted.type:
        return array
    if widens(type_, given):
        return _narrow(array, wanted)
    if widens(given, type_) or is_nested(given):
        try:
            return array.cast(wanted.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    raise StreamFailed(
        f"column {wanted.name} comes as {given}, and {type_} was planned",
        next_step="run again; if it happens again, report it as a defect of penstock or of the source",
    )


def _narrow(array: pa.Array, wanted: pa.Field) -> pa.Array:
    import pyarrow.compute as pc

    from penstock.links import arrow_types
    from penstock.shaping.misfits import split_misfits

    fits, rest = split_misfits(array, wanted.type)
    if rest.null_count < len(rest):
        given, type_ = arrow_types.type_of(array.type), arrow_types.type_of(wanted.type)
        raise StreamFailed(
            f"column {wanted.name} became {given} while a slice was open that has it as {type_}, and "
            f"{len(rest) - rest.null_count} of its values do not fit, such as {pc.drop_null(rest)[0]}",
            next_step="drop the open slice with `penstock state recover FILE`; the next slice has the new type",
        )
    return fits

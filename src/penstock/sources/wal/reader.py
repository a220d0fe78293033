"""A slice's rows, inside a worker: batches of the log as Arrow columns. Every record's checksum is checked again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal as Exact
from typing import TYPE_CHECKING, Any

from penstock.core.documents import parse
from penstock.core.slices import Part
from penstock.core.types import Type, parse_type
from penstock.errors import StreamFailed
from penstock.links.arrow_types import arrow_type
from penstock.links.json_values import converter, make_array

if TYPE_CHECKING:
    import pyarrow as pa

#: the field, and the column, with the kind of a row
CHANGE = "_change"
#: numbers that stand for times are seconds
_STEPS = 1


@dataclass(frozen=True, slots=True)
class LogReader:
    """Reads records of a log. Small and picklable."""

    stream: str
    folder: str
    #: (name, type's string form)
    columns: tuple[tuple[str, str], ...]
    changes: bool
    #: a damaged record is left out instead of failing the slice
    skips_damage: bool

    def open(self, part: Part) -> pa.RecordBatchReader:
        import pyarrow as pa

        types = [parse_type(type_) for _, type_ in self.columns]
        fields = [(name, arrow_type(type_)) for (name, _), type_ in zip(self.columns, types, strict=True)]
        schema = pa.schema([*fields, *([(CHANGE, pa.string())] if self.changes else [])])
        places: list[list[int]] = parse(part.terms)["places"]
        return pa.RecordBatchReader.from_batches(schema, self._batches(places, schema, types))

    def _batches(self, places: Sequence[Sequence[int]], schema: pa.Schema, types: Sequence[Type]) -> Iterator[Any]:
        import pyarrow as pa

        for segment, offset, length in places:
            lines = self._lines(segment, offset, length)
            if not lines:
                continue
            rows = [json.loads(line, parse_float=Exact) for line in lines]
            arrays = [
                self._array([row.get(name) for row in rows], name, type_, field, (segment, offset))
                for (name, _), type_, field in zip(self.columns, types, schema, strict=False)
            ]
            if self.changes:
                arrays.append(pa.array(["delete" if row.get(CHANGE) == "delete" else "upsert" for row in rows]))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _lines(self, segment: int, offset: int, length: int) -> list[bytes]:
        import pyarrow as pa

        from penstock.wal.batches import decode_batch
        from penstock.wal.frames import Record, read_record
        from penstock.wal.ledger import Place
        from penstock.wal.segments import path_of

        path = path_of(self.folder, segment)
        with open(path, "rb") as file:
            found = read_record(os.pread(file.fileno(), length, offset), 0)
        if not isinstance(found, Record):
            if self.skips_damage:
                return []
            raise StreamFailed(
                f"the record at offset {offset} of {path} cannot be read: {found}",
                next_step="put the file back from a backup, or set `damaged: skip` to go on without its rows",
                stream=self.stream,
            )
        body = decode_batch(found.payload, Place(segment, offset, length)).batch.body
        lines: bytes = pa.input_stream(pa.py_buffer(body), compression="zstd").read()
        return lines.splitlines()

    def _array(self, values: list[Any], name: str, type_: Type, field: pa.Field, at: tuple[int, int]) -> pa.Array:
        import pyarrow as pa

        storage = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        made = make_array(values, type_, storage, _STEPS)
        if made is None:
            convert = converter(type_, _STEPS)
            try:
                made = pa.array([None if value is None else convert(value) for value in values], storage)
            except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
                raise StreamFailed(
                    f"the batch at offset {at[1]} of segment {at[0]} has a value that does not fit {name}, which is "
                    f"{type_}: {error}",
                    next_step=f"declare column {name} with a type that holds all values (json holds any)",
                    stream=self.stream,
                ) from None
        return pa.ExtensionArray.from_storage(field.type, made) if storage is not field.type else made

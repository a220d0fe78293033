"""A slice's rows, inside a worker: batches of the log as Arrow columns. Every record's checksum is checked again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal as Exact
from typing import TYPE_CHECKING, Any

from penstock.core.documents import parse
from penstock.core.slices import Part
from penstock.core.types import Decimal, Plain, Type, parse_type
from penstock.errors import StreamFailed
from penstock.links.arrow_types import arrow_type
from penstock.links.json_values import converter, decoder_of, make_array
from penstock.sources.wal.records import Lines, Records

if TYPE_CHECKING:
    import pyarrow as pa

#: the field, and the column, with the kind of a row
CHANGE = "_change"
#: numbers that stand for times are seconds
_STEPS = 1
#: bytes of lines that become rows at the same time
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LogReader:
    """Reads records of a log. Small and picklable."""

    records: Records
    #: (name, type's string form)
    columns: tuple[tuple[str, str], ...]
    changes: bool

    def open(self, part: Part) -> pa.RecordBatchReader:
        import pyarrow as pa

        types = [parse_type(type_) for _, type_ in self.columns]
        fields = [(name, arrow_type(type_)) for (name, _), type_ in zip(self.columns, types, strict=True)]
        schema = pa.schema([*fields, *([(CHANGE, pa.string())] if self.changes else [])])
        ranges: list[list[int]] = parse(part.terms)["ranges"]
        return pa.RecordBatchReader.from_batches(schema, self._batches(ranges, schema, types))

    def _batches(self, ranges: Sequence[Sequence[int]], schema: pa.Schema, types: Sequence[Type]) -> Iterator[Any]:
        group: list[Lines] = []
        for found in self.records.read(ranges):
            group.append(found)
            if sum(each.size for each in group) >= _BATCH_BYTES:
                yield from self._convert(group, schema, types)
                group = []
        yield from self._convert(group, schema, types)

    def _convert(self, group: Sequence[Lines], schema: pa.Schema, types: Sequence[Type]) -> Iterator[Any]:
        """Several records as one batch of rows; one by one where a value does not fit, to name its record."""
        import pyarrow as pa

        rows = self._decode([line for each in group for line in each.lines], types)
        if not rows:
            return
        try:
            arrays = [
                self._array([row.get(name) for row in rows], name, type_, field, group[0])
                for (name, _), type_, field in zip(self.columns, types, schema, strict=False)
            ]
        except StreamFailed:
            if len(group) == 1:
                raise
            for each in group:
                yield from self._convert([each], schema, types)
            return
        if self.changes:
            arrays.append(pa.array(["delete" if row.get(CHANGE) == "delete" else "upsert" for row in rows]))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _decode(self, lines: Sequence[bytes], types: Sequence[Type]) -> Sequence[dict[str, Any]]:
        """The values of the columns' fields of each row; of JSON columns their own text."""
        import msgspec

        names = [name for name, _ in self.columns]
        texts = frozenset(name for name, type_ in zip(names, types, strict=True) if type_ is Plain.JSON)
        exact = any(isinstance(type_, Decimal) for type_ in types)
        try:
            decode = decoder_of((*names, *([CHANGE] if self.changes else [])), exact=exact, texts=texts).decode
            return [decode(line) for line in lines]
        except msgspec.MsgspecError:
            # Python's own decoder takes more: NaN, half of a surrogate pair, numbers beyond a float.
            return [json.loads(line, parse_float=Exact if exact else None) for line in lines]

    def _array(self, values: list[Any], name: str, type_: Type, field: pa.Field, at: Lines) -> pa.Array:
        import pyarrow as pa

        storage = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        made = make_array(values, type_, storage, _STEPS)
        if made is None:
            convert = converter(type_, _STEPS)
            try:
                made = pa.array([None if value is None else convert(value) for value in values], storage)
            except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
                raise StreamFailed(
                    f"the batch at {at.segment}:{at.offset} has a value that does not fit {name}, which is "
                    f"{type_}: {error}",
                    next_step=f"declare column {name} with a type that holds all values (json holds any)",
                    stream=self.records.stream,
                ) from None
        return pa.ExtensionArray.from_storage(field.type, made) if storage is not field.type else made

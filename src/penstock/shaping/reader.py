"""A slice's rows in their shape, inside a worker: rows first, then casts, then digests and masks, names last.

Imports pyarrow only when a part is opened. The salt is in the reader, and nowhere else that is written or shown.
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
from penstock.shaping.rules import Rules

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.shaping.filtering import Where

CHANGE = "_change"


@dataclass(frozen=True)
class ShapedReader:
    """A reader whose batches have their shape. Small and picklable."""

    reader: Reader
    stream: str
    #: the slice's content, with the rules in it
    content: str = field(repr=False)
    salt: bytes = field(repr=False, default=b"")

    def open(self, part: Part) -> pa.RecordBatchReader:
        """The part's rows; the reader inside is let go of together with this one."""
        import pyarrow as pa

        given = self.reader.open(part)
        shaping = Shaping(self, given.schema)
        return pa.RecordBatchReader.from_batches(shaping.schema, shaping.all(given))


class Shaping:
    """How batches of one schema get their shape."""

    def __init__(self, reader: ShapedReader, given: pa.Schema) -> None:
        import pyarrow as pa

        rules = Rules.of(Content.parse(reader.content))
        assert rules is not None
        self._rules = rules
        self._stream = reader.stream
        self._salt = reader.salt
        self._where = _where(rules)
        fields = [given.field(old).with_name(new) for old, new in rules.names]
        # What a column becomes does not depend on its rows: no rows at all tell its type.
        made = [self._column(old, pa.nulls(0, given.field(old).type)).type for old, _ in rules.names]
        fields = [
            each if each.type == type_ else each.with_type(type_).with_nullable(True)
            for each, type_ in zip(fields, made, strict=True)
        ]
        if CHANGE in given.names:
            fields.append(given.field(CHANGE))
        self.schema = pa.schema(fields)

    def all(self, given: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with given:
            for batch in given:
                shaped = self.one(batch)
                if shaped.num_rows:
                    yield shaped

    def one(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        if self._where is not None:
            batch = self._where.kept(batch)
        arrays = [self._column(old, batch.column(old)) for old, _ in self._rules.names]
        if CHANGE in batch.schema.names:
            arrays.append(batch.column(CHANGE))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, array: pa.Array) -> pa.Array:
        from penstock.shaping.casting import cast
        from penstock.shaping.hiding import hashed, masked
        from penstock.shaping.types import type_of

        rules = self._rules
        if name in rules.cast:
            found = cast(array, type_of(rules.cast[name]))
            lost = found.null_count - array.null_count
            if lost and rules.on_error == "fail":
                raise self._unfit(name, rules.cast[name], lost, len(array))
            nulled(lost)
            array = found
        if name in rules.hash:
            return hashed(array, rules.hash[name], self._salt)
        return masked(array, rules.mask[name]) if name in rules.mask else array

    def _unfit(self, name: str, type_: str, count: int, rows: int) -> StreamFailed:
        values = "1 value has" if count == 1 else f"{count} values have"
        return StreamFailed(
            f"column {name}: {values} no exact form as {type_} (among {rows} rows that were looked at)",
            next_step=f"correct the source, cast {name} to a type that can hold all values (text can), or set "
            "`on_error: null` in the stream's `shape` to deliver NULL instead",
            stream=self._stream,
        )


def _where(rules: Rules) -> Where | None:
    if rules.where is None:
        return None
    from penstock.shaping.filtering import bound

    return bound(rules.where, rules.reads)

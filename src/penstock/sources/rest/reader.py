"""A slice's rows, inside a worker: the records of a spool's file as Arrow columns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal as Exact
from decimal import InvalidOperation
from typing import TYPE_CHECKING, Any

from penstock.core.content import Column
from penstock.core.documents import parse
from penstock.core.slices import Part
from penstock.core.types import Decimal, Plain, Type, parse_type
from penstock.errors import StreamFailed
from penstock.links.json_values import converter, decoder_of, make_array
from penstock.sources.rest.content import VERSION, ChangeFields
from penstock.sources.rest.cutting import look_up
from penstock.sources.rest.stamps import read_stamp, version_of
from penstock.sources.rest.times import Unit

if TYPE_CHECKING:
    import pyarrow as pa

#: bytes of records in one batch
BATCH_BYTES = 4 << 20
_BEGINNING, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
#: the column with the kind of each row
CHANGE = "_change"
#: stands for a path in a column with the ids of parents; no field of an API has this name
PARENT_PATH = "\0parent"


@dataclass(frozen=True, slots=True)
class SpoolReader:
    """Reads the files of a spool. Small and picklable."""

    stream: str
    #: (name, type's string form, path; "" for the whole object, PARENT_PATH for the parent's id)
    columns: tuple[tuple[str, str, str], ...]
    unit: str
    #: path of the field that identifies an object, for messages
    id: str = "id"
    #: the fields that say what a version is; None: each object is delivered once
    changes: ChangeFields | None = None

    def open(self, part: Part) -> pa.RecordBatchReader:
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self._schema(), self._batches(parse(part.terms)["file"]))

    def read_lines(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Lines of a spool as columns."""
        [batch] = self._columns([lines])
        return batch

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        from penstock.links.arrow_types import arrow_type

        schema = pa.schema(
            [(name, arrow_type(type_)) for (name, _, _), type_ in zip(self.columns, self._types, strict=True)]
        )
        return schema.append(pa.field(CHANGE, pa.string())) if self.changes is not None else schema

    @property
    def _types(self) -> list[Type]:
        return [parse_type(type_) for _, type_, _ in self.columns]

    def _batches(self, file: str) -> Iterator[pa.RecordBatch]:
        from penstock.sources.rest.spooling import read_lines

        return self._columns(read_lines(file, BATCH_BYTES))

    def _columns(self, blocks: Iterable[Sequence[bytes]]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from penstock.sources.rest.parents import split_parents

        schema, types = self._schema(), self._types
        # A decimal keeps its digits; floats are only made where a column has floats.
        exact = any(isinstance(type_, Decimal) or type_ is Plain.JSON for type_ in types)
        paths = [self.id, *(path for _, _, path in self.columns if path)]
        if self.changes is not None:
            paths += [path for path in (self.changes.updated, self.changes.deleted, self.changes.time) if path]
        used = Counter(path.partition(".")[0] for path in paths)
        columns = zip(self.columns, types, strict=True)
        texts = frozenset(path for (_, _, path), type_ in columns if type_ is Plain.JSON and used[path] == 1)
        has_parents = any(path == PARENT_PATH for _, _, path in self.columns)
        for lines in blocks:
            parents: list[str] = []
            stamps: list[tuple[int, bool]] = []
            if has_parents:
                parents, lines = split_parents(lines)
            if self.changes is not None:
                found = [read_stamp(line) for line in lines]
                stamps, lines = [(time, is_delete) for time, is_delete, _ in found], [text for _, _, text in found]
            records = _decode(lines, tuple(used), texts, exact=exact)
            arrays = []
            for (name, _, path), type_, field in zip(self.columns, types, schema, strict=False):
                storage = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
                if path == PARENT_PATH:
                    made = pa.array(parents, storage)
                elif name == VERSION and self.changes is not None:
                    made = pa.array(self._versions(self.changes, records, stamps), storage)
                elif not path:
                    made = pa.array(lines, pa.binary()).cast(storage)
                else:
                    made = self._column(records, name, path, type_, storage)
                arrays.append(pa.ExtensionArray.from_storage(field.type, made) if storage is not field.type else made)
            if self.changes is not None:
                deleted = self.changes.deleted
                gone = [
                    is_delete or bool(deleted and look_up(r, deleted))
                    for r, (_, is_delete) in zip(records, stamps, strict=True)
                ]
                arrays.append(pa.array(["delete" if each else "upsert" for each in gone]))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _versions(
        self, changes: ChangeFields, records: Sequence[Any], stamps: Sequence[tuple[int, bool]]
    ) -> Sequence[int]:
        """The time of each version, in microseconds."""
        pages = [time for time, _ in stamps]
        if changes.updated is None:
            return pages
        own = self._values(records, changes.updated, changes.updated, Plain.TIMESTAMPTZ)
        made = self._values(records, changes.time or "", changes.time or "", Plain.TIMESTAMPTZ)
        return [
            page if at is None else version_of((at - _BEGINNING) // _MICROSECOND, page)
            for at, page in zip((a or b for a, b in zip(own, made, strict=True)), pages, strict=True)
        ]

    def _column(self, records: Sequence[Any], name: str, path: str, type_: Type, storage: pa.DataType) -> pa.Array:
        import pyarrow as pa

        made = make_array(_find(records, path), type_, storage, Unit(self.unit).ticks)
        return pa.array(self._values(records, name, path, type_), storage) if made is None else made

    def _values(self, records: Sequence[Any], name: str, path: str, type_: Type) -> list[Any]:
        convert = converter(type_, Unit(self.unit).ticks)
        values = _find(records, path)
        try:
            return [None if value is None else convert(value) for value in values]
        except (ValueError, TypeError, OverflowError, InvalidOperation):
            raise self._unfit(name, type_, convert, values, records) from None

    def _unfit(
        self, name: str, type_: Type, convert: Callable[[Any], Any], values: Sequence[Any], records: Sequence[Any]
    ) -> StreamFailed:
        for value, record in zip(values, records, strict=True):
            try:
                if value is not None:
                    convert(value)
            except (ValueError, TypeError, OverflowError, InvalidOperation):
                id_ = look_up(record, self.id) or "?"
                return StreamFailed(
                    f"record {id_}: {json.dumps(value, default=str)[:80]} has no exact form as {type_} (column {name})",
                    next_step=f"declare column {name} with a type that holds all values (json holds any)",
                    stream=self.stream,
                )
        raise AssertionError("a value did not fit, and every value fits")


def _find(records: Sequence[Any], path: str) -> list[Any]:
    """The values of a field."""
    return [record.get(path) for record in records] if "." not in path else [look_up(r, path) for r in records]


def _decode(
    lines: Sequence[bytes], fields: tuple[str, ...], texts: frozenset[str], *, exact: bool
) -> Sequence[dict[str, Any]]:
    """The values of these fields of each record; of `texts` their own JSON text."""
    import msgspec

    try:
        decode = decoder_of(fields, exact=exact, texts=texts).decode
        return [decode(line) for line in lines]
    except msgspec.MsgspecError:
        # Python's own decoder takes more: NaN, half of a surrogate pair, numbers beyond a float.
        return [json.loads(line, parse_float=Exact if exact else None) for line in lines]


def columns_of(
    columns: Sequence[Column], paths: dict[str, str], parent_column: str | None = None
) -> tuple[tuple[str, str, str], ...]:
    known = paths | ({parent_column: PARENT_PATH} if parent_column else {})
    return tuple((column.name, str(column.type), known.get(column.name, "")) for column in columns)

"""Converts a file's columns to the table's current ones, matched by field id: a renamed column keeps its values, and
one that was dropped and added again does not get its old ones back.

PyIceberg has this too, but turns a NULL list or map of structs into an empty one, and a column's type depends on the
file. Here every file gives the same types: `string` and `binary` (a `fixed` too), timestamps in microseconds with
UTC, `decimal128`; a uuid travels as its text in lower case.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_json
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    UUIDType,
)

from penstock.errors import StreamFailed, StreamRefused
from penstock.lake.iceberg_types import spell_type
from penstock.lake.metadata_types import Unreadable, parse_type
from penstock.links import arrow_types

_FIELD_ID = b"PARQUET:field_id"
#: names that a file without field ids may use for each field id
Names = Mapping[int, frozenset[str]]


@lru_cache(maxsize=1024)
def arrow_type(type_: IcebergType) -> pa.DataType:
    """The Arrow type of a column in batches; StreamRefused for a type without an exact form."""
    try:
        return arrow_types.arrow_type(parse_type(spell_type(type_)))
    except Unreadable as unreadable:
        raise StreamRefused(str(unreadable), next_step="list the other columns in `columns`") from None


def parse_name_mapping(mapping: str | None) -> Names | None:
    """The table property `schema.name-mapping.default`, flat; None: there is none."""

    def flat(entries: Iterable[Mapping[str, Any]]) -> Iterable[tuple[int, frozenset[str]]]:
        for entry in entries:
            if "field-id" in entry:
                yield entry["field-id"], frozenset(entry["names"])
            yield from flat(entry.get("fields", ()))

    return None if mapping is None else dict(flat(json.loads(mapping)))


def field_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)


def find_column(wanted: NestedField, among: Sequence[pa.Field], names: Names | None) -> int | None:
    """Where in a file's schema, or in a struct of it, a field of the table is; None: the file does not have it.

    By field id; where the file has none, by the table's name mapping, or else by name.
    """
    ids = [field_id(field) for field in among]
    if any(id_ is not None for id_ in ids):
        return ids.index(wanted.field_id) if wanted.field_id in ids else None
    called = frozenset({wanted.name}) if names is None else names.get(wanted.field_id, frozenset())
    return next((index for index, field in enumerate(among) if field.name in called), None)


@dataclass(frozen=True)
class Projection:
    """How one file's batches become the table's current columns."""

    fields: tuple[NestedField, ...]
    #: for each field its column in the file; None: the file does not have it
    columns: tuple[str | None, ...]
    names: Names | None
    constants: Mapping[int, str]
    path: str

    @classmethod
    def onto(
        cls,
        fields: Sequence[NestedField],
        file: pa.Schema,
        *,
        names: Names | None,
        constants: Iterable[tuple[int, str]],
        path: str,
    ) -> Projection:
        at = [find_column(field, list(file), names) for field in fields]
        columns = tuple(None if index is None else file.field(index).name for index in at)
        return cls(tuple(fields), columns, names, dict(constants), path)

    @property
    def read(self) -> list[str]:
        """The file's columns that are needed."""
        return [column for column in self.columns if column is not None]

    def applied(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            self._missing(field, batch.num_rows) if column is None else self._converted(field, batch.column(column))
            for field, column in zip(self.fields, self.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in self.fields])

    def _converted(self, field: NestedField, array: pa.Array) -> pa.Array:
        try:
            return convert(array, field.field_type, self.names)
        except pa.ArrowException as error:
            raise StreamFailed(
                f"{field.name} in {self.path} is {array.type}, which does not fit the table's {field.field_type}",
                next_step="compact the table with its writer, or list the other columns in `columns`",
            ) from error

    def _missing(self, field: NestedField, rows: int) -> pa.Array:
        """A partition's value, the field's default, or NULL."""
        if (text := self.constants.get(field.field_id)) is not None and isinstance(field.field_type, PrimitiveType):
            return repeat_value(from_json(field.field_type, json.loads(text)), field.field_type, rows)
        if field.required and field.initial_default is None:
            raise StreamFailed(
                f"{self.path} does not have column {field.name}, which the table requires",
                next_step="compact the table with its writer, or make the column optional",
            )
        return repeat_value(field.initial_default, field.field_type, rows)


def repeat_value(value: Any, type_: IcebergType, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, arrow_type(type_))
    return pa.repeat(pa.scalar(str(value) if isinstance(type_, UUIDType) else value, arrow_type(type_)), rows)


def convert(array: pa.Array, type_: IcebergType, names: Names | None) -> pa.Array:
    """Convert an array of a file to the table's current type; ArrowInvalid if a value would be lost."""
    wanted = arrow_type(type_)
    if isinstance(type_, UUIDType):
        return _uuid_text(array)
    if isinstance(type_, StructType):
        return _struct(array, type_, names)
    if isinstance(type_, ListType):
        array = array.cast(pa.list_(array.type.value_field)) if not isinstance(array, pa.ListArray) else array
        offsets, start, count = _rebased(array)
        values = convert(array.values.slice(start, count), type_.element_type, names)
        return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=array.is_null())
    if isinstance(type_, MapType):
        offsets, start, count = _rebased(array)
        keys = convert(array.keys.slice(start, count), type_.key_type, names)
        items = convert(array.items.slice(start, count), type_.value_type, names)
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=array.is_null())
    if array.type == wanted:
        return array
    if pa.types.is_floating(array.type) and not (
        pa.types.is_floating(wanted) and array.type.bit_width <= wanted.bit_width
    ):
        raise pa.ArrowInvalid(f"{array.type} is wider than {wanted}")
    return array.cast(wanted)


def _struct(array: pa.Array, type_: StructType, names: Names | None) -> pa.Array:
    children = [array.type.field(index) for index in range(array.type.num_fields)]
    arrays = []
    for field in type_.fields:
        at = find_column(field, children, names)
        arrays.append(
            repeat_value(field.initial_default, field.field_type, len(array))
            if at is None
            else convert(array.field(at), field.field_type, names)
        )
    fields = list(arrow_type(type_))
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=array.is_null())


def _rebased(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Offsets of a list or map that begin at 0, and where its values begin and how many they are."""
    offsets = array.offsets.to_numpy()
    start = int(offsets[0])
    return pa.array(offsets - start, pa.int32()), start, int(offsets[-1]) - start


_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES = (8, 13, 18, 23)
_DIGITS = np.array([place for place in range(36) if place not in _DASHES])


def _uuid_text(array: pa.Array) -> pa.Array:
    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    if not pa.types.is_fixed_size_binary(plain.type):
        return plain.cast(pa.string())
    rows = len(plain)
    if plain.null_count == rows:
        return pa.nulls(rows, pa.string())
    raw = np.frombuffer(plain.buffers()[1], np.uint8)[plain.offset * 16 : (plain.offset + rows) * 16].reshape(rows, 16)
    text = np.full((rows, 36), ord("-"), np.uint8)
    text[:, _DIGITS] = _HEX[np.stack((raw >> 4, raw & 15), axis=-1).reshape(rows, 32)]
    offsets = np.arange(rows + 1, dtype=np.int32) * 36
    made = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))
    return pc.if_else(plain.is_valid(), made, pa.scalar(None, pa.string()))

"""Arrow batches as rows of JSON, by Arrow's own kernels: never row by row.

Exact or not at all: integers as numbers, decimals as strings, timestamps in ISO 8601, binary values in base64, JSON
columns as they are.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.types import FLOATS, INTEGERS, TIMESTAMPS, Decimal, Fixed, List, Map, Plain, Struct, Type
from penstock.errors import StreamFailed
from penstock.links.arrow_types import arrow_type, type_of
from penstock.shaping.misfits import escape_json
from penstock.sinks.http.options import Decimals, NonFinite
from penstock.sinks.http.template import Inner, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: literal JSON, and values between it
Row = Sequence[str | Value | Inner]
#: microseconds or nanoseconds since 1970 of the years 1 to 9999, by unit
_YEARS = {"us": (-62_135_596_800 * 10**6, 253_402_300_800 * 10**6)}
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
#: places of the hexadecimal digits of a UUID between its quotes
_UUID_PLACES = np.array([place for place in range(1, 37) if place not in (9, 14, 19, 24)])


@dataclass(frozen=True)
class Encoding:
    """How values that JSON has no form for are spelled."""

    #: decimals as strings, which every reader takes exactly, or as numbers
    decimals: Decimals = "string"
    #: NaN and infinity as strings, as NULL, or not at all
    non_finite: NonFinite = "string"


@dataclass(frozen=True)
class EncodedRows:
    """Rows of a batch, each with its end."""

    #: the rows, one after the other
    data: memoryview
    #: where each row begins in `data`, and where the last one ends
    offsets: NDArray[np.int64]
    #: values that became NULL
    nulled: int
    #: of each row, the values of the columns that paths or headers name
    named: list[dict[str, Any]] | None = None


def encode_rows(
    batch: pa.RecordBatch, encoding: Encoding, end: str, row: Row | None = None, named: Sequence[str] = ()
) -> EncodedRows:
    """Each row as a JSON object that `end` follows. StreamFailed if a value has no exact form.

    `row` is a template in place of an object of all columns; `named` are columns whose values are wanted beside it.
    """
    encoder = _Encoder(encoding)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    texts: dict[str, pa.Array] = {}

    def text_of(name: str) -> pa.Array:
        if name not in texts:
            if name not in columns:
                raise StreamFailed(
                    f"a template names column {name!r}, which the rows do not have",
                    next_step="correct `row`, `into` or `headers` of the stream",
                )
            texts[name] = encoder.column(name, columns[name])
        return texts[name]

    pieces: list[Any] = []
    for piece in _all_columns(columns) if row is None else row:
        match piece:
            case str():
                pieces.append(pa.scalar(piece))
            case Value():
                pieces.append(text_of(piece.column))
            case Inner():
                pieces.append(_inside(text_of(piece.column)))
    pieces.append(pa.scalar(end))
    if not any(isinstance(piece, pa.Array) for piece in pieces):
        pieces.append(pa.array([""] * batch.num_rows, pa.string()))
    rows = pc.binary_join_element_wise(*pieces, "")
    values = {name: map(json.loads, text_of(name).to_pylist()) for name in named}
    beside = [dict(zip(values, each, strict=True)) for each in zip(*values.values(), strict=True)] if named else None
    return EncodedRows(*_values(rows), encoder.nulled, beside)


def _all_columns(names: Iterable[str]) -> Row:
    """An object of all columns."""
    pieces: list[str | Value | Inner] = []
    for index, name in enumerate(names):
        pieces += [f"{',' if index else '{'}{json.dumps(name, ensure_ascii=False)}:", Value(name)]
    return (*pieces, "}" if pieces else "{}")


def _inside(texts: pa.Array) -> pa.Array:
    """Values inside a string of JSON: without their quotes; NULL is nothing."""
    bare = pc.utf8_slice_codeunits(texts, 1, -1)
    return pc.if_else(pc.equal(texts, "null"), "", pc.if_else(pc.starts_with(texts, '"'), bare, texts))


def _values(rows: pa.Array) -> tuple[memoryview, NDArray[np.int64]]:
    """The bytes of all strings, one after the other, and where each begins."""
    _, offsets, data = rows.buffers()
    width = np.int64 if pa.types.is_large_string(rows.type) else np.int32
    found = np.frombuffer(offsets, width)[rows.offset : rows.offset + len(rows) + 1].astype(np.int64)
    first, last = (int(found[0]), int(found[-1])) if len(rows) else (0, 0)
    raw = memoryview(data)[first:last] if data is not None else memoryview(b"")
    return raw, found - first


class _Encoder:
    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.nulled = 0
        self.name = ""

    def column(self, name: str, column: pa.Array) -> pa.Array:
        """The column's values as JSON."""
        self.name = name
        type_ = type_of(column.type)
        carried = arrow_type(type_)
        return self.text(column if column.type == carried else column.cast(carried), type_)

    def text(self, values: pa.Array, type_: Type) -> pa.Array:
        if type_ is Plain.NULL:
            return pa.nulls(len(values), pa.string()).fill_null("null")
        return pc.fill_null(self._text(values, type_), "null")

    def _text(self, values: pa.Array, type_: Type) -> pa.Array:
        match type_:
            case Decimal():
                text = values.cast(pa.string())
                return text if self.encoding.decimals == "number" else _quoted(text)
            case Fixed() | Plain.BINARY:
                return _base64(values)
            case List():
                return _join(values, self.text(_flat(values, values.values), type_.item), "[", "]")
            case Map():
                return self._map(values, type_)
            case Struct():
                return self._struct(values, type_)
            case Plain.JSON:
                return self._json(values.storage)
            case Plain.UUID:
                return _uuids(values.storage)
        if type_ is Plain.BOOL or type_ in INTEGERS:
            return values.cast(pa.string())
        if type_ in FLOATS:
            return self._floats(values)
        if type_ in TIMESTAMPS:
            return self._timestamps(values)
        text = values.cast(pa.string())
        return _quoted(escape_json(text) if type_ is Plain.STRING else text)

    def _floats(self, values: pa.Array) -> pa.Array:
        if pa.types.is_float16(values.type):
            values = values.cast(pa.float32())
        text = values.cast(pa.string())
        # As a whole number it would lose its sign.
        text = pc.if_else(pc.equal(text, "-0"), pa.scalar("-0.0"), text)
        finite = pc.is_finite(values)
        if pc.all(finite).as_py() is not False:
            return text
        policy = self.encoding.non_finite
        if policy == "fail":
            raise self._inexact("a value is NaN or infinite, which JSON has no number for", "`non_finite` of the sink")
        if policy == "null":
            self.nulled += pc.sum(pc.invert(finite)).as_py()
            return pc.if_else(finite, text, pa.scalar(None, pa.string()))
        names = pc.if_else(pc.is_nan(values), "NaN", pc.if_else(pc.greater(values, 0), "Infinity", "-Infinity"))
        return pc.if_else(finite, text, _quoted(names))

    def _timestamps(self, values: pa.Array) -> pa.Array:
        """2024-05-01T10:00:00.000000Z. A zoned column stores UTC; as a naive one it is formatted much faster."""
        kind = values.type
        counts = values.view(pa.int64())
        if kind.unit in _YEARS:
            bounds, (first, end) = pc.min_max(counts).as_py(), _YEARS[kind.unit]
            if bounds["min"] is not None and not first <= bounds["min"] <= bounds["max"] < end:
                raise self._inexact("a timestamp is not in the years 1 to 9999", "`filter` or `shape` of the stream")
        text = pc.binary_replace_slice(counts.view(pa.timestamp(kind.unit)).cast(pa.string()), 10, 11, "T")
        return pc.binary_join_element_wise('"', text, 'Z"' if kind.tz else '"', "")

    def _json(self, texts: pa.Array) -> pa.Array:
        """JSON as it is. Line ends between its values become spaces: a row is one line."""
        import msgspec

        for end in ("\n", "\r"):
            texts = pc.replace_substring(texts, end, " ")
        given = texts.drop_null()
        whole = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(given)], pa.int32()), given), ",")
        try:
            found = msgspec.json.decode(f"[{whole[0].as_py()}]".encode(), type=list[msgspec.Raw])
        except msgspec.DecodeError as error:
            raise self._inexact(f"a value is not JSON ({error})", "`shape` of the stream") from None
        if len(found) != len(given):
            raise self._inexact("a value is not one JSON value", "`shape` of the stream")
        return texts

    def _struct(self, values: pa.Array, type_: Struct) -> pa.Array:
        pieces: list[Any] = []
        for index, (name, inner) in enumerate(type_.fields):
            pieces.append(pa.scalar(f"{'{' if index == 0 else ','}{json.dumps(name, ensure_ascii=False)}:"))
            pieces.append(self.text(pc.struct_field(values, [index]), inner))
        if not pieces:
            return pc.if_else(values.is_valid(), pa.scalar("{}"), pa.scalar(None, pa.string()))
        text = pc.binary_join_element_wise(*pieces, pa.scalar("}"), "")
        return pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))

    def _map(self, values: pa.Array, type_: Map) -> pa.Array:
        """An object where the keys are strings, pairs otherwise."""
        keys = self.text(_flat(values, values.keys), type_.key)
        items = self.text(_flat(values, values.items), type_.value)
        if type_.key is Plain.STRING:
            return _join(values, pc.binary_join_element_wise(keys, items, ":"), "{", "}")
        pairs = pc.binary_join_element_wise("[", keys, ",", items, "]", "")
        return _join(values, pairs, "[", "]")

    def _inexact(self, what: str, remedy: str) -> StreamFailed:
        return StreamFailed(f"column {self.name!r}: {what}", next_step=f"change {remedy}, or leave the column out")


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _flat(lists: pa.Array, values: pa.Array) -> pa.Array:
    """The values of all lists of a slice."""
    first, last = (lists.offsets[place].as_py() for place in (0, -1))
    return values.slice(first, last - first)


def _join(lists: pa.Array, texts: pa.Array, before: str, after: str) -> pa.Array:
    """The texts of each list, separated by commas."""
    offsets = pc.subtract(lists.offsets, lists.offsets[0])
    mask = lists.is_null() if lists.null_count else None
    return pc.binary_join_element_wise(
        before, pc.binary_join(pa.ListArray.from_arrays(offsets, texts, mask=mask), ","), after, ""
    )


def _base64(values: pa.Array) -> pa.Array:
    # Arrow has no kernel for it; a list of one column is the shortest way.
    texts = [None if each is None else binascii.b2a_base64(each, newline=False) for each in values.to_pylist()]
    return _quoted(pa.array(texts, pa.binary()).cast(pa.string()))


def _uuids(values: pa.Array) -> pa.Array:
    count = len(values)
    raw = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * 16 : (values.offset + count) * 16]
    text = np.full((count, 38), ord("-"), np.uint8)
    text[:, 0] = text[:, 37] = ord('"')
    raw = raw.reshape(count, 16)
    text[:, _UUID_PLACES[0::2]] = _HEX[raw >> 4]
    text[:, _UUID_PLACES[1::2]] = _HEX[raw & 15]
    offsets = np.arange(0, 38 * (count + 1), 38, dtype=np.int32)
    texts = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string())) if values.null_count else texts

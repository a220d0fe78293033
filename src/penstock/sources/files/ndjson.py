"""NDJSON files, and files with one array of JSON objects. Arrow reads whole blocks of lines; a block that it cannot
read exactly is read value by value, which names the line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal as Exact
from decimal import InvalidOperation
from typing import TYPE_CHECKING, Any

from penstock.core.content import Column, Columns
from penstock.core.types import FLOATS, INTEGERS, Decimal, Plain, Type, is_nested
from penstock.links.json_values import converter, decoder_of, make_array
from penstock.links.pipe import nulled
from penstock.shaping.types import MAX_DECIMAL_DIGITS
from penstock.sources.files.conversion import BadValue, Fitter, Policy, carried
from penstock.sources.files.heads import Head, Piece, unreadable
from penstock.sources.files.places import File, Place
from penstock.sources.files.text import (
    BLOCK_BYTES,
    SAMPLE_BYTES,
    Compression,
    bad_row,
    cut_lines,
    estimate,
    lines_before,
    opened,
    sample,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: numbers that stand for times are seconds
_STEPS = 1
_BOM = b"\xef\xbb\xbf"


class _BadLine(Exception):
    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


@dataclass(frozen=True, slots=True)
class Ndjson:
    """See `heads.Format`."""

    compression: Compression
    policy: Policy
    #: the file is one array of objects
    array: bool = False
    #: whether fields that are no column are left out; otherwise they are an error
    ignores_others: bool = True

    def inspect(self, place: Place, file: File, stream: str) -> Head:
        import pyarrow as pa

        if not file.version.size:
            return Head(None, None, 0, 0, 1)
        try:
            text = sample(place, file, self.compression, stream)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(file, place, self._name, error, stream) from None
        return estimate(file, self.compression, text, None)

    @property
    def _name(self) -> str:
        return "json" if self.array else "ndjson"

    def guess(self, place: Place, file: File, stream: str) -> Columns:
        import pyarrow as pa
        from pyarrow import json as arrow_json

        try:
            if self.array:
                lines = next(self._arrays(place, file, stream), [])
                text = b"\n".join(line.replace(b"\n", b" ") for line in lines[:10_000])
            else:
                text = sample(place, file, self.compression, stream).removeprefix(_BOM)
                if len(text) >= SAMPLE_BYTES - len(_BOM):
                    text = text[: text.rfind(b"\n") + 1]
            if not text.strip():
                return ()
            options = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
            schema = arrow_json.read_json(pa.BufferReader(text), read_options=options).schema
        except (pa.ArrowException, OSError, ValueError) as error:
            raise unreadable(file, place, self._name, error, stream) from None
        return tuple(Column(each.name, _guessed(each.type)) for each in schema)

    def cut(self, place: Place, file: File, head: Head, most: int, stream: str) -> Sequence[Piece]:
        if not file.version.size:
            return []
        if self.array or self.compression.of(file):
            return [Piece(0, -1, head.bytes)]
        return cut_lines(place, file, head, most, stream)

    def read(
        self, place: Place, file: File, piece: tuple[int, int], columns: Columns, stream: str
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        done = 0
        rows = _Rows(columns, self.policy, self.ignores_others)
        where = "element" if self.array else "line"
        try:
            blocks = self._arrays(place, file, stream) if self.array else self._blocks(place, file, piece, stream)
            for block in blocks:
                try:
                    batch, lines = rows.read_lines(block) if isinstance(block, list) else rows.read_block(block)
                except _BadLine as bad:
                    line = lines_before(place, file, piece[0], stream) + done + bad.row + 1
                    raise bad_row(file, place, f"{where} {line:,}", str(bad), stream, can_be_null=True) from None
                done += lines
                yield batch
        except (pa.ArrowException, OSError) as error:
            at = f"after {where} {lines_before(place, file, piece[0], stream) + done:,}"
            raise bad_row(file, place, at, str(error).split("\n")[0], stream) from None

    def _blocks(self, place: Place, file: File, piece: tuple[int, int], stream: str) -> Iterator[bytes]:
        rest = b"" if piece[0] else None
        with opened(place, file, self.compression, stream, piece) as text:
            while block := bytes(text.read(BLOCK_BYTES)):
                block = block.removeprefix(_BOM) if rest is None else rest + block
                end = block.rfind(b"\n") + 1
                rest = block[end:]
                if end:
                    yield block[:end]
        if rest and rest.strip():
            yield rest

    def _arrays(self, place: Place, file: File, stream: str) -> Iterator[list[bytes]]:
        """The objects of an array, each as its own text. The whole file is in memory."""
        import msgspec

        with opened(place, file, self.compression, stream) as text:
            whole = bytes(text.read()).removeprefix(_BOM)
        if not whole.strip():
            return
        try:
            found = [bytes(each) for each in msgspec.json.decode(whole, type=list[msgspec.Raw])]
        except msgspec.MsgspecError as error:
            raise OSError(f"it is no array of objects ({error})") from None
        for first in range(0, len(found), 20_000):
            yield found[first : first + 20_000]


@dataclass
class _Rows:
    """Reads blocks of lines as batches of columns."""

    columns: Columns
    policy: Policy
    ignores_others: bool

    def __post_init__(self) -> None:
        import pyarrow as pa

        from penstock.links.arrow_types import arrow_schema, arrow_type

        self.schema = arrow_schema(self.columns)
        types = {column.name: _read_as(column.type) for column in self.columns}
        #: None: a column needs the text of its values
        self._wanted = (
            None
            if None in types.values()
            else pa.schema([(name, arrow_type(type_)) for name, type_ in types.items() if type_ is not None])
        )

    def read_block(self, block: bytes) -> tuple[pa.RecordBatch, int]:
        """A batch, and the lines that were read."""
        import pyarrow as pa

        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        if self._wanted is not None:
            try:
                return self._by_arrow(block), lines
            except (pa.ArrowException, BadValue):
                pass  # read value by value, which finds the one that does not fit, or takes it
        return self.read_lines(block.split(b"\n"))[0], lines

    def _by_arrow(self, block: bytes) -> pa.RecordBatch:
        import pyarrow as pa
        from pyarrow import json as arrow_json

        table = arrow_json.read_json(
            pa.BufferReader(block),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=self._wanted,
                unexpected_field_behavior="ignore" if self.ignores_others else "error",
            ),
        ).combine_chunks()
        fitter = Fitter("fail")
        arrays = []
        for column in self.columns:
            chunked = table.column(column.name)
            array = chunked.combine_chunks() if chunked.num_chunks != 1 else chunked.chunk(0)
            arrays.append(fitter.fit(column.name, array, column.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def read_lines(self, lines: Sequence[bytes]) -> tuple[pa.RecordBatch, int]:
        """The same, value by value."""
        import pyarrow as pa

        numbers = [at for at, line in enumerate(lines) if line.strip()]
        rows = [self._decode(lines[at], at) for at in numbers]
        arrays = [
            self._array([row.get(column.name) for row in rows], column, field, numbers)
            for column, field in zip(self.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), len(lines)

    def _decode(self, line: bytes, at: int) -> dict[str, Any]:
        import msgspec

        names = tuple(column.name for column in self.columns)
        texts = frozenset(column.name for column in self.columns if column.type is Plain.JSON)
        exact = any(isinstance(column.type, Decimal) for column in self.columns)
        found: Any
        try:
            found = decoder_of(names if self.ignores_others else None, exact=exact).decode(line)
            if texts and isinstance(found, dict):
                found |= decoder_of(tuple(texts), exact=exact, texts=texts).decode(line)
        except msgspec.MsgspecError:
            try:
                # Python's own decoder takes more: NaN, half of a surrogate pair, numbers beyond a float.
                found = json.loads(line, parse_float=Exact if exact else None)
            except ValueError as error:
                raise _BadLine(at, f"it is no JSON object ({error}): {line[:80].decode(errors='replace')}") from None
        if not isinstance(found, dict):
            raise _BadLine(at, f"it is no JSON object: {line[:80].decode(errors='replace')}")
        others = [] if self.ignores_others else [name for name in found if name not in names]
        if others:
            raise _BadLine(at, f"it has the field {others[0]!r}, which the first file did not have; declare `columns`")
        return found

    def _array(self, values: list[Any], column: Column, field: pa.Field, numbers: Sequence[int]) -> pa.Array:
        import pyarrow as pa

        storage = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        made = make_array(values, column.type, storage, _STEPS) if column.type is not Plain.TIME else None
        if made is None:
            made = pa.array(self._convert(values, column, numbers), storage)
        return carried(made, column.type)

    def _convert(self, values: list[Any], column: Column, numbers: Sequence[int]) -> list[Any]:
        import pyarrow as pa

        convert = _time if column.type is Plain.TIME else converter(column.type, _STEPS)
        storage = self.schema.field(column.name).type
        storage = storage.storage_type if isinstance(storage, pa.BaseExtensionType) else storage
        unfit = (ValueError, TypeError, ArithmeticError, InvalidOperation, pa.ArrowException)
        found: list[Any] = []
        try:
            found = [None if value is None else convert(value) for value in values]
            pa.array(found, storage)
            return found
        except unfit:
            found = []
        for at, value in enumerate(values):
            try:
                made = None if value is None else convert(value)
                pa.array([made], storage)
            except unfit:
                if self.policy == "fail":
                    shown = json.dumps(value, default=str)[:80]
                    why = f"{shown} has no exact form as {column.type} (column {column.name})"
                    raise _BadLine(numbers[at], why) from None
                nulled(1)
                made = None
            found.append(made)
        return found


def _time(value: Any) -> Any:
    from datetime import time

    if not isinstance(value, str):
        raise ValueError(value)
    found = time.fromisoformat(value)
    if found.tzinfo is not None:
        raise ValueError(value)
    return found


def _read_as(type_: Type) -> Type | None:
    """The type in which Arrow reads values that are then converted exactly; None: it cannot."""
    if type_ in INTEGERS or type_ in FLOATS or type_ in (Plain.BOOL, Plain.STRING):
        return type_
    if type_ in (Plain.DATE, Plain.TIME, Plain.TIMESTAMP, Plain.TIMESTAMPTZ):
        return Plain.STRING
    if isinstance(type_, Decimal) and type_.precision <= MAX_DECIMAL_DIGITS and 0 <= type_.scale <= type_.precision:
        return type_
    return None


def _guessed(arrow: pa.DataType) -> Type:
    """A type that holds every such value: JSON for objects and lists, a string for times."""
    from penstock.links.arrow_types import type_of

    type_ = type_of(arrow)
    if is_nested(type_):
        return Plain.JSON
    return type_ if type_ in (Plain.BOOL, Plain.INT64, Plain.FLOAT64) else Plain.STRING

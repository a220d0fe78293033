"""Arrow types from their printed form: content documents name types as pyarrow prints them.

pyarrow prints types and does not read them back, so this is a small recursive reader. A struct's field names are
printed without quotes: one that contains `: `, or begins with `>`, cannot be told from the print around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

_PLAIN: dict[str, pa.DataType] = {
    str(type_): type_
    for type_ in (
        *(pa.null(), pa.bool_(), pa.float16(), pa.float32(), pa.float64()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
        *(pa.month_day_nano_interval(), pa.uuid(), pa.json_()),
    )
}
_WORD = re.compile(r"extension<[\w.]+>|[a-z_0-9]+(\[[^\]]*\])?")
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=([^\]]+))?\]")
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)")
_FIXED = re.compile(r"fixed_size_binary\[(\d+)\]")
_LENGTH = re.compile(r"\[(\d+)\]")
_NOT_NULL = " not null"
_DECIMALS: dict[str, Callable[[int, int], pa.DataType]] = {
    "32": pa.decimal32,
    "64": pa.decimal64,
    "128": pa.decimal128,
    "256": pa.decimal256,
}
_LISTS: dict[str, Callable[[pa.Field], pa.DataType]] = {
    "list<": pa.list_,
    "large_list<": pa.large_list,
    "list_view<": pa.list_view,
    "large_list_view<": pa.large_list_view,
}


def arrow_type(text: str) -> pa.DataType:
    """The type that pyarrow prints as `text`; ValueError if there is none."""
    reader = _Text(text)
    type_ = reader.type()
    if reader.at != len(text):
        raise ValueError(f"{text!r} is no Arrow type: {text[reader.at :]!r} is left over")
    return type_


class _Text:
    """A printed type that is read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def type(self) -> pa.DataType:
        for opening, make in _LISTS.items():
            if self.takes(opening):
                field = self.field()
                self.expect(">")
                return make(field)
        if self.takes("fixed_size_list<"):
            field = self.field()
            self.expect(">")
            return pa.list_(field, int(self.match(_LENGTH)[1]))
        if self.takes("struct<"):
            return self.struct()
        if self.takes("map<"):
            return self.map()
        if self.takes("dictionary<values="):
            return self.dictionary()
        return self.primitive()

    def struct(self) -> pa.DataType:
        if self.takes(">"):
            return pa.struct([])
        fields = [self.field()]
        while not self.takes(">"):
            self.expect(", ")
            fields.append(self.field())
        return pa.struct(fields)

    def map(self) -> pa.DataType:
        key = self.type()
        self.expect(", ")
        value = self.type()
        name = self.match(re.compile(r"[^']*"))[0] if self.takes(" ('") else None
        if name is not None:
            self.expect("')")
        ordered = self.takes(", keys_sorted")
        self.expect(">")
        return pa.map_(key, pa.field(name, value) if name is not None else value, keys_sorted=ordered)

    def dictionary(self) -> pa.DataType:
        values = self.type()
        self.expect(", indices=")
        indices = self.type()
        ordered = not self.takes(", ordered=0")
        if ordered:
            self.expect(", ordered=1")
        self.expect(">")
        return pa.dictionary(indices, values, ordered=ordered)

    def field(self) -> pa.Field:
        end = self.text.find(": ", self.at)
        if end < 0:
            raise ValueError(f"{self.text!r} is no Arrow type: expected `name: type` at {self.text[self.at :]!r}")
        name = self.text[self.at : end]
        self.at = end + 2
        return pa.field(name, self.type(), nullable=not self.takes(_NOT_NULL))

    def primitive(self) -> pa.DataType:
        decimal = _DECIMAL.match(self.text, self.at)
        if decimal:
            self.at = decimal.end()
            return _DECIMALS[decimal[1]](int(decimal[2]), int(decimal[3]))
        word = self.match(_WORD)[0]
        timestamp = _TIMESTAMP.fullmatch(word)
        if timestamp:
            return pa.timestamp(timestamp[1], timestamp[2])
        fixed = _FIXED.fullmatch(word)
        if fixed:
            return pa.binary(int(fixed[1]))
        if word not in _PLAIN:
            raise ValueError(f"{word!r} is no Arrow type that can be read here")
        return _PLAIN[word]

    def takes(self, token: str) -> bool:
        found = self.text.startswith(token, self.at)
        self.at += len(token) if found else 0
        return found

    def expect(self, token: str) -> None:
        if not self.takes(token):
            raise ValueError(f"{self.text!r} is no Arrow type: expected {token!r} at {self.text[self.at :]!r}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self.text, self.at)
        if not found:
            raise ValueError(f"{self.text!r} is no Arrow type: nothing to read at {self.text[self.at :]!r}")
        self.at = found.end()
        return found

"""The types of columns: a closed vocabulary, each type with one string form. Pure.

Every edge (Arrow, Postgres, Iceberg, text files) maps its own types to these, in one module of its own.

    null bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64
    decimal(p,s) string json uuid binary fixed(n)
    date time timestamp timestamptz            (microseconds)
    time_ns timestamp_ns timestamptz_ns        (nanoseconds)
    list<item> map<key, value> struct<name: type, "odd name": type>

A timestamptz is an instant; its zone is not kept. Every value may be NULL, inside nested types too.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass


class Plain(enum.Enum):
    """A type without parameters."""

    NULL = "null"
    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    STRING = "string"
    JSON = "json"
    UUID = "uuid"
    BINARY = "binary"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    TIME_NS = "time_ns"
    TIMESTAMP_NS = "timestamp_ns"
    TIMESTAMPTZ_NS = "timestamptz_ns"

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Decimal:
    """An exact number. The scale may be negative, or above the precision."""

    #: digits in all
    precision: int
    #: digits after the decimal point
    scale: int

    @property
    def whole(self) -> int:
        """Digits before the decimal point."""
        return self.precision - self.scale

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Fixed:
    """Binary values of one length."""

    #: in bytes
    length: int

    def __str__(self) -> str:
        return f"fixed({self.length})"


@dataclass(frozen=True, slots=True)
class List:
    """A list of values of one type."""

    item: Type

    def __str__(self) -> str:
        return f"list<{self.item}>"


@dataclass(frozen=True, slots=True)
class Map:
    """Values of one type by keys of another."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class Struct:
    """Named values, each of its own type."""

    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        inner = ", ".join(f"{_quoted(name)}: {type_}" for name, type_ in self.fields)
        return f"struct<{inner}>"


Type = Plain | Decimal | Fixed | List | Map | Struct

INTEGERS = (
    *(Plain.INT8, Plain.INT16, Plain.INT32, Plain.INT64),
    *(Plain.UINT8, Plain.UINT16, Plain.UINT32, Plain.UINT64),
)
FLOATS = (Plain.FLOAT16, Plain.FLOAT32, Plain.FLOAT64)
TIMESTAMPS = (Plain.TIMESTAMP, Plain.TIMESTAMPTZ, Plain.TIMESTAMP_NS, Plain.TIMESTAMPTZ_NS)

_PLAIN = {str(type_): type_ for type_ in Plain}
_TOKEN = re.compile(r'decimal\(\d+,-?\d+\)|fixed\(\d+\)|\w+|"(?:[^"\\]|\\.)*"|[<>:,]')
_PARAMETERS = re.compile(r"(decimal|fixed)\((\d+)(?:,(-?\d+))?\)")
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_type(text: str) -> Type:
    """The type whose string form is `text`; ValueError if there is none."""
    tokens = _Tokens(text)
    found = tokens.type()
    # Only the one form is read: two strings of one type would be two contents.
    if str(found) != text:
        raise ValueError(f"{text!r} is not a type; did you mean {str(found)!r}?")
    return found


def is_nested(type_: Type) -> bool:
    return isinstance(type_, List | Map | Struct)


def _quoted(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


class _Tokens:
    """A string form, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.rest: Iterator[str] = (found[0] for found in _TOKEN.finditer(text))
        self.ahead = next(self.rest, "")

    def take(self, wanted: str = "") -> str:
        token = self.ahead
        if not token or (wanted and token != wanted):
            raise ValueError(f"{self.text!r} is not a type: expected {wanted or 'a type'!r}, got {token!r}")
        self.ahead = next(self.rest, "")
        return token

    def type(self) -> Type:
        token = self.take()
        if self.ahead != "<":
            return self.single(token)
        self.take("<")
        found: Type
        if token == "list":
            found = List(self.type())
        elif token == "map":
            key = self.type()
            self.take(",")
            found = Map(key, self.type())
        elif token == "struct":
            found = Struct(tuple(self.fields()))
        else:
            raise ValueError(f"{self.text!r} is not a type: {token!r} takes no types")
        self.take(">")
        return found

    def single(self, token: str) -> Type:
        parameters = _PARAMETERS.fullmatch(token)
        if parameters:
            first = int(parameters[2])
            return Decimal(first, int(parameters[3])) if parameters[1] == "decimal" else Fixed(first)
        if token not in _PLAIN:
            raise ValueError(f"{self.text!r} is not a type: there is no {token!r}")
        return _PLAIN[token]

    def fields(self) -> Iterator[tuple[str, Type]]:
        while self.ahead != ">":
            name = self.take()
            self.take(":")
            yield self.unquoted(name), self.type()
            if self.ahead != ">":
                self.take(",")

    def unquoted(self, name: str) -> str:
        if not name.startswith('"'):
            return name
        try:
            return str(json.loads(name))
        except json.JSONDecodeError as error:
            raise ValueError(f"{self.text!r} is not a type: {name} is no name") from error

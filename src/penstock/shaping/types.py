"""What a column may be cast to, by the names that `cast` has for types, and from what. Does not import pyarrow."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.core.names import nearest
from penstock.core.types import FLOATS, INTEGERS, TIMESTAMPS, Decimal, Fixed, Plain, Type

#: the names that `cast` has for types
PLAIN: Mapping[str, Type] = {
    "bool": Plain.BOOL,
    "int16": Plain.INT16,
    "int32": Plain.INT32,
    "int64": Plain.INT64,
    "float": Plain.FLOAT32,
    "double": Plain.FLOAT64,
    "text": Plain.STRING,
    "binary": Plain.BINARY,
    "date": Plain.DATE,
    "timestamp": Plain.TIMESTAMP,
    "timestamptz": Plain.TIMESTAMPTZ,
}
DECIMAL = "decimal(p,s)"
TYPES = (*PLAIN, DECIMAL)
#: digits that a decimal of 128 bits holds
MOST_DIGITS = 38

_INTEGERS = ("int16", "int32", "int64")
_NUMBERS = (*_INTEGERS, "float", "double", DECIMAL)
_TIMES = ("date", "timestamp", "timestamptz")
#: what a column of a family can be cast to: to a type that can hold its values exactly, or some of them
CASTS: dict[str, tuple[str, ...]] = {
    "text": TYPES,
    "integer": ("bool", *_NUMBERS, "text"),
    "float": (*_NUMBERS, "text"),
    "decimal": (*_NUMBERS, "text"),
    "bool": ("bool", *_INTEGERS, "text"),
    "date": (*_TIMES, "text"),
    "timestamp": (*_TIMES, "text"),
    "time": ("text",),
    "binary": ("binary",),
    "nothing": TYPES,
}

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")
_FAMILIES: Mapping[Type, str] = {
    Plain.NULL: "nothing",
    Plain.BOOL: "bool",
    **dict.fromkeys(INTEGERS, "integer"),
    **dict.fromkeys(FLOATS, "float"),
    **dict.fromkeys((Plain.STRING, Plain.JSON), "text"),
    Plain.BINARY: "binary",
    Plain.DATE: "date",
    **dict.fromkeys((Plain.TIME, Plain.TIME_NS), "time"),
    **dict.fromkeys(TIMESTAMPS, "timestamp"),
}
#: what other systems call the same thing
_ALSO = {
    "text": ("string", "str", "varchar", "char", "utf8"),
    "bool": ("boolean",),
    "int16": ("smallint", "int2", "short"),
    "int32": ("int", "integer", "int4"),
    "int64": ("bigint", "int8", "long"),
    "float": ("real", "float4", "float32"),
    "double": ("float8", "float64", "double precision"),
    "binary": ("bytes", "bytea", "blob"),
    "timestamp": ("datetime", "timestamp without time zone"),
    "timestamptz": ("timestamp with time zone",),
    "decimal(p,s), such as decimal(12,2)": ("decimal", "numeric", "number", "money"),
}


def plain_type(text: str) -> str:
    """A type in its one spelling; ValueError, with the nearest name or all of them, if there is no such type."""
    if text in PLAIN:
        return text
    found = _DECIMAL.fullmatch(text)
    if found is None:
        raise ValueError(f"there is no type {text!r}; {_meant(text)}")
    precision, scale = int(found[1]), int(found[2])
    if not 1 <= precision <= MOST_DIGITS or scale > precision:
        raise ValueError(f"{text} cannot be: a decimal has 1 to {MOST_DIGITS} digits, of which some are behind the dot")
    return f"decimal({precision},{scale})"


def type_of(name: str) -> Type:
    """The type that `cast` has a name for."""
    found = _DECIMAL.fullmatch(name)
    return Decimal(int(found[1]), int(found[2])) if found else PLAIN[name]


def family(type_: Type) -> str | None:
    """What kind of values a type has; None: lists, uuids and others that have no text here."""
    if isinstance(type_, Decimal):
        return "decimal"
    return "binary" if isinstance(type_, Fixed) else _FAMILIES.get(type_)


def castable(given: Type, name: str) -> bool:
    """Whether values of a type can be cast to the one of that name at all."""
    wanted = DECIMAL if isinstance(type_of(name), Decimal) else name
    return wanted in CASTS.get(family(given) or "", ())


def tells_apart(given: Type, name: str) -> bool:
    """Whether two values that differ still differ once they are cast: a text may spell one number in two ways."""
    return family(given) not in ("text", None) or name in ("text", "binary")


def _meant(text: str) -> str:
    lower = text.strip().lower()
    for name, others in _ALSO.items():
        if lower in others or (lower.partition("(")[0] in others and "decimal" in name):
            return f"did you mean {name}?"
    near = nearest(lower, PLAIN)
    return f"did you mean {near}?" if near else f"there are {', '.join(TYPES)}"

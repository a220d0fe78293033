"""The types of `cast`: their names, and which types can be cast to which. Does not import pyarrow."""

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
MAX_DECIMAL_DIGITS = 38

_INTEGERS = ("int16", "int32", "int64")
_NUMBERS = (*_INTEGERS, "float", "double", DECIMAL)
_TIMES = ("date", "timestamp", "timestamptz")
#: the types that a family can be cast to: those that hold all or some of its values exactly
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
#: names of the same types in other systems
_SYNONYMS = {
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


def normalize_type(text: str) -> str:
    """Normalize the name of a type; ValueError, with the nearest name or all of them, if there is no such type."""
    if text in PLAIN:
        return text
    found = _DECIMAL.fullmatch(text)
    if found is None:
        raise ValueError(f"there is no type {text!r}; {_suggest(text)}")
    precision, scale = int(found[1]), int(found[2])
    if not 1 <= precision <= MAX_DECIMAL_DIGITS or scale > precision:
        raise ValueError(f"{text} is invalid: a decimal has 1 to {MAX_DECIMAL_DIGITS} digits in total")
    return f"decimal({precision},{scale})"


def type_of(name: str) -> Type:
    """The type of a name."""
    found = _DECIMAL.fullmatch(name)
    return Decimal(int(found[1]), int(found[2])) if found else PLAIN[name]


def family(type_: Type) -> str | None:
    """The family of a type; None: lists, uuids and others without a text form."""
    if isinstance(type_, Decimal):
        return "decimal"
    return "binary" if isinstance(type_, Fixed) else _FAMILIES.get(type_)


def is_castable(given: Type, name: str) -> bool:
    """Whether values of a type can be cast to the type of that name."""
    wanted = DECIMAL if isinstance(type_of(name), Decimal) else name
    return wanted in CASTS.get(family(given) or "", ())


def keeps_values_distinct(given: Type, name: str) -> bool:
    """Whether different values stay different after a cast; two strings may stand for one number."""
    return family(given) not in ("text", None) or name in ("text", "binary")


def _suggest(text: str) -> str:
    lower = text.strip().lower()
    for name, others in _SYNONYMS.items():
        if lower in others or (lower.partition("(")[0] in others and "decimal" in name):
            return f"did you mean {name}?"
    near = nearest(lower, PLAIN)
    return f"did you mean {near}?" if near else f"there are {', '.join(TYPES)}"

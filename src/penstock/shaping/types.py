"""Types by plain names: what a column may be cast to, and from what. Knows no pyarrow: planning need not load it."""

from __future__ import annotations

import re

from penstock.core.names import nearest

#: the types of `cast`, and Arrow's as pyarrow prints them
PLAIN = {
    "bool": "bool",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float": "float",
    "double": "double",
    "text": "string",
    "binary": "binary",
    "date": "date32[day]",
    "timestamp": "timestamp[us]",
    "timestamptz": "timestamp[us, tz=UTC]",
}
DECIMAL = "decimal(p,s)"
TYPES = (*PLAIN, DECIMAL)
#: digits that an Arrow decimal of 128 bits holds
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
_FAMILIES = {
    "nothing": re.compile(r"null"),
    "bool": re.compile(r"bool"),
    "integer": re.compile(r"u?int(8|16|32|64)"),
    "float": re.compile(r"halffloat|float|double"),
    "decimal": re.compile(r"decimal(32|64|128|256)\(.*"),
    "text": re.compile(r"(large_)?string|string_view|extension<arrow\.json>"),
    "binary": re.compile(r"(large_)?binary|binary_view|fixed_size_binary\[\d+\]"),
    "date": re.compile(r"date(32|64)\[.*"),
    "time": re.compile(r"time(32|64)\[.*"),
    "timestamp": re.compile(r"timestamp\[.*"),
}
_DICTIONARY = re.compile(r"dictionary<values=(.*), indices=.*")
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


def arrow_name(type_: str) -> str:
    """The Arrow type of a plain one, as pyarrow prints it."""
    digits = digits_of(type_)
    return f"decimal128({digits[0]}, {digits[1]})" if digits else PLAIN[type_]


def digits_of(type_: str) -> tuple[int, int] | None:
    """A decimal's digits, and those of them that are behind the dot; None: it is no decimal."""
    found = _DECIMAL.fullmatch(type_)
    return (int(found[1]), int(found[2])) if found else None


def family(arrow: str) -> str | None:
    """What kind of values an Arrow type has, by its print; None: lists, intervals and others that have no text here."""
    inner = _DICTIONARY.fullmatch(arrow)
    name = inner[1] if inner else arrow
    return next((family for family, pattern in _FAMILIES.items() if pattern.fullmatch(name)), None)


def castable(arrow: str, type_: str) -> bool:
    """Whether values of an Arrow type can be cast to a plain type at all."""
    wanted = DECIMAL if digits_of(type_) else type_
    return wanted in CASTS.get(family(arrow) or "", ())


def tells_apart(arrow: str, type_: str) -> bool:
    """Whether two values that differ still differ once they are cast: a text may spell one number in two ways."""
    return family(arrow) not in ("text", None) or type_ in ("text", "binary")


def _meant(text: str) -> str:
    lower = text.strip().lower()
    for name, others in _ALSO.items():
        if lower in others or (lower.partition("(")[0] in others and "decimal" in name):
            return f"did you mean {name}?"
    near = nearest(lower, PLAIN)
    return f"did you mean {near}?" if near else f"there are {', '.join(TYPES)}"

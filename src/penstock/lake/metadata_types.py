"""The vocabulary of `core` for Iceberg's types, as a table's metadata spells them. Imports neither PyIceberg nor Arrow.

The way back, from the vocabulary to Iceberg, is in `lake.iceberg_types`: it makes objects of PyIceberg. A uuid travels
as its text, a `fixed` as plain bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.core.types import Decimal, List, Map, Plain, Struct, Type

_PLAIN: Mapping[str, Plain] = {
    "boolean": Plain.BOOL,
    "int": Plain.INT32,
    "long": Plain.INT64,
    "float": Plain.FLOAT32,
    "double": Plain.FLOAT64,
    "date": Plain.DATE,
    "time": Plain.TIME,
    "timestamp": Plain.TIMESTAMP,
    "timestamptz": Plain.TIMESTAMPTZ,
    "string": Plain.STRING,
    "uuid": Plain.STRING,
    "binary": Plain.BINARY,
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_FIXED = re.compile(r"fixed\[\d+\]")


class Unreadable(ValueError):
    """An Iceberg type that has no exact form in the vocabulary."""


def parse_type(iceberg: Any) -> Type:
    """The type of an Iceberg type, which is a name or a document; Unreadable if there is none."""
    if isinstance(iceberg, str):
        return _primitive(iceberg)
    if iceberg["type"] == "list":
        return List(parse_type(iceberg["element"]))
    if iceberg["type"] == "map":
        return Map(parse_type(iceberg["key"]), parse_type(iceberg["value"]))
    return Struct(tuple((field["name"], parse_type(field["type"])) for field in iceberg["fields"]))


def _primitive(name: str) -> Type:
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return Decimal(int(decimal[1]), int(decimal[2]))
    if _FIXED.fullmatch(name):
        return Plain.BINARY
    if name not in _PLAIN:
        raise Unreadable(f"columns of type {name} cannot be read from the lake")
    return _PLAIN[name]


def format_type(iceberg: Any) -> str:
    """An Iceberg type in one line."""
    if isinstance(iceberg, str):
        return iceberg
    if iceberg["type"] == "list":
        return f"list<{format_type(iceberg['element'])}>"
    if iceberg["type"] == "map":
        return f"map<{format_type(iceberg['key'])}, {format_type(iceberg['value'])}>"
    inner = ", ".join(f"{field['name']}: {format_type(field['type'])}" for field in iceberg["fields"])
    return f"struct<{inner}>"

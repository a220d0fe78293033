"""Splits off values that do not fit the sink's column: a JSON object of strings for each row that has any.

Uses Arrow's kernels on whole columns. Only bytes and nested values are converted one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.widening import widens
from penstock.links.arrow_types import type_of
from penstock.shaping.text_form import to_text

#: characters that JSON escapes; the other control characters follow
_ESCAPES = [("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")]
_CONTROLS = [(chr(code), f"\\u{code:04x}") for code in range(32) if chr(code) not in "\n\r\t"]

_CONTROL_BYTES = "".join(raw for raw, _ in _CONTROLS).encode()


def split_misfits(array: pa.Array, narrow: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Return the column in the narrower type, NULL where a value does not fit exactly, and the values that do not fit.

    No value fits if neither type is wider than the other, even if a cast would accept some.
    """
    if not widens(type_of(narrow), type_of(array.type)) or pa.types.is_null(narrow):
        return pa.nulls(len(array), narrow), array
    fits = _fits(array, narrow)
    nothing = pa.scalar(None, array.type)
    return pc.if_else(fits, array, nothing).cast(narrow, safe=False), pc.if_else(fits, nothing, array)


def _fits(array: pa.Array, narrow: pa.DataType) -> pa.Array:
    """Whether each value survives a cast there and back; NULL fits."""
    back = array.cast(narrow, safe=False).cast(array.type, safe=False)
    same = pc.equal(back, array)
    if pa.types.is_decimal(narrow):
        # Arrow's cast to a smaller precision keeps all digits.
        greatest = Decimal((0, (9,) * narrow.precision, -narrow.scale))
        same = pc.and_(same, pc.less_equal(pc.abs(array), pa.scalar(greatest, array.type)))
    if pa.types.is_floating(narrow):
        same = pc.or_(same, pc.is_nan(array))
    return pc.fill_null(same, True)


def json_objects(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """One JSON object for each row with its values as strings, without NULLs; NULL for a row without values."""
    members = []
    for name, column in columns.items():
        key = json.dumps(name, ensure_ascii=False)
        value = escape_json(_strings(column))
        member = pc.binary_join_element_wise(pa.scalar(f',{key}:"'), value, pa.scalar('"'), "")
        members.append(pc.fill_null(member, ""))
    if not members:
        return pa.nulls(rows, pa.string())
    inner = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*members, ""), 1)
    whole = pc.binary_join_element_wise(pa.scalar("{"), inner, pa.scalar("}"), "")
    return pc.if_else(pc.equal(inner, ""), pa.scalar(None, pa.string()), whole)


def _strings(column: pa.Array) -> pa.Array:
    """A column as `cast … text` converts it; bytes in hex, nested values as JSON."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_nested(kind):
        return pa.array([None if value is None else _json(value) for value in column.to_pylist()], pa.string())
    return to_text(column).cast(pa.string())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_json_default)


def _json_default(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def escape_json(values: pa.Array) -> pa.Array:
    """Strings as JSON has them between quotes."""
    # Most columns have few of these characters; to look for one costs a tenth of replacing it.
    given = _bytes_of(values)
    for raw, escaped in _ESCAPES:
        if raw.encode() in given:
            values = pc.replace_substring(values, raw, escaped)
    if len(given.translate(None, _CONTROL_BYTES)) < len(given):
        for raw, escaped in _CONTROLS:
            values = pc.replace_substring(values, raw, escaped)
    return values


def _bytes_of(values: pa.Array) -> bytes:
    """The bytes of all strings, and perhaps of others in the same buffer."""
    data = values.buffers()[2]
    return bytes(data) if data is not None else b""

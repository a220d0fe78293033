"""The canonical text form of columns, by Arrow's own kernels: `cast … text` delivers it and `hash` hashes it.

Decimals have plain digits up to their scale, never `1E-8`. Timestamps are ISO 8601, with a zone in UTC and `Z`, as the
files sink writes them. A float is the shortest string that reads back as the same float.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def decode(array: pa.Array) -> pa.Array:
    """A column without dictionary encoding and extension type."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def to_text(array: pa.Array) -> pa.Array:
    """The values as strings; bytes and nested values have no text form."""
    array = decode(array)
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _to_iso(array)
    if pa.types.is_decimal(kind):
        return _to_digits(array)
    if pa.types.is_float16(kind):
        array = array.cast(pa.float32())
    if pa.types.is_date64(kind):
        array = array.cast(pa.date32())
    return array.cast(pa.string())


def without_zone(array: pa.Array) -> pa.Array:
    """Timestamps in UTC without a zone. Needs no time zone database, because Arrow stores UTC."""
    if array.type.tz is None:
        return array
    return array.view(pa.int64()).view(pa.timestamp(array.type.unit))


def _to_iso(array: pa.Array) -> pa.Array:
    """2024-05-01T10:00:00.000000Z."""
    strings = pc.replace_substring(without_zone(array).cast(pa.string()), " ", "T")
    return pc.binary_join_element_wise(strings, pa.scalar("Z"), "") if array.type.tz else strings


def _to_digits(array: pa.Array) -> pa.Array:
    if array.type.scale < 0:
        array = array.cast(pa.decimal256(76, 0))
    strings = array.cast(pa.string())
    scale = array.type.scale
    if scale <= 0 or not pc.any(pc.match_substring(strings, "E"), min_count=0).as_py():
        return strings
    # Arrow writes integers without an exponent; the point goes in by counting from the right.
    whole = _unscaled(array).cast(pa.string())
    sign = pc.if_else(pc.starts_with(whole, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(whole, "-"), scale + 1, "0")
    before, after = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(sign, before, pa.scalar("."), after, "")


def _unscaled(array: pa.Array) -> pa.Array:
    """A decimal's digits as an integer: the same bytes without the scale."""
    make = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}[array.type.bit_width]
    return pa.Array.from_buffers(
        make(array.type.precision, 0), len(array), array.buffers(), array.null_count, array.offset
    )

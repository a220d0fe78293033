"""Columns as text, by Arrow's own kernels, each value in one spelling: what `cast … text` delivers and `hash` hashes.

Decimals are plain digits with all of their scale, never `1E-8`. Times are ISO 8601, a time with a zone in UTC with `Z`,
as the files sink writes them. A float is the shortest text that reads back as the same float.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def plain(array: pa.Array) -> pa.Array:
    """A column without an encoding or an extension's name around its values."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def text(array: pa.Array) -> pa.Array:
    """The values as text; not for bytes and nested values, which have none."""
    array = plain(array)
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _iso(array)
    if pa.types.is_decimal(kind):
        return _digits(array)
    if pa.types.is_float16(kind):
        array = array.cast(pa.float32())
    if pa.types.is_date64(kind):
        array = array.cast(pa.date32())
    return array.cast(pa.string())


def without_zone(array: pa.Array) -> pa.Array:
    """The same moments as times in UTC that do not say so. No time zone data base is asked: Arrow keeps UTC inside."""
    if array.type.tz is None:
        return array
    return array.view(pa.int64()).view(pa.timestamp(array.type.unit))


def _iso(array: pa.Array) -> pa.Array:
    """2024-05-01T10:00:00.000000Z."""
    spelt = pc.replace_substring(without_zone(array).cast(pa.string()), " ", "T")
    return pc.binary_join_element_wise(spelt, pa.scalar("Z"), "") if array.type.tz else spelt


def _digits(array: pa.Array) -> pa.Array:
    if array.type.scale < 0:
        array = array.cast(pa.decimal256(76, 0))
    spelt = array.cast(pa.string())
    scale = array.type.scale
    if scale <= 0 or not pc.any(pc.match_substring(spelt, "E"), min_count=0).as_py():
        return spelt
    # As whole numbers, which Arrow never writes with an exponent; the dot is put in by counting from the right.
    whole = _unscaled(array).cast(pa.string())
    sign = pc.if_else(pc.starts_with(whole, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(whole, "-"), scale + 1, "0")
    before, after = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(sign, before, pa.scalar("."), after, "")


def _unscaled(array: pa.Array) -> pa.Array:
    """A decimal's digits as a whole number: the same bytes, read without their scale."""
    make = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}[array.type.bit_width]
    return pa.Array.from_buffers(
        make(array.type.precision, 0), len(array), array.buffers(), array.null_count, array.offset
    )

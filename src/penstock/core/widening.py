"""Which types hold every value of another one exactly."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.types import Decimal, Plain, Type

#: bits, whether they are signed, and the decimal digits of the greatest value
_INTEGERS: Mapping[Type, tuple[int, bool, int]] = {
    Plain.INT8: (8, True, 3),
    Plain.INT16: (16, True, 5),
    Plain.INT32: (32, True, 10),
    Plain.INT64: (64, True, 19),
    Plain.UINT8: (8, False, 3),
    Plain.UINT16: (16, False, 5),
    Plain.UINT32: (32, False, 10),
    Plain.UINT64: (64, False, 20),
}
#: bits of whole numbers that each holds without a gap
_FLOATS: Mapping[Type, int] = {Plain.FLOAT16: 11, Plain.FLOAT32: 24, Plain.FLOAT64: 53}


def widens(was: Type, now: Type) -> bool:
    """Whether `now` is another type than `was` and holds each of its values exactly.

    A strict table: a pair that is not in it is not lossless. No nested type widens another.
    """
    if was == now:
        return False
    if was is Plain.NULL:
        return True
    if was in _INTEGERS:
        return _integer_fits(was, now)
    if was in _FLOATS:
        return now in _FLOATS and _FLOATS[was] < _FLOATS[now]
    if isinstance(was, Decimal) and isinstance(now, Decimal):
        return was.whole <= now.whole and was.scale <= now.scale
    return False


def _integer_fits(was: Type, now: Type) -> bool:
    bits, signed, digits = _INTEGERS[was]
    if now in _INTEGERS:
        more, also_signed, _ = _INTEGERS[now]
        return bits < more and (also_signed or not signed)
    if now in _FLOATS:
        return bits - signed <= _FLOATS[now]
    return isinstance(now, Decimal) and now.scale >= 0 and now.whole >= digits

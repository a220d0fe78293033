"""Which Arrow types hold every value of another one exactly. Types are named as pyarrow prints them."""

from __future__ import annotations

import re

#: bits, whether they are signed, and the decimal digits of the greatest value
_INTEGERS = {
    "int8": (8, True, 3),
    "int16": (16, True, 5),
    "int32": (32, True, 10),
    "int64": (64, True, 19),
    "uint8": (8, False, 3),
    "uint16": (16, False, 5),
    "uint32": (32, False, 10),
    "uint64": (64, False, 20),
}
#: bits of whole numbers that each holds without a gap
_FLOATS = {"halffloat": 11, "float": 24, "double": 53}
#: the same values behind longer offsets
_LARGE = {("string", "large_string"), ("binary", "large_binary")}
_DECIMAL = re.compile(r"decimal(?:32|64|128|256)\((\d+), (-?\d+)\)")


def widens(was: str, now: str) -> bool:
    """Whether `now` is another type than `was` and holds each of its values exactly.

    A strict table: what is not in it is not taken for lossless, nested types neither.
    """
    if was == now:
        return False
    if was == "null" or (was, now) in _LARGE:
        return True
    if was in _INTEGERS:
        return _integer_fits(was, now)
    if was in _FLOATS:
        return now in _FLOATS and _FLOATS[was] < _FLOATS[now]
    old, new = _DECIMAL.fullmatch(was), _DECIMAL.fullmatch(now)
    return bool(old and new) and _before_the_dot(was) <= _before_the_dot(now) and _scale(was) <= _scale(now)


def _integer_fits(was: str, now: str) -> bool:
    bits, signed, digits = _INTEGERS[was]
    if now in _INTEGERS:
        more, also_signed, _ = _INTEGERS[now]
        return bits < more and (also_signed or not signed)
    if now in _FLOATS:
        return bits - signed <= _FLOATS[now]
    return _DECIMAL.fullmatch(now) is not None and _scale(now) >= 0 and _before_the_dot(now) >= digits


def _scale(decimal: str) -> int:
    found = _DECIMAL.fullmatch(decimal)
    return int(found[2]) if found else 0


def _before_the_dot(decimal: str) -> int:
    found = _DECIMAL.fullmatch(decimal)
    return int(found[1]) - int(found[2]) if found else 0

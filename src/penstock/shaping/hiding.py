"""What is delivered of values that must not be: digests and masks, whole columns at a time.

Arrow has no kernel for SHA-256, so digests are made one by one, for each value that a batch has once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.links.arrow_types import type_of
from penstock.shaping.spelling import plain, text
from penstock.shaping.types import family

HIDDEN = "***"
#: of a shorter value the last four characters would be too much
LEAST_FOR_LAST4 = 8
_BLOCK = 64


def hashed(array: pa.Array, how: str, salt: bytes) -> pa.Array:
    """The digest of each value's text, or of its bytes, in hexadecimal; NULL stays NULL."""
    array = plain(array)
    values = array if family(type_of(array.type)) == "binary" else text(array)
    once = values.cast(pa.binary()).dictionary_encode()
    digests = (_keyed(salt) if how == "hmac-sha256" else _unkeyed)(once.dictionary.to_pylist())
    return _hexadecimal(digests).take(once.indices)


def masked(array: pa.Array, how: str) -> pa.Array:
    """What a rule leaves of each value; NULL stays NULL."""
    if how == "null":
        return pa.nulls(len(array), array.type)
    hidden = pc.if_else(pc.is_valid(array), HIDDEN, pa.scalar(None, pa.string()))
    if how == "redact":
        return hidden
    words = plain(array).cast(pa.string())
    if how == "last4":
        shown, rest = pc.greater_equal(pc.utf8_length(words), LEAST_FOR_LAST4), pc.utf8_slice_codeunits(words, -4)
        return pc.if_else(shown, pc.binary_join_element_wise(pa.scalar(HIDDEN), rest, ""), hidden)
    shown = pc.match_substring(words, "@")
    return pc.if_else(shown, pc.replace_substring_regex(words, r"(?s)^.*@", f"{HIDDEN}@"), hidden)


def _unkeyed(values: Iterable[bytes]) -> bytes:
    sha256 = hashlib.sha256
    return b"".join([sha256(value).digest() for value in values])


def _keyed(salt: bytes) -> Callable[[Iterable[bytes]], bytes]:
    """HMAC-SHA256 (RFC 2104) by two states that already know the salt: half the time of `hmac.digest`."""
    key = hashlib.sha256(salt).digest() if len(salt) > _BLOCK else salt
    inner, outer = (hashlib.sha256(bytes(each ^ pad for each in key.ljust(_BLOCK, b"\0"))) for pad in (0x36, 0x5C))

    def digests(values: Iterable[bytes]) -> bytes:
        found = []
        for value in values:
            inside, outside = inner.copy(), outer.copy()
            inside.update(value)
            outside.update(inside.digest())
            found.append(outside.digest())
        return b"".join(found)

    return digests


def _hexadecimal(digests: bytes) -> pa.Array:
    """Digests that stand one after the other, as texts of 64 characters each."""
    count = len(digests) // 32
    offsets = pa.array(range(0, 64 * count + 1, 64), pa.int32())
    return pa.StringArray.from_buffers(count, offsets.buffers()[1], pa.py_buffer(digests.hex().encode()))

"""Digests and masks that replace values, by whole columns.

Arrow has no kernel for SHA-256, so each distinct value of a batch is hashed on its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.links.arrow_types import type_of
from penstock.shaping.text_form import decode, to_text
from penstock.shaping.types import family

REDACTED = "***"
#: characters of a value from which its last four may be shown
MIN_LAST4_CHARACTERS = 8
_SHA256_BLOCK_BYTES = 64


def hash_values(array: pa.Array, how: str, salt: bytes) -> pa.Array:
    """The hexadecimal digest of each value's text form, or of its bytes; NULL stays NULL."""
    array = decode(array)
    values = array if family(type_of(array.type)) == "binary" else to_text(array)
    once = values.cast(pa.binary()).dictionary_encode()
    digests = (_salted(salt) if how == "hmac-sha256" else _unsalted)(once.dictionary.to_pylist())
    return _to_hexadecimal(digests).take(once.indices)


def mask_values(array: pa.Array, how: str) -> pa.Array:
    """Mask each value by a rule; NULL stays NULL."""
    if how == "null":
        return pa.nulls(len(array), array.type)
    hidden = pc.if_else(pc.is_valid(array), REDACTED, pa.scalar(None, pa.string()))
    if how == "redact":
        return hidden
    words = decode(array).cast(pa.string())
    if how == "last4":
        shown, rest = pc.greater_equal(pc.utf8_length(words), MIN_LAST4_CHARACTERS), pc.utf8_slice_codeunits(words, -4)
        return pc.if_else(shown, pc.binary_join_element_wise(pa.scalar(REDACTED), rest, ""), hidden)
    shown = pc.match_substring(words, "@")
    return pc.if_else(shown, pc.replace_substring_regex(words, r"(?s)^.*@", f"{REDACTED}@"), hidden)


def _unsalted(values: Iterable[bytes]) -> bytes:
    sha256 = hashlib.sha256
    return b"".join([sha256(value).digest() for value in values])


def _salted(salt: bytes) -> Callable[[Iterable[bytes]], bytes]:
    """HMAC-SHA256 (RFC 2104) from two states that include the salt: half the time of `hmac.digest`."""
    key = hashlib.sha256(salt).digest() if len(salt) > _SHA256_BLOCK_BYTES else salt
    inner, outer = (
        hashlib.sha256(bytes(each ^ pad for each in key.ljust(_SHA256_BLOCK_BYTES, b"\0"))) for pad in (0x36, 0x5C)
    )

    def digests(values: Iterable[bytes]) -> bytes:
        found = []
        for value in values:
            inside, outside = inner.copy(), outer.copy()
            inside.update(value)
            outside.update(inside.digest())
            found.append(outside.digest())
        return b"".join(found)

    return digests


def _to_hexadecimal(digests: bytes) -> pa.Array:
    """Concatenated digests as strings of 64 characters each."""
    count = len(digests) // 32
    offsets = pa.array(range(0, 64 * count + 1, 64), pa.int32())
    return pa.StringArray.from_buffers(count, offsets.buffers()[1], pa.py_buffer(digests.hex().encode()))

"""Version 1 of the protocol between a producer and penstock's receiver: names of headers, limits and encodings. Pure.

The http sink writes with it what the receiver reads. `docs/http-protocol.md` describes it for other programs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from penstock.core.documents import Document, canonical, parse

# ---------------------------------------------------------------- headers and media types

KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
PRODUCER = "Penstock-Producer"
SLICE = "Penstock-Slice"
NUMBER = "Penstock-Slice-Number"
PREDECESSOR = "Penstock-Predecessor"
CHUNK = "Penstock-Chunk"
ROWS = "Penstock-Rows"
DIGEST = "Penstock-Digest"
BOUNDS = "Penstock-Bounds"
META = "Penstock-Meta"

NDJSON = "application/x-ndjson"
JSON = "application/json"
PROBLEM = "application/problem+json"

# ---------------------------------------------------------------- limits

#: characters of the bounds as they are sent
MOST_BOUNDS = 48 * 1024
#: bytes of the bounds as JSON: a small header must not unpack to more than any mark needs
MOST_BOUNDS_JSON = 8 << 20
#: characters of `Idempotency-Key`
MOST_KEY = 255
#: characters of a producer's name as it is sent
MOST_NAME = 1024
#: characters of the meta as they are sent
MOST_META = 4 * 1024
#: chunks of one slice
MOST_CHUNKS = 1_000_000

_VISIBLE = re.compile(r"[\x21-\x7e]+")
_ID = re.compile(r"[0-9a-f]{1,128}")
_CHUNK = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")
_COUNT = re.compile(r"[0-9]{1,18}")
_DIGEST = re.compile(r"sha-256=([0-9a-f]{64})")
_BASE64 = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_WRONG_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class BadHeader(ValueError):
    """A header that is missing, malformed, or contradicts another one."""

    def __init__(self, header: str, reason: str) -> None:
        super().__init__(f"{header}: {reason}")
        self.header = header
        self.reason = reason


# ---------------------------------------------------------------- one chunk


@dataclass(frozen=True, slots=True)
class SentChunk:
    """What a producer says of one chunk, in headers."""

    #: the producer's name
    producer: str
    #: the slice's id
    slice: str
    #: 1, 2, 3, …
    number: int
    #: the id of the slice before it; "" for the first
    predecessor: str
    #: 1, 2, … `chunks`
    chunk: int
    chunks: int
    rows: int
    #: SHA-256 of the decoded body, in hexadecimal digits
    digest: str
    #: as they are sent; "" unless it is chunk 1
    bounds: str = ""

    @property
    def key(self) -> str:
        return chunk_key(self.slice, self.chunk)

    def headers(self) -> dict[str, str]:
        found = {
            KEY: self.key,
            PRODUCER: encode_name(self.producer),
            SLICE: self.slice,
            NUMBER: str(self.number),
            CHUNK: f"{self.chunk}/{self.chunks}",
            ROWS: str(self.rows),
            DIGEST: f"sha-256={self.digest}",
        }
        if self.predecessor:
            found[PREDECESSOR] = self.predecessor
        if self.bounds:
            found[BOUNDS] = self.bounds
        return found


def read_chunk(headers: Mapping[str, str]) -> SentChunk | None:
    """What the headers say of a chunk; None: they name no producer, so the batch is a bare one. BadHeader if wrong.

    `headers` finds a name in any case, or has lower-case names.
    """
    if not any(_get(headers, name) for name in (PRODUCER, SLICE, NUMBER, CHUNK)):
        return None
    found = _CHUNK.fullmatch(_need(headers, CHUNK))
    if found is None:
        raise BadHeader(CHUNK, "must be k/n, for example 1/3")
    chunk, chunks = int(found[1]), int(found[2])
    if not 1 <= chunk <= chunks <= MOST_CHUNKS:
        raise BadHeader(CHUNK, f"{chunk}/{chunks} is not k/n with 1 <= k <= n <= {MOST_CHUNKS}")
    bounds = _get(headers, BOUNDS)
    if bounds and chunk > 1:
        raise BadHeader(BOUNDS, "belongs to chunk 1 alone")
    check_bounds(bounds)
    number = _count(headers, NUMBER)
    if number < 1:
        raise BadHeader(NUMBER, "begins at 1")
    predecessor = _get(headers, PREDECESSOR)
    sent = SentChunk(
        producer=_name(_need(headers, PRODUCER)),
        slice=_id(SLICE, _need(headers, SLICE)),
        number=number,
        predecessor=_id(PREDECESSOR, predecessor) if predecessor else "",
        chunk=chunk,
        chunks=chunks,
        rows=_count(headers, ROWS),
        digest=read_digest(_need(headers, DIGEST)),
        bounds=bounds,
    )
    if (key := _need(headers, KEY)) != sent.key:
        raise BadHeader(KEY, f"is {key[:MOST_KEY]}, and the other headers say {sent.key}")
    return sent


def chunk_key(slice_id: str, chunk: int) -> str:
    """The key of a chunk, by which it is recognised when it is sent again."""
    return f"{slice_id}/{chunk}"


def check_key(key: str) -> str:
    """The key of a bare batch; BadHeader if it is none."""
    if not 1 <= len(key) <= MOST_KEY or not _VISIBLE.fullmatch(key):
        raise BadHeader(KEY, f"must be 1 to {MOST_KEY} visible ASCII characters")
    return key


# ---------------------------------------------------------------- values of headers


def digest_of(body: bytes) -> str:
    """The digest of a decoded body, in hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def read_digest(value: str) -> str:
    """The hexadecimal digits of `Penstock-Digest`."""
    found = _DIGEST.fullmatch(value.strip())
    if found is None:
        raise BadHeader(DIGEST, "must be sha-256= and 64 hexadecimal digits in lower case")
    return found[1]


def encode_name(name: str) -> str:
    """A name as a header or as one segment of a path: UTF-8, percent-encoded."""
    # As they are, "." and ".." would be taken out of a path.
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def decode_name(value: str) -> str:
    """The name of `encode_name`; ValueError if it is none."""
    if _WRONG_ESCAPE.search(value):
        raise ValueError("% must be followed by two hexadecimal digits")
    return unquote(value, encoding="utf-8", errors="strict")


def encode_bounds(document: Document) -> str:
    """What a producer wants back when it has lost its store, as `Penstock-Bounds`; ValueError if it is too large."""
    text = _pack(zlib.compress(canonical(document).encode(), 9))
    if len(text) > MOST_BOUNDS:
        raise ValueError(f"the bounds have {len(text)} characters; the receiver takes {MOST_BOUNDS}")
    return text


def decode_bounds(value: str) -> dict[str, Any]:
    """The document of `encode_bounds`; ValueError if it is none."""
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(_unpack(value), MOST_BOUNDS_JSON)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"not bounds: {error}") from None
    if not unpacker.eof:
        raise ValueError("not bounds: cut off, or too large")
    return parse(raw.decode())


def check_bounds(value: str) -> None:
    """BadHeader if a receiver cannot keep these bounds. It does not look inside."""
    if len(value) > MOST_BOUNDS:
        raise BadHeader(BOUNDS, f"has {len(value)} characters; at most {MOST_BOUNDS} are taken")
    if not _BASE64.fullmatch(value):
        raise BadHeader(BOUNDS, "must be base64url")


def encode_meta(document: Mapping[str, Any]) -> str:
    """`Penstock-Meta`: {"source", "cursor", "max_id", "lag_rows", "lag_seconds"}, each optional."""
    return _pack(json.dumps(document, separators=(",", ":"), allow_nan=False).encode())


def decode_meta(value: str) -> dict[str, Any]:
    """The document of `encode_meta`; BadHeader if it is none."""
    if len(value) > MOST_META:
        raise BadHeader(META, f"has {len(value)} characters; at most {MOST_META} are taken")
    try:
        return parse(_unpack(value).decode())
    except (ValueError, RecursionError) as error:
        raise BadHeader(META, f"must be base64url of a JSON object ({type(error).__name__})") from None


# ---------------------------------------------------------------- paths


def batches_path(stream: str, *, ops: bool = False) -> str:
    """Where rows are sent to; `ops`: documents of ops."""
    return f"/v1/streams/{encode_name(stream)}/{'ops' if ops else 'batches'}"


def producer_path(stream: str, producer: str) -> str:
    return f"/v1/streams/{encode_name(stream)}/producers/{encode_name(producer)}"


def slice_path(stream: str, producer: str, slice_id: str) -> str:
    return f"{producer_path(stream, producer)}/slices/{encode_name(slice_id)}"


# ---------------------------------------------------------------- reading


def _get(headers: Mapping[str, str], name: str) -> str:
    return (headers.get(name) or headers.get(name.lower()) or "").strip()


def _need(headers: Mapping[str, str], name: str) -> str:
    if not (value := _get(headers, name)):
        raise BadHeader(name, "is missing")
    return value


def _count(headers: Mapping[str, str], name: str) -> int:
    value = _need(headers, name)
    if not _COUNT.fullmatch(value):
        raise BadHeader(name, "must be a whole number")
    return int(value)


def _id(header: str, value: str) -> str:
    if not _ID.fullmatch(value):
        raise BadHeader(header, "must be hexadecimal digits in lower case")
    return value


def _name(value: str) -> str:
    if len(value) > MOST_NAME:
        raise BadHeader(PRODUCER, f"has {len(value)} characters; at most {MOST_NAME} are taken")
    try:
        return decode_name(value)
    except ValueError:
        raise BadHeader(PRODUCER, "must be UTF-8, percent-encoded") from None


def _pack(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _unpack(value: str) -> bytes:
    if not _BASE64.fullmatch(value):
        raise binascii.Error("characters that are not base64url")
    return base64.urlsafe_b64decode(value.rstrip("=") + "=" * (-len(value.rstrip("=")) % 4))

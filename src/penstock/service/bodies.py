"""Bodies of requests: what they are decoded to, within limits, and the lines of JSON that the log keeps of them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.core.sizes import shown_size
from penstock.links.http import protocol
from penstock.service.problems import Problem

#: media types of a row in each line, and of one array of rows
LINES = (protocol.NDJSON, "application/ndjson", "application/jsonl")
ARRAY = (protocol.JSON,)
ENCODINGS = ("gzip", "zstd", "identity")
#: bytes that are decompressed at once
_STEP = 1 << 20
_GZIP = 31
_BLANK = " \t\r"
_ROWS = msgspec.json.Decoder(type=list[msgspec.Raw])
_PARAMETER = re.compile(r'\s*charset\s*=\s*"?utf-?8"?\s*', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Form:
    """How a body is written."""

    #: one array of rows, instead of a row in each line
    is_array: bool
    encoding: str


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body."""

    digest: str
    #: one row each, without line breaks, as they were sent
    rows: list[str]


def read_form(headers: Mapping[str, str]) -> Form:
    """The form of a body; Problem 415 if it is none of ours."""
    media, _, parameters = headers.get("content-type", "").partition(";")
    media = media.strip().lower()
    if media not in (*LINES, *ARRAY):
        raise Problem(
            415,
            "the Content-Type is missing or is not supported",
            f"send {protocol.NDJSON}, a row in each line, or {protocol.JSON}, an array of rows",
            headers={"Accept": f"{protocol.NDJSON}, {protocol.JSON}"},
        )
    if parameters and not _PARAMETER.fullmatch(parameters):
        raise Problem(415, "the Content-Type has a parameter that is not supported", "send UTF-8, without parameters")
    encoding = headers.get("content-encoding", "identity").strip().lower() or "identity"
    if encoding not in ENCODINGS:
        raise Problem(
            415,
            "the Content-Encoding is not supported",
            "send gzip, zstd, or no encoding",
            headers={"Accept-Encoding": "gzip, zstd"},
        )
    return Form(media in ARRAY, encoding)


def decode(raw: bytes, form: Form, most: int) -> Body:
    """The rows of a body; Problem 400 or 413 if it cannot be read, or is larger than `most` bytes."""
    data = _decompress(raw, form.encoding, most)
    digest = protocol.digest_of(data)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Problem(400, f"the body is not UTF-8 at byte {error.start}", "send UTF-8") from None
    return Body(digest, _split_array(data) if form.is_array else _split_lines(text))


def _split_lines(text: str) -> list[str]:
    rows = text.split("\n")
    if "\r" in text:
        # As a line break to others, it must not stay within a row: between values it is as good as a blank.
        rows = [row.strip(_BLANK) for row in rows]
        rows = [row.replace("\r", " ") if "\r" in row and _is_json(row) else row for row in rows]
    return [row for row in rows if row and row.strip(_BLANK)]


def _split_array(data: bytes) -> list[str]:
    try:
        found = [bytes(row) for row in _ROWS.decode(data)]
    except (msgspec.ValidationError, RecursionError):
        raise Problem(400, "the body is not an array of rows", "send [{…}, {…}]") from None
    except msgspec.DecodeError:
        raise Problem(400, "the body is not JSON", "send an array of rows: [{…}, {…}]") from None
    # Line breaks within a row are between its values: in a string they would not be JSON.
    return [_on_one_line(row).decode() for row in found]


def _on_one_line(row: bytes) -> bytes:
    return row.replace(b"\n", b" ").replace(b"\r", b" ")


def _is_json(row: str) -> bool:
    try:
        msgspec.json.decode(row.encode(), type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


# ---------------------------------------------------------------- compression


def _decompress(raw: bytes, encoding: str, most: int) -> bytes:
    decoders: dict[str, Callable[[bytes], Iterator[bytes]]] = {
        "identity": lambda raw: iter((raw,)),
        "gzip": _gunzip,
        "zstd": _unzstd,
    }
    parts, size = [], 0
    try:
        for part in decoders[encoding](raw):
            size += len(part)
            if size > most:
                raise Problem(
                    413,
                    f"the decoded body is larger than {shown_size(most)}",
                    "send smaller batches, or raise `decoded_bytes` of the receiver",
                )
            parts.append(part)
    except (OSError, ValueError, zlib.error):
        raise Problem(
            400, f"the body is not {encoding}, or is cut off", "compress it again, or send it without Content-Encoding"
        ) from None
    return b"".join(parts)


def _gunzip(raw: bytes) -> Iterator[bytes]:
    """Step by step, so that a small body that unpacks to a huge one is found out early."""
    while True:
        unpacker = zlib.decompressobj(_GZIP)
        data = raw
        while not unpacker.eof:
            part = unpacker.decompress(data, _STEP)
            data = unpacker.unconsumed_tail
            if not part and not data and not unpacker.eof:
                raise ValueError("cut off")
            yield part
        raw = unpacker.unused_data
        if not raw:
            return


def _unzstd(raw: bytes) -> Iterator[bytes]:
    import pyarrow as pa

    if not raw:
        raise ValueError("cut off")
    with pa.input_stream(pa.py_buffer(raw), compression="zstd") as file:
        while part := file.read(_STEP):
            yield part


def compress(rows: list[str]) -> bytes:
    """Rows as the log keeps them."""
    import pyarrow as pa

    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as file:
        for at in range(0, len(rows), 10_000):
            file.write("".join(f"{row}\n" for row in rows[at : at + 10_000]).encode())
    packed: Any = out.getvalue().to_pybytes()
    return bytes(packed)

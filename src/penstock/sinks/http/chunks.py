"""The chunks of a slice on disk: the bodies of its requests, as they will be sent.

A part's chunks lie in one file, one after the other. The receipt says where each begins and what it must be.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any

from penstock.core.documents import Document, canonical, digest, parse
from penstock.core.slices import Part, Receipt, Slice
from penstock.errors import SliceRefused, StreamFailed
from penstock.links.durable import sync, write_durably
from penstock.links.http import protocol
from penstock.ports import Probe
from penstock.sinks.http.options import Decimals, NonFinite
from penstock.sinks.http.template import Inner, Value, columns_of, fill_header, fill_path

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sinks.http.encode import EncodedRows

#: a row as JSON, and what its request has beside its body ("": nothing)
OversizedRow = list[str]
#: what the name of the file ends in that has a part's rows which are too large
_OVERSIZED = ".oversized"
#: Arrow bytes that are encoded at once
BATCH_BYTES = 32 << 20
MEDIA_TYPES = {"ndjson": protocol.NDJSON, "json": protocol.JSON, "object": protocol.JSON}


@dataclass(frozen=True)
class ChunkShape:
    """How rows become bodies."""

    format: str
    compression: str
    level: int
    chunk_rows: int
    chunk_bytes: int
    decimals: Decimals
    non_finite: NonFinite
    #: whether a row that is too large for a request is put into quarantine; otherwise it fails the slice
    quarantines: bool = False
    #: a row's template; None: an object of all columns
    row: tuple[str | Value | Inner, ...] | None = None
    #: what a body begins and ends with, around the rows
    before: str = ""
    after: str = ""
    #: templates of the path and of headers with values of the row, for requests of one row
    path: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def end(self) -> str:
        """What follows each row."""
        return {"ndjson": "\n", "json": ",", "object": ""}[self.format]

    @property
    def named(self) -> list[str]:
        """Columns that the path or a header names."""
        texts = [self.path, *(text for _, text in self.headers)]
        return list(dict.fromkeys(name for text in texts for name in columns_of(text)))

    def body(self, rows: bytes) -> bytes:
        """The body of a request with these rows, each with its end."""
        if self.format != "json":
            return rows
        return b"".join((self.before.encode(), b"[", rows[:-1], b"]", self.after.encode()))

    @property
    def around(self) -> int:
        """Bytes of a body beside the rows and their ends."""
        return len(self.body(b" ")) if self.format == "json" else 0

    def head(self, values: Mapping[str, Any]) -> bytes:
        """What a request of this row has beside its body."""
        path = fill_path(self.path, values)
        headers = {name: fill_header(text, values) for name, text in self.headers}
        return canonical({"path": path, "headers": headers}).encode()

    def compress(self, body: bytes) -> bytes:
        return gzip.compress(body, self.level, mtime=0) if self.compression == "gzip" else body


@dataclass(frozen=True)
class Chunk:
    """One request of a slice."""

    #: 1, 2, …
    number: int
    rows: int
    #: of the body before compression, in hexadecimal digits
    digest: str
    media_type: str
    #: "": not compressed
    compression: str
    #: the file with the body; None: it has no rows
    path: str | None = None
    offset: int = 0
    length: int = 0
    #: CRC-32 of head and body as they lie in the file
    checksum: int = 0
    #: bytes of the head, which lies before the body: the path and headers of this request alone
    head_length: int = 0
    #: bytes of the body before and after the rows
    around: tuple[int, int] = (0, 0)

    def read(self) -> tuple[Document, bytes]:
        """Head and body as they were staged; StreamFailed if they are damaged."""
        if self.path is None:
            return {}, b"" if self.media_type == protocol.NDJSON else b"[]"
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                body = file.read(self.length)
        except OSError as error:
            raise _damaged(self.path, str(error.strerror or error)) from error
        if len(body) != self.length or zlib.crc32(body) != self.checksum:
            raise _damaged(self.path, "it is not what was staged")
        head = parse(body[: self.head_length].decode()) if self.head_length else {}
        return head, body[self.head_length :]

    def emptied(self) -> Chunk:
        """The same chunk without its rows: it takes the number of one that was put into quarantine."""
        body = b"" if self.media_type == protocol.NDJSON else b"[]"
        return Chunk(self.number, 0, protocol.digest_of(body), self.media_type, "")

    def rows_of(self, body: bytes) -> list[str]:
        """The rows of its body, as JSON."""
        import msgspec

        decoded = gzip.decompress(body) if self.compression else body
        if self.media_type == protocol.NDJSON:
            return decoded.decode().splitlines()
        before, after = self.around
        inner = decoded[before : len(decoded) - after]
        # A body of one row is that row.
        whole = inner if inner[:1] == b"[" else b"[" + inner + b"]"
        return [bytes(raw).decode() for raw in msgspec.json.decode(whole, type=list[msgspec.Raw])]


def _damaged(path: str, why: str) -> StreamFailed:
    return StreamFailed(
        f"a chunk that was staged cannot be read from {path}: {why}",
        next_step="put the file back and run again; or `penstock state recover FILE`",
    )


# ---------------------------------------------------------------- writing


@dataclass(frozen=True)
class ChunkWriter:
    """Stages parts. Small and picklable."""

    #: the folder of this attempt
    folder: str
    attempt: str
    shape: ChunkShape
    probe: Probe

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        from penstock.sinks.http.encode import Encoding, encode_rows

        encoding = Encoding(self.shape.decimals, self.shape.non_finite)
        # Another attempt at this part, even one that still runs, has another name.
        name = f"{self.attempt}{uuid.uuid4().hex[:8]}"
        path = os.path.join(self.folder, f"part-{part.index:06d}-{name}")
        rows = size = nulled = 0
        named = self.shape.named
        try:
            text = batches.schema.remove_metadata().to_string()
            with open(path, "wb") as file:
                cutter = _Cutter(self.shape, file)
                for batch in batches:
                    rows += batch.num_rows
                    size += batch.nbytes
                    for piece in _pieces_of(batch):
                        encoded = encode_rows(piece, encoding, self.shape.end, self.shape.row, named)
                        nulled += encoded.nulled
                        cutter.add(encoded)
                cutter.finish()
                file.flush()
                os.fsync(file.fileno())
            if cutter.oversized:
                write_durably(f"{path}{_OVERSIZED}", canonical({"rows": cutter.oversized}))
            sync(self.folder)
        except OSError as error:
            _discard(path)
            raise _unwritable(self.folder, error) from error
        except BaseException:
            _discard(path)  # no receipt names this file
            raise
        self.probe.at("http.part_written", part=part.index)
        about = {
            "file": os.path.basename(path),
            "bytes": cutter.written,
            "sha256": cutter.state.hexdigest(),
            "format": self.shape.format,
            "compression": self.shape.compression,
            "chunks": cutter.chunks,
            "around": [len(self.shape.before.encode()), len(self.shape.after.encode())],
            "oversized": len(cutter.oversized),
        }
        staged = cutter.rows + len(cutter.oversized)
        return Receipt(part.index, name, rows, staged, size, digest(text), canonical(about), nulled)


def _pieces_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces that are small enough to be encoded at once."""
    pieces = max(1, -(-batch.nbytes // BATCH_BYTES))
    step = max(1, -(-batch.num_rows // pieces))
    for first in range(0, batch.num_rows, step):
        yield batch.slice(first, step)


def _discard(path: str) -> None:
    for each in (path, path + _OVERSIZED):
        if os.path.exists(each):
            os.unlink(each)


def _unwritable(folder: str, error: OSError) -> StreamFailed:
    return StreamFailed(
        f"cannot stage chunks in {folder}: {error.strerror or error}",
        next_step="free some space, or set `spools` of the pipeline to a folder that has it; then run again",
    )


@dataclass
class _Cutter:
    """Cuts rows into chunks by rows and bytes, and writes each to the file."""

    shape: ChunkShape
    file: IO[bytes]
    #: rows that wait for their chunk
    waiting: list[memoryview] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    waiting_head: bytes = b""
    #: rows that are too large for a request
    oversized: list[OversizedRow] = field(default_factory=list)
    #: [rows, length, digest, checksum, length of the head] of each
    chunks: list[list[Any]] = field(default_factory=list)
    rows: int = 0
    written: int = 0
    state: Any = field(default_factory=hashlib.sha256)

    def add(self, encoded: EncodedRows) -> None:
        import numpy as np

        offsets, count, at = encoded.offsets, len(encoded.offsets) - 1, 0
        sizes = np.diff(offsets)
        if count and (largest := int(sizes.max())) > self._most_bytes:
            if not self.shape.quarantines:
                raise _too_large(largest, self.shape.chunk_bytes)
            self._leave_out(encoded, np.flatnonzero(sizes > self._most_bytes).tolist())
            return
        while at < count:
            if encoded.named is not None:
                self.waiting_head = self.shape.head(encoded.named[at])
            by_bytes = int(offsets.searchsorted(offsets[at] + self._most_bytes - self.waiting_bytes, "right")) - 1
            until = min(by_bytes, at + self.shape.chunk_rows - self.waiting_rows, count)
            if until > at:
                first, last = int(offsets[at]), int(offsets[until])
                self.waiting.append(encoded.data[first:last])
                self.waiting_rows += until - at
                self.waiting_bytes += last - first
                at = until
            if at < count:
                self._cut()

    def _leave_out(self, encoded: EncodedRows, large: Sequence[int]) -> None:
        """Add the rows between those that are too large, which are kept apart."""
        offsets, after = encoded.offsets, 0
        end = len(self.shape.end)
        for place in [*large, len(offsets) - 1]:
            if place > after:
                first, last = int(offsets[after]), int(offsets[place])
                data, own = encoded.data[first:last], offsets[after : place + 1] - first
                named = encoded.named[after:place] if encoded.named is not None else None
                self.add(replace(encoded, data=data, offsets=own, named=named))
            if place < len(offsets) - 1:
                row = bytes(encoded.data[int(offsets[place]) : int(offsets[place + 1]) - end]).decode()
                head = self.shape.head(encoded.named[place]).decode() if encoded.named is not None else ""
                self.oversized.append([row, head])
            after = place + 1

    @property
    def _most_bytes(self) -> int:
        return self.shape.chunk_bytes - self.shape.around

    def finish(self) -> None:
        if self.waiting_rows:
            self._cut()

    def _cut(self) -> None:
        body = self.shape.body(b"".join(self.waiting))
        head = self.waiting_head
        sent = head + self.shape.compress(body)
        self.file.write(sent)
        self.state.update(sent)
        self.chunks.append([self.waiting_rows, len(sent), protocol.digest_of(body), zlib.crc32(sent), len(head)])
        self.rows += self.waiting_rows
        self.written += len(sent)
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0


def _too_large(found: int, most: int) -> StreamFailed:
    return StreamFailed(
        f"a row has {found} bytes as JSON, and a request takes at most {most} (`chunk_bytes`)",
        next_step="raise `chunk_bytes` of the sink, if the receiver takes larger bodies; or leave out the column",
    )


# ---------------------------------------------------------------- what was staged


def list_chunks(slice_: Slice, folder: str, receipts: Sequence[Receipt], empty_format: str) -> list[Chunk]:
    """The requests of a slice, in order. SliceRefused if the receipts contradict their pieces.

    A slice without rows is one request without rows.
    """
    found: list[Chunk] = []
    for receipt in sorted(receipts, key=lambda receipt: receipt.part):
        about = parse(receipt.pieces)
        path, offset = os.path.join(folder, about["file"]), 0
        if (staged := sum(chunk[0] for chunk in about["chunks"]) + about["oversized"]) != receipt.rows:
            raise SliceRefused(
                f"slice {slice_.number} was not sent: part {receipt.part} names {receipt.rows} rows and has {staged}",
                next_step="run again; if it happens again, report it as a defect",
            )
        compression = "" if about["compression"] == "none" else about["compression"]
        media_type, around = MEDIA_TYPES[about["format"]], tuple(about["around"])
        for rows, length, hashed, checksum, head in about["chunks"]:
            at = (path, offset, length, checksum, head, around)
            found.append(Chunk(len(found) + 1, rows, hashed, media_type, compression, *at))
            offset += length
    if not found:
        body = b"" if empty_format == "ndjson" else b"[]"
        found.append(Chunk(1, 0, protocol.digest_of(body), MEDIA_TYPES[empty_format], ""))
    return found


def read_oversized(folder: str, receipts: Sequence[Receipt]) -> list[OversizedRow]:
    """The rows that were too large for a request."""
    found: list[OversizedRow] = []
    for receipt in receipts:
        about = parse(receipt.pieces)
        if about["oversized"]:
            with open(os.path.join(folder, about["file"] + _OVERSIZED), encoding="utf-8") as file:
                found += parse(file.read())["rows"]
    return found


def is_whole(folder: str, pieces: str) -> bool:
    """Whether the file of a part is there, as it was staged."""
    about: Mapping[str, Any] = parse(pieces)
    path = os.path.join(folder, about["file"])
    try:
        if about["oversized"] and not os.path.exists(path + _OVERSIZED):
            return False
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == str(about["sha256"])
    except OSError:
        return False

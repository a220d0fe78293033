"""What CSV and JSON files share: decompression, byte ranges that end with a line, and how many rows to expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import StreamFailed
from penstock.sources.files.heads import Head, Piece
from penstock.sources.files.options import COMPRESSIONS, CsvOptions
from penstock.sources.files.places import File, Place, shown

if TYPE_CHECKING:
    import pyarrow as pa

#: bytes of the text of which a file's rows are estimated and its columns guessed
SAMPLE_BYTES = 1 << 20
#: bytes of text that become rows at the same time
BLOCK_BYTES = 4 << 20
_STEP = 64 << 10
#: Arrow bytes for each byte of text, and of compressed text
_GROWTH, _COMPRESSED_GROWTH = 2, 8


@dataclass(frozen=True, slots=True)
class Compression:
    """How files are compressed: `auto` goes by their names."""

    how: str

    def of(self, file: File) -> str | None:
        if self.how != "auto":
            return None if self.how == "none" else self.how
        return next((kind for suffix, kind in COMPRESSIONS.items() if file.path.endswith(suffix)), None)


@contextmanager
def opened(
    place: Place, file: File, compression: Compression, stream: str, piece: tuple[int, int] = (0, -1)
) -> Iterator[pa.NativeFile]:
    """The text of a file, or of a range of its bytes."""
    import pyarrow as pa

    kind = compression.of(file)
    with place.open(file, stream) as native:
        if kind is not None:
            with pa.CompressedInputStream(native, kind) as text:
                yield text
        elif piece[1] >= 0:
            yield native.get_stream(piece[0], piece[1] - piece[0])
        else:
            yield native


def sample(place: Place, file: File, compression: Compression, stream: str) -> bytes:
    """The beginning of a file; OSError if it cannot be decompressed."""
    with opened(place, file, compression, stream) as text:
        return bytes(text.read(SAMPLE_BYTES))


def estimate(file: File, compression: Compression, text: bytes, names: tuple[str, ...] | None) -> Head:
    """The head of a file that begins with a text."""
    is_compressed = compression.of(file) is not None
    size = file.version.size * (_COMPRESSED_GROWTH if is_compressed else 1)
    is_whole = len(text) < SAMPLE_BYTES
    lines = max(1, text.count(b"\n") + (not text.endswith(b"\n")))
    expected = lines if is_whole else max(lines, size * lines // len(text))
    return Head(None, names, None if text else 0, expected, max(1, size * _GROWTH))


def cut_lines(place: Place, file: File, head: Head, most: int, stream: str) -> Sequence[Piece]:
    """Ranges of bytes that end with a line, of about `most` Arrow bytes."""
    size = file.version.size
    count = min(head.bytes // max(1, most), size // _STEP)
    if count < 2:
        return [Piece(0, -1, head.bytes)]
    ends = [0]
    with place.open(file, stream) as native:
        for at in range(1, count):
            end = _next_line(native, max(ends[-1], size * at // count), size)
            if ends[-1] < end < size:
                ends.append(end)
    ranges = zip(ends, [*ends[1:], size], strict=True)
    return [Piece(start, end, head.bytes * (end - start) // size) for start, end in ranges]


def _next_line(native: Any, at: int, size: int) -> int:
    """Where the line after the one at a place begins."""
    while at < size:
        native.seek(at)
        block = bytes(native.read(_STEP))
        if not block:
            return size
        if (found := block.find(b"\n")) >= 0:
            return at + found + 1
        at += len(block)
    return size


def cut_quoted(place: Place, file: File, head: Head, most: int, dialect: CsvOptions, stream: str) -> Sequence[Piece]:
    """The same for a CSV file with quotes, which is read once for it: a line break within quotes ends no row.

    A quote opens a field where it is the first character, and within quotes two of them are one. So a line break after
    an even number of quotes ends a row, if each quote that opens is at the beginning of a field or follows another
    quote. A file of which this is not so is not cut.
    """
    import numpy as np

    size = file.version.size
    whole = [Piece(0, -1, head.bytes)]
    count = min(head.bytes // max(1, most), size // _STEP)
    if count < 2:
        return whole
    quote, line = ord(dialect.quote), ord("\n")
    borders = [quote, line, ord("\r"), ord(dialect.delimiter)]
    ends, quotes, before, at = [0], 0, line, 0
    with place.open(file, stream) as native:
        while block := bytes(native.read(BLOCK_BYTES)):
            if at == 0 and block.startswith(b"\xef\xbb\xbf"):
                block = b"\n\n\n" + block[3:]
            found = np.frombuffer(block, dtype=np.uint8)
            places = np.flatnonzero(found == quote)
            opening = places[quotes % 2 :: 2]
            if len(opening) and not np.isin(np.where(opening > 0, found[opening - 1], before), borders).all():
                return whole
            lines = np.flatnonzero(found == line)
            rows = lines[(np.searchsorted(places, lines) + quotes) % 2 == 0] + 1 + at
            while len(ends) < count and (index := np.searchsorted(rows, size * len(ends) // count)) < len(rows):
                ends.append(max(int(rows[index]), ends[-1]))
            quotes, before, at = quotes + len(places), int(found[-1]), at + len(block)
    ends = sorted({end for end in ends if end < size})
    ranges = zip(ends, [*ends[1:], size], strict=True)
    return [Piece(start, end, head.bytes * (end - start) // size) for start, end in ranges]


def lines_before(place: Place, file: File, end: int, stream: str) -> int:
    """The lines of a file up to a place: for messages."""
    count = 0
    with place.open(file, stream) as native:
        while end > 0 and (block := bytes(native.read(min(end, BLOCK_BYTES)))):
            count += block.count(b"\n")
            end -= len(block)
    return count


def bad_row(file: File, place: Place, where: str, why: str, stream: str, *, can_be_null: bool = False) -> StreamFailed:
    """A row that cannot be read, with its file and line."""
    step = f"correct {shown(file.path)} under a new name, or leave it out with `exclude`"
    if can_be_null:
        step = (
            f"declare the column with a type that holds all values (string does), or set `bad_values: null`; or {step}"
        )
    return StreamFailed(
        f"{shown(file.path)} in {place.shown}, {where}: {why}",
        next_step=f"drop the open slice with `penstock state recover FILE --stream {stream}`; then {step}",
        stream=stream,
    )

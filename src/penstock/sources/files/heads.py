"""What the head of a file says before its rows are read, and the errors of files that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.core.content import Columns
from penstock.errors import UNTOUCHED, StreamRefused
from penstock.sources.files.places import File, Place, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

#: Arrow bytes that a batch is to have
BATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of one file: row groups, stripes, or bytes. `end` -1: to the end of a file that is not cut."""

    start: int
    end: int
    #: Arrow bytes to expect, for the size of parts
    bytes: int


@dataclass(frozen=True, slots=True)
class Head:
    """One file, from its head or footer alone."""

    #: the file's columns and their types; None: the file does not say
    columns: Columns | None
    #: the columns' names, where it says those; None: it does not
    names: tuple[str, ...] | None
    #: None: not known
    rows: int | None
    #: rows to expect
    expected_rows: int
    #: Arrow bytes to expect
    bytes: int
    #: where it may be cut, with the rows before: row groups; () for text, which is cut by bytes
    groups: tuple[int, ...] = ()


class Format(Protocol):
    """One format. Small and picklable."""

    def inspect(self, place: Place, file: File, stream: str) -> Head:
        """Read the head of a file; StreamRefused if the file is damaged."""
        ...

    def guess(self, place: Place, file: File, stream: str) -> Columns:
        """The columns of a file, from a sample where it does not name types."""
        ...

    def cut(self, place: Place, file: File, head: Head, most: int, stream: str) -> Sequence[Piece]:
        """Cut a file into pieces of about `most` Arrow bytes, in order."""
        ...

    def read(
        self, place: Place, file: File, piece: tuple[int, int], columns: Columns, stream: str
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, with these columns."""
        ...


def unreadable(file: File, place: Place, format_: str, error: object, stream: str) -> StreamRefused:
    """A file that is damaged, or of another format."""
    reason = str(error).strip().split("\n")[0].rstrip(".")
    return StreamRefused(
        f"{shown(file.path)} in {place.shown} cannot be read as {format_}: {reason}",
        safe=UNTOUCHED,
        next_step="replace the file by a whole one, or leave it out with `exclude`",
        stream=stream,
    )

"""A dump that somebody made elsewhere, loaded in place of a table's rows: its files, cut into pieces.

A dump shows what a table was at some time. Nothing may be missing between what a stream has read and that time, so the
stream first waits: it reads up to a snapshot, and the dump is begun after that snapshot was taken. Its rows then stand
where rows of the table would: after all that was delivered before, and before what comes later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.core.documents import Document

#: what the place of a load in its files is called
PIECE = "piece"


@dataclass(frozen=True, slots=True)
class Hold:
    """A stream waits for the files of a dump, or loads them: it reads no document that the dump may not show."""

    #: the server's time when the stream began to wait: the dump is begun later; None: it is not recorded yet
    horizon: datetime | None
    #: all that it sees may be read
    snapshot: str | None
    #: documents up to this id had been read, or deleted
    low: int | None
    #: the files have not been named
    waits: bool

    @property
    def order(self) -> datetime:
        """Snapshots grow with this time."""
        return self.horizon or datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Dump:
    """The files of a dump, cut into pieces."""

    files: tuple[Mapping[str, Any], ...]
    #: (file, row group of Parquet, rows; rows to read at most, None: all)
    pieces: tuple[Mapping[str, Any], ...]
    #: a trial: only the first rows
    limit: int | None

    def document(self) -> dict[str, Any]:
        return {
            "files": list(self.files),
            "pieces": list(self.pieces),
            "limit": self.limit,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Dump:
        return cls(tuple(document["files"]), tuple(document["pieces"]), document["limit"])

    @property
    def rows(self) -> int:
        return sum(each["rows"] for each in self.pieces)

    @property
    def bytes(self) -> int:
        return sum(each["size"] for each in self.files)

    def piece(self, number: int) -> Document:
        """What a worker needs to read a piece."""
        piece = self.pieces[number]
        return {"file": dict(self.files[piece["file"]]), "group": piece["group"], "most": piece["most"]}

"""How far the first load of each table is, as a mark has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.core.documents import Document
from penstock.core.ranges import Key

PENDING, LOADING, COMPLETE = "pending", "loading", "complete"
#: it was given up; only the first rows of a dump were loaded
DROPPED, TRIAL = "dropped", "trial"
#: nothing is left to do
ENDED = (COMPLETE, DROPPED, TRIAL)


@dataclass(frozen=True, slots=True)
class LoadState:
    """The load of one table into one stream."""

    #: as `Load.name`
    name: str
    #: hashes of the declaration that is loaded; see `Load`
    identity: str
    fields: str
    #: the fields that it sets
    names: tuple[str, ...] = ()
    #: pending, loading, complete, dropped or trial
    state: str = PENDING
    #: the columns whose ranges are read; () before the load begins, and for a table that is read in one range
    columns: tuple[str, ...] = ()
    #: rows up to this key have been read; None: none
    after: Key | None = None
    #: rows that were found when the ranges were planned
    rows: int = 0
    #: rows of the table when the load began, by statistics
    expected: int = 0
    #: the server's clock in microseconds when the first range was planned, and the last one
    began: int | None = None
    ended: int | None = None
    #: of the table when the load began, on the server's disk
    bytes: int = 0

    @property
    def bytes_read(self) -> int:
        """Of the table's bytes, as many as its rows that were read."""
        return self.bytes * self.rows // max(self.rows, self.expected, 1)

    def document(self) -> Document:
        return {
            "name": self.name,
            "identity": self.identity,
            "fields": self.fields,
            "names": list(self.names),
            "state": self.state,
            "columns": list(self.columns),
            "after": None if self.after is None else list(self.after),
            "rows": self.rows,
            "expected": self.expected,
            "bytes": self.bytes,
            "began": self.began,
            "ended": self.ended,
        }

    @classmethod
    def of(cls, document: Any) -> LoadState:
        """From its document; KeyError, TypeError or ValueError if it is not one."""
        if document["state"] not in (PENDING, LOADING, *ENDED):
            raise ValueError(document["state"])
        after = document["after"]
        return cls(
            str(document["name"]),
            str(document["identity"]),
            str(document["fields"]),
            tuple(map(str, document["names"])),
            document["state"],
            tuple(map(str, document["columns"])),
            None if after is None else tuple(map(str, after)),
            int(document["rows"]),
            int(document["expected"]),
            document["began"],
            document["ended"],
            int(document.get("bytes", 0)),
        )

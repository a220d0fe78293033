"""Which table a mark was made in: its oid, its file, and the sequence that numbers its cursor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.documents import Document


@dataclass(frozen=True, slots=True)
class Sequence:
    """The sequence behind a cursor."""

    #: as SQL names it
    name: str
    #: its file: RESTART, TRUNCATE ... RESTART IDENTITY and ALTER SEQUENCE give it another one
    file: str | None
    #: the last number it gave; None: none yet, or not told
    last: str | None
    #: whether the role may ask for it, and it counts up
    told: bool = True

    def document(self) -> Document:
        return {"name": self.name, "file": self.file, "last": self.last}


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """A table as a mark remembers it."""

    #: another one once the table was dropped and created again, or another table has its name
    oid: str
    #: the file that holds its rows: another one after TRUNCATE or a rewrite; None: partitions hold them
    file: str | None
    #: None: no sequence numbers the cursor
    sequence: Sequence | None

    @property
    def token(self) -> str:
        """What `continues` of a stream says to vouch for this table."""
        return "/".join((self.oid, self.file or "0", (self.sequence and self.sequence.file) or "0"))

    def document(self) -> Document:
        sequence: Document = {"sequence": self.sequence.document()} if self.sequence else {}
        return {"oid": self.oid, "file": self.file, **sequence}

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> TableIdentity:
        """From a document; KeyError or TypeError if it is not one of ours."""
        sequence = said.get("sequence")
        found = Sequence(**sequence) if sequence else None
        return cls(said["oid"], said["file"], found)

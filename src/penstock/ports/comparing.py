"""The capabilities that a comparison of source and sink needs.

A row is compared by a digest: the first 32 hexadecimal digits of the SHA-256 of its columns, key first. Each column is
written as `length:text`, or `-` for NULL; the length is in characters. The text of a value depends on its type as
delivered:

    whole numbers, bool     as printed: 42, true
    decimal                 as printed, without trailing zeros of the fraction
    string, json, list      as it is; a list as Postgres prints an array
    binary                  lowercase hexadecimal
    date, time              2026-11-15, 06:00:00.500000
    timestamp               2026-11-15 06:00:00.500000, in UTC where it has a time zone
    float                   as Postgres prints it

The checksum of a range is the sum of the first 15 digits of each digest, as a decimal number. Keys are ordered as
numbers, dates and timestamps; strings by their bytes in UTF-8. A key is a tuple of such texts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from penstock.core.comparing import Summary
from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.ranges import Key, Range
from penstock.core.types import Type
from penstock.errors import UNTOUCHED, NotComparable
from penstock.ports.source import StreamInfo
from penstock.ports.spools import Spool


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column that both sides write alike."""

    #: as delivered
    name: str
    #: as delivered
    type: Type
    #: the type in the source's own words; None: it has none
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """What is compared of a stream."""

    #: the columns by which rows are found and ordered
    key: tuple[ComparedColumn, ...]
    values: tuple[ComparedColumn, ...]
    #: columns that are not compared, each with the reason
    skipped: Mapping[str, str] = field(default_factory=dict)
    #: those columns of the key that identify a row; None: all of them do
    identity: tuple[str, ...] | None = None

    @property
    def identifying(self) -> tuple[str, ...]:
        """The columns that identify a row: what the sink's key must be."""
        return tuple(column.name for column in self.key) if self.identity is None else self.identity


def not_comparable(stream: str, why: str, step: str = "compare with a query of your own") -> NotComparable:
    """The refusal to compare a stream."""
    return NotComparable(f"cannot be compared, because {why}", next_step=step, safe=UNTOUCHED, stream=stream)


class ComparedRows(Protocol):
    """The rows of one side, asked by key."""

    @property
    def window_rows(self) -> int | None:
        """How many rows are compared at once: it finds the end of that many quickly. None: it cannot."""
        ...

    def summarize(self, range_: Range) -> Summary:
        """Count the rows of a range and add up their digests."""
        ...

    def find_cuts(self, range_: Range, pieces: int) -> Sequence[Key]:
        """Return keys that cut a range into about that many pieces, in order."""
        ...

    def find_end(self, after: Key | None, rows: int) -> Key | None:
        """Return the key of the row that many rows after a key; None: there are not that many."""
        ...

    def list_digests(self, range_: Range) -> Mapping[Key, str]:
        """Return the digest of each row of a small range."""
        ...

    def look(self, keys: Sequence[Key]) -> Mapping[Key, str | None]:
        """Return the keys that exist, with their digests as of now; None: the row exists and is not compared."""
        ...

    def close(self) -> None:
        """Release what was kept for the comparison."""
        ...


@runtime_checkable
class ComparingSource(Protocol):
    """A source that can be compared with a sink, and read by key."""

    def compared_columns(self, stream: str, content: Content) -> ComparedColumns:
        """Return what can be compared; NotComparable if the stream cannot be compared."""
        ...

    def compared_rows(
        self, stream: str, content: Content, mark: Mark, columns: ComparedColumns, *, above: bool = False
    ) -> ComparedRows:
        """Return the rows at or below a mark, or those `above` it too; NotComparable if it is no mark to compare at."""
        ...

    def plan_repair(
        self, stream: str, content: Content, mark: Mark, keys: Sequence[Key], deletes: Sequence[Key]
    ) -> Document:
        """Return the plan of a slice that delivers the current rows of `keys`, and deletes `deletes`.

        `reading` of such a slice (Kind.REPAIR) gives the rows at or below its mark. It gives a delete for a key of
        `deletes` only if the source has no row of that key.
        """
        ...


@runtime_checkable
class GatheringRepairs(Protocol):
    """A source whose rows cannot be read by key later: it reads those of a repair ahead into a spool."""

    def gather_repair(
        self, stream: str, content: Content, mark: Mark, keys: Sequence[Key], deletes: Sequence[Key], spool: Spool
    ) -> int:
        """Write the current rows of `keys`, and deletes of `deletes`, into the spool; return how many there are.

        Only rows that `mark` covers, and a delete only if the source has no row of that key. Under the lease, before
        the intent. `reading` then reads the spool that the slice names.
        """
        ...


@dataclass(frozen=True, slots=True)
class SinkComparison:
    """A stream in its sink, as it is compared."""

    rows: ComparedRows
    #: the columns of the source that the sink writes alike
    columns: ComparedColumns
    #: every version of a row stays: only missing rows are found
    appends: bool = False
    #: rows that are deleted at the source stay, as configured
    keeps_deleted: bool = False


@runtime_checkable
class ComparingSink(Protocol):
    """A sink that can be compared with a source."""

    def compare(self, stream: StreamInfo, columns: ComparedColumns) -> SinkComparison:
        """Return the sink's side; NotComparable if the stream cannot be compared."""
        ...

    def check_delete_search(self, stream: StreamInfo) -> None:
        """StreamRefused if rows that the source no longer has cannot be found by key and deleted. Asks nobody."""
        ...

    def find_quarantined(self, stream: StreamInfo, columns: ComparedColumns, keys: Sequence[Key]) -> Collection[Key]:
        """Return those keys whose rows are in quarantine: they are not missing."""
        ...

    def explain_foreign_rows(self, stream: StreamInfo) -> str | None:
        """Return why a row that the source does not have may be someone else's; None: every row came by this stream."""
        ...

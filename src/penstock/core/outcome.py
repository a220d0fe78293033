"""What became of the rows of a slice in a sink that looks at each: they add up to the rows that came in. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows by what became of them; each is counted once."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    #: not newer than what was there
    stale: int = 0
    #: nothing to do: as it was there already, or a delete of what was not there
    equal: int = 0
    #: another's row: its guard differs
    refused: int = 0
    #: in quarantine, with the reason why the sink did not take it
    quarantined: int = 0
    #: another row of the same slice has the same key and is newer
    folded: int = 0
    #: deletes of a stream that ignores them
    ignored: int = 0

    @property
    def rows(self) -> int:
        return sum(dataclasses.astuple(self))

    def __add__(self, other: Outcome | None) -> Outcome:
        if other is None:
            return self
        return Outcome(*map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))

    def warnings(self) -> list[str]:
        """Return warnings for the operator."""
        lines = []
        if self.refused:
            lines.append(f"{_rows(self.refused)} refused: a guard column differs from what the table has")
        if self.quarantined:
            lines.append(f"{_rows(self.quarantined)} put into quarantine; see `penstock quarantine list`")
        return lines

    def document(self) -> dict[str, int]:
        """By name, without what is 0."""
        return {name: count for name, count in dataclasses.asdict(self).items() if count}

    @classmethod
    def read(cls, document: Mapping[str, Any] | None) -> Self | None:
        return cls(**document) if document is not None else None


@dataclass(frozen=True, slots=True)
class Delivered:
    """Rows and bytes that were delivered, and what became of the rows."""

    rows: int = 0
    bytes: int = 0
    #: None: the sink does not look at rows
    outcome: Outcome | None = None

    def __add__(self, other: Delivered) -> Delivered:
        outcome = other.outcome if self.outcome is None else self.outcome + other.outcome
        return Delivered(self.rows + other.rows, self.bytes + other.bytes, outcome)


def _rows(number: int) -> str:
    return "1 row was" if number == 1 else f"{number:,} rows were"

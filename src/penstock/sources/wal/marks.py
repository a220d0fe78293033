"""Marks of a wal stream: the log, the place after the last record that was read, and each producer's last slice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.marks import Mark
from penstock.errors import StreamRefused


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far a log was read."""

    #: the log's identity, in hexadecimal digits
    log: str
    segment: int
    #: where the next record begins
    offset: int
    #: of the record that ends here
    checksum: int
    #: by producer, the number of its last slice that was delivered
    sent: Mapping[str, int] = field(default_factory=dict)

    def mark(self) -> Mark:
        return Mark.of(
            {
                "log": self.log,
                "at": [self.segment, self.offset],
                "checksum": self.checksum,
                "sent": dict(self.sent),
            }
        )

    @classmethod
    def read(cls, mark: Mark) -> LogPosition:
        """StreamRefused if the mark is not one of ours."""
        document: dict[str, Any] = mark.document
        try:
            segment, offset = document["at"]
            return cls(str(document["log"]), int(segment), int(offset), int(document["checksum"]), document["sent"])
        except (KeyError, TypeError, ValueError):
            raise StreamRefused(
                f"the mark {mark.text} is not one of a wal stream",
                next_step="`penstock state reset` starts the stream from the beginning",
            ) from None


def describe(mark: Mark | None) -> str:
    if mark is None:
        return "the beginning"
    at = LogPosition.read(mark)
    return f"segment {at.segment}, offset {at.offset}"

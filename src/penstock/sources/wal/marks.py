"""Marks of a wal stream: the log, the last record that was read, and each producer's last slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.marks import Mark
from penstock.errors import StreamRefused
from penstock.wal.ledger import Chunk, Ledger

#: slices of a producer that a mark names: one that is sent again with other contents is found among them
_RECENT = 8
#: digits of a slice's id in a mark
_ID_DIGITS = 16

#: a producer's last slices that were delivered: (number, beginning of the id), the newest last
Recent = tuple[tuple[int, str], ...]


class SentOtherwise(Exception):
    """A producer sends a slice with a number that was delivered under another id."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far a log was read."""

    #: the log's identity, in hexadecimal digits
    log: str
    segment: int
    #: where the next record begins
    offset: int
    #: where the record that ends here begins; None: none does, it is the beginning of a segment
    begins: int | None = None
    #: of that record
    checksum: int = 0
    #: batches that could be read up to here since the log began, and their rows
    batches: int = 0
    rows: int = 0
    #: by producer
    sent: Mapping[str, Recent] = field(default_factory=dict)

    def mark(self) -> Mark:
        return Mark.of(
            {
                "log": self.log,
                "at": [self.segment, self.offset],
                "begins": self.begins,
                "checksum": self.checksum,
                "total": [self.batches, self.rows],
                "sent": {name: [list(each) for each in recent] for name, recent in self.sent.items()},
            }
        )

    @classmethod
    def read(cls, mark: Mark) -> LogPosition:
        """StreamRefused if the mark is not one of ours."""
        document: dict[str, Any] = mark.document
        try:
            segment, offset = document["at"]
            begins, (batches, rows) = document["begins"], document["total"]
            return cls(
                str(document["log"]),
                int(segment),
                int(offset),
                None if begins is None else int(begins),
                int(document["checksum"]),
                int(batches),
                int(rows),
                {
                    str(name): tuple((int(number), str(id_)) for number, id_ in recent)
                    for name, recent in document["sent"].items()
                },
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise StreamRefused(
                f"the mark {mark.text} is not one of a wal stream",
                next_step="`penstock state reset` starts the stream from the beginning",
            ) from None

    def was_delivered(self, chunk: Chunk) -> bool:
        """Whether the slice of a chunk was delivered before. SentOtherwise if another one with its number was."""
        recent = self.sent.get(chunk.producer, ())
        for number, id_ in recent:
            if number == chunk.number:
                if id_ != chunk.slice[:_ID_DIGITS]:
                    raise SentOtherwise(
                        f"producer {chunk.producer} sends slice {chunk.number} as {chunk.slice}, and slice "
                        f"{chunk.number} was delivered as {id_}…"
                    )
                return True
        return bool(recent) and chunk.number < recent[0][0]

    def with_slice(self, chunk: Chunk) -> LogPosition:
        """After a slice was delivered."""
        recent = sorted({*self.sent.get(chunk.producer, ()), (chunk.number, chunk.slice[:_ID_DIGITS])})
        return replace(self, sent={**self.sent, chunk.producer: tuple(recent[-_RECENT:])})


def sent_by(ledger: Ledger) -> dict[str, Recent]:
    """The last whole slice of each producer of a ledger, as if all of them had been delivered."""
    return {
        name: ((each.last.number, each.last.slice[:_ID_DIGITS]),)
        for name, each in ledger.producers.items()
        if each.last is not None
    }


def describe(mark: Mark | None) -> str:
    if mark is None:
        return "the beginning"
    at = LogPosition.read(mark)
    return f"{at.segment}:{at.offset} (segment:offset), {at.batches:,} batches"

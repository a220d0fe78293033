"""Marks of an outbox stream: two snapshots of the server, and an id.

read      every document that this snapshot sees has been read
window    the snapshot whose documents are being read, in the order of their ids; None: none is
id        of the window's documents, those up to this id have been read
low       every document that `read` does not see has a higher id
later     a transaction that begins at this number or later writes only documents with higher ids than this one
last      no transaction that begins after `window` writes a document with an id up to this one
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.core.marks import Mark
from penstock.errors import StreamRefused

#: a snapshot that sees nothing
NOTHING = "1:1:"


@dataclass(frozen=True, slots=True)
class OutboxMark:
    """How far an outbox was read for one stream."""

    #: identifies the outbox: one that is made again under its name has another token
    token: str
    read: str = NOTHING
    window: str | None = None
    id: int = 0
    low: int = 0
    #: (transaction, id)
    later: tuple[int, int] = (0, 0)
    last: int = 0
    #: of the server when the mark was made
    timeline: int | None = None
    lsn: str | None = None

    def mark(self) -> Mark:
        return Mark.of(
            {
                "outbox": self.token,
                "read": self.read,
                "window": self.window,
                "id": self.id,
                "low": self.low,
                "later": list(self.later),
                "last": self.last,
                "timeline": self.timeline,
                "lsn": self.lsn,
            }
        )

    @classmethod
    def of(cls, mark: Mark) -> OutboxMark:
        """StreamRefused if the mark is not one of ours."""
        document: dict[str, Any] = mark.document
        try:
            transaction, id_ = document["later"]
            window = document["window"]
            return cls(
                str(document["outbox"]),
                _snapshot(document["read"]),
                None if window is None else _snapshot(window),
                int(document["id"]),
                int(document["low"]),
                (int(transaction), int(id_)),
                int(document["last"]),
                document["timeline"],
                document["lsn"],
            )
        except (KeyError, TypeError, ValueError):
            raise StreamRefused(
                f"the mark {mark.text} is not one of an outbox",
                next_step="`penstock state reset` starts the stream from the beginning of the outbox",
            ) from None

    def within(self, window: str, last: int, id_: int) -> OutboxMark:
        """After the documents up to an id, of those that a snapshot sees and `read` does not."""
        return replace(self, window=window, last=last, id=id_)

    def after(self, window: str, last: int) -> OutboxMark:
        """After all documents that a snapshot sees. `last`: the last id that was given before it was taken."""
        oldest, unborn = oldest_open(window), first_unborn(window)
        low, later = self.low, self.later
        if oldest >= unborn:
            # No transaction was open: every unseen document is of one that had not begun.
            low, later = max(low, last), (unborn, last)
        elif oldest >= later[0]:
            low, later = max(low, later[1]), (unborn, last)
        return replace(self, read=window, window=None, id=0, last=0, low=low, later=later)


def _snapshot(text: str) -> str:
    oldest, newest, others = text.split(":")
    if not 0 < int(oldest) <= int(newest):
        raise ValueError(text)
    _ = [int(each) for each in others.split(",") if each]
    return text


def oldest_open(snapshot: str) -> int:
    """The oldest transaction that a snapshot does not see; every one before it has ended."""
    return int(snapshot.split(":")[0])


def first_unborn(snapshot: str) -> int:
    """The first transaction that had not begun when a snapshot was taken."""
    return int(snapshot.split(":")[1])


def describe(mark: Mark | None) -> str:
    if mark is None:
        return "the beginning of the outbox"
    at = OutboxMark.of(mark)
    if at.window is not None:
        return f"document {at.id} of those that transactions before {first_unborn(at.window)} wrote"
    return f"all documents that transactions before {first_unborn(at.read)} had committed"

"""Marks of an outbox stream: two snapshots of the server, and ids.

The highest number in a snapshot says nothing of transactions that are open: it is that of the last one that ended. Who
may still commit a low id is known by the lock that it holds on the outbox.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.core.marks import Mark
from penstock.core.sizes import shown_size
from penstock.errors import StreamRefused
from penstock.sources.outbox.load.states import LOADING, PENDING, LoadState

#: (transaction, id): once this transaction and all before it have ended, no document up to the id is missing; the
#: transaction is 0 where none is open
Bound = tuple[int, int]

#: a snapshot that sees nothing
NOTHING = "1:1:"


@dataclass(frozen=True, slots=True)
class OutboxMark:
    """How far an outbox was read for one stream."""

    #: identifies the outbox: one that is made again under its name has another token
    token: str
    #: every document that this snapshot sees has been read
    read: str = NOTHING
    #: the snapshot whose documents are being read, in the order of their ids; None: none is
    window: str | None = None
    #: of the window's documents, those up to this id have been read
    id: int = 0
    #: every document that `read` does not see has a higher id
    low: int = 0
    #: where `low` goes next
    later: Bound = (0, 0)
    #: of the time when `window` was taken; None: not known
    bound: Bound | None = None
    #: of the server when the mark was made
    timeline: int | None = None
    lsn: str | None = None
    #: the first loads of the stream's tables
    loads: tuple[LoadState, ...] = ()
    #: slices that first loads have had
    load_slices: int = 0

    def mark(self) -> Mark:
        return Mark.of(
            {
                "outbox": self.token,
                "read": self.read,
                "window": self.window,
                "id": self.id,
                "low": self.low,
                "later": list(self.later),
                "bound": None if self.bound is None else list(self.bound),
                "timeline": self.timeline,
                "lsn": self.lsn,
                "loads": [each.document() for each in self.loads],
                "load_slices": self.load_slices,
            }
        )

    @classmethod
    def of(cls, mark: Mark) -> OutboxMark:
        """StreamRefused if the mark is not one of ours."""
        document: dict[str, Any] = mark.document
        try:
            window, bound = document["window"], document["bound"]
            return cls(
                str(document["outbox"]),
                _snapshot(document["read"]),
                None if window is None else _snapshot(window),
                int(document["id"]),
                int(document["low"]),
                _bound(document["later"]),
                None if bound is None else _bound(bound),
                document["timeline"],
                document["lsn"],
                # A mark of a penstock without first loads has none: everything is loaded.
                tuple(map(LoadState.of, document.get("loads", ()))),
                int(document.get("load_slices", 0)),
            )
        except (KeyError, TypeError, ValueError):
            raise StreamRefused(
                f"the mark {mark.text} is not one of an outbox",
                next_step="`penstock state reset` starts the stream from the beginning of the outbox",
            ) from None

    def within(self, window: str, bound: Bound | None, id_: int) -> OutboxMark:
        """After the documents up to an id, of those that a snapshot sees and `read` does not."""
        return replace(self, window=window, bound=bound, id=id_)

    def after(self, window: str, bound: Bound | None) -> OutboxMark:
        """After all documents that a snapshot sees. `bound`: of the time when it was taken; None: not known."""
        low, later, oldest = self.low, self.later, oldest_open(window)
        for each in (later, bound) if bound is not None else (later,):
            if each[0] < oldest:
                low = max(low, each[1])
        if bound is not None and later[0] < oldest:
            later = bound
        return replace(self, read=window, window=None, id=0, bound=None, low=low, later=later)


def _bound(value: Any) -> Bound:
    transaction, id_ = value
    return int(transaction), int(id_)


def _snapshot(text: str) -> str:
    oldest, newest, others = text.split(":")
    if not 0 < int(oldest) <= int(newest):
        raise ValueError(text)
    _ = [int(each) for each in others.split(",") if each]
    return text


def oldest_open(snapshot: str) -> int:
    """The number before which every transaction had ended when a snapshot was taken."""
    return int(snapshot.split(":")[0])


def newest_ended(snapshot: str) -> int:
    """One more than the last transaction that had ended when a snapshot was taken; a higher one may have been open."""
    return int(snapshot.split(":")[1])


def sees_all(snapshot: str, other: str) -> bool:
    """Whether a snapshot sees every transaction that another one sees."""
    (end, open_), (newest, still) = _parse(snapshot), _parse(other)
    return newest <= end and all(number >= newest or number in still for number in open_)


def _parse(snapshot: str) -> tuple[int, frozenset[int]]:
    _, newest, others = snapshot.split(":")
    return int(newest), frozenset(int(each) for each in others.split(",") if each)


def describe(mark: Mark | None) -> str:
    if mark is None:
        return "the beginning of the outbox"
    at = OutboxMark.of(mark)
    if at.window is not None:
        said = f"document {at.id} of those that snapshot {at.window} sees"
    else:
        said = f"all documents that snapshot {at.read} sees"
    loading = [describe_load(each) for each in at.loads if each.state == LOADING]
    pending = sum(each.state == PENDING for each in at.loads)
    still = [f"{pending} more {'is' if pending == 1 else 'are'} still to be loaded"] if pending else []
    older = ["until it ends and the changes made meanwhile are read, older values may show"] if loading else []
    return "; ".join([said, *loading, *older, *still])


def describe_load(state: LoadState) -> str:
    """How far a first load is, for people."""
    if state.state == PENDING:
        return f"{state.name} is still to be loaded"
    place = f", up to ({', '.join(state.columns)}) = ({', '.join(state.after)})" if state.after else ""
    rows = f"{state.rows:,} of about {max(state.rows, state.expected):,} rows"
    # A mark of an earlier penstock has no bytes.
    bytes_ = f", {shown_size(state.bytes_read)} of about {shown_size(state.bytes)}" if state.bytes else ""
    return f"{state.name} is being loaded{place}: {rows}{bytes_}"

"""The sink seam: what every sink does, and what some sinks can do besides."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from penstock.core.content import Content
from penstock.core.marks import Position
from penstock.core.outcome import Outcome
from penstock.core.slices import Receipt, Slice
from penstock.ports.rows import Writer
from penstock.ports.source import DiscoveredStream, Remark, StreamInfo


@dataclass(frozen=True, slots=True)
class Held:
    """The last slice a sink holds for a stream, and what it brought."""

    position: Position
    rows: int
    bytes: int
    #: what became of each row; None: this sink does not look at rows
    outcome: Outcome | None = None


class Sink(Protocol):
    """Where rows go. Holds the chain: the last slice of each stream, atomically with its data.

    Obligations that the contract suite tests:

    - Receipts are applied in the order of their parts, rows in the order of their part: of two rows with one key the
      last one wins, whether it is an upsert or a delete.
    - A position is given back verbatim: the mark and the content that `held` returns are those of the slice, byte for
      byte. A sink never reads a mark.
    """

    def connect(self) -> None:
        """Reach the sink and see that it can be written; writes nothing that stays."""
        ...

    def begin_run(self, streams: Sequence[StreamInfo]) -> Mapping[str, Collection[str]]:
        """The streams of this run, as the source's catalog has them; said once, before anything else is asked.

        InputError if they cannot be taken together (two into one table). Returns, for a stream, those that are to
        have nothing left before it begins (its table refers to theirs).
        """
        ...

    def check(self, stream: StreamInfo, content: Content) -> None:
        """StreamRefused if this sink cannot take the stream as configured (a partition column that is missing)."""
        ...

    def held(self, stream: str) -> Held | None:
        """The last slice this sink holds for the stream, whole; None: it never held one.

        Finishes what a committed slice still lacks. StreamStopped if it cannot be made whole.
        """
        ...

    def writer(self, slice_: Slice, attempt: str) -> Writer:
        """Where to put a slice aside; `attempt` is unique to this try of this process."""
        ...

    def commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> Outcome | None:
        """Make the slice visible at once, only after the one before it, and remember it in the chain.

        Returns what became of each row, where the sink looks at them one by one.

        Commits what the receipts name and nothing else. CommitUnclear if another slice with this number came
        first or the answer was lost: nothing may be deleted then. Crash at any point: `held` tells the truth.
        """
        ...

    def sweep(self, stream: str, held: Position) -> None:
        """Remove what attempts at slices up to `held` left behind; never what a committed slice names."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class ExplainingSink(Protocol):
    """A sink that can say where a stream lands and what holds there."""

    def explain(self, stream: StreamInfo, content: Content) -> Sequence[Remark]:
        """Where the stream lands and what holds there, what does not, and what would be better."""
        ...


@runtime_checkable
class Recovering(Protocol):
    """A sink that can make itself whole on the operator's word."""

    def recover(self, stream: str) -> Sequence[str]:
        """On the operator's word: make the sink whole, withdrawing, last first, slices that cannot be.

        Returns what was withdrawn, in words. Afterwards `held` succeeds.
        """
        ...


@runtime_checkable
class Sealing(Protocol):
    """A sink that delivers piece by piece: what it has staged is sealed before the first piece leaves."""

    def is_staged(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> bool:
        """Whether everything that the receipts name is still there and unchanged."""
        ...

    def describe_pieces(self, slice_: Slice, receipts: Sequence[Receipt]) -> Sequence[str]:
        """The pieces that may have been delivered already, one per line, for an operator who has to decide."""
        ...


@runtime_checkable
class Withdrawing(Protocol):
    """A sink whose receiver knows which slice is open, and can withdraw it."""

    def open_slice(self, stream: str) -> str | None:
        """The id of the slice of which some pieces have been delivered and not all; None: there is none."""
        ...

    def withdraw(self, stream: str, slice_id: str) -> Sequence[str]:
        """Remove what was delivered of an open slice; what was done, in words. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A row that a sink did not take and has put aside."""

    id: int
    stream: str
    #: the slice that brought it
    number: int
    #: its key, as JSON
    key: str
    #: the sink's own code; empty: it has none
    code: str
    reason: str
    at: datetime


@runtime_checkable
class Sweeping(Protocol):
    """A sink that sees at little cost what is left behind, so that a run sweeps even if it finds nothing new."""

    def sweep_all(self, held: Mapping[str, Position]) -> None:
        """As `Sink.sweep`, for several streams at once. Without the lease: only what no attempt can commit any more."""
        ...


@runtime_checkable
class Keyed(Protocol):
    """A sink that may keep one row for each key, so that a row which comes again takes the place of the one before."""

    def keeps_one_row(self, stream: StreamInfo) -> bool:
        """Whether it does so for the stream as it is configured. Asks nobody: the sink need not be connected."""
        ...


@runtime_checkable
class Proposing(Protocol):
    """A sink that proposes its own options for new streams, for `penstock init`."""

    def propose(self, streams: Sequence[DiscoveredStream]) -> Sequence[Mapping[str, Any]]:
        """The sink's options for each stream, in the same order. Asks nobody: the sink need not be connected."""
        ...


@runtime_checkable
class Quarantining(Protocol):
    """A sink that can put rows aside which it does not take. Needs no lease: no mark is moved."""

    def quarantined(self, streams: Sequence[str], *, limit: int) -> tuple[Mapping[str, int], Sequence[Quarantined]]:
        """How many rows of each stream are aside, and the oldest so many; of all streams if none is named."""
        ...

    def replay(self, stream: str, ids: Sequence[int], *, overwrite: bool) -> Outcome:
        """Try rows again, as they came; all of the stream if none is named. Those that stay are quarantined still.

        Unless `overwrite`, a row stays aside if the sink has its key and nothing says which of the two is newer.
        """
        ...

    def drop(self, streams: Sequence[str], ids: Sequence[int]) -> int:
        """Forget rows; how many there were."""
        ...


@runtime_checkable
class Noticing(Protocol):
    """A sink that can tell what becomes of its rows after they have landed."""

    def notices(self, stream: str) -> Sequence[str]:
        """What the operator of a pipeline that writes should know; empty: nothing. Asked once a run, so it is cheap."""
        ...


@runtime_checkable
class Archiving(Protocol):
    """A sink that can move what it holds for a stream out of the way, so that the stream can begin again."""

    def archive(self, stream: str, label: str) -> Sequence[str]:
        """Move the stream's rows and its chain, whole, to a place of their own; nothing is deleted.

        Under the lease. `label` makes the name of that place unique. Returns lines that say where the rows are now;
        empty: the sink held nothing. Afterwards `held` is None. Killed anywhere, the next call finishes it.
        StreamRefused if another pipeline uses the same place.
        """
        ...

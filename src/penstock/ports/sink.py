"""The interface of a sink, and the capabilities that some sinks have."""

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

    - Apply receipts in the order of their parts, and rows in the order of their part. Of two rows with one key the
      last one wins, upsert or delete.
    - Return positions verbatim: `held` returns the mark and the content of the slice, byte for byte. Never read a mark.
    - Keep the digest of a gathered slice (`Slice.spool`) if you compute a slice's id again: it is part of the id.
    """

    def connect(self) -> None:
        """Connect, and check that the sink is writable. Leaves nothing behind."""
        ...

    def begin_run(self, streams: Sequence[StreamInfo]) -> Mapping[str, Collection[str]]:
        """Learn the streams of this run, as the source's catalog has them. Called once, before the other methods.

        Returns, for a stream, the streams that must be caught up before it begins (its table refers to theirs).
        InputError if the sink cannot take the streams together (two into one table).
        """
        ...

    def check(self, stream: StreamInfo, content: Content) -> None:
        """Raise StreamRefused if the sink cannot take the stream as configured (a partition column is missing)."""
        ...

    def held(self, stream: str) -> Held | None:
        """Return the last slice that the sink holds for the stream; None: it has never held one.

        First finishes a slice that was committed and is not complete yet. StreamStopped if that is impossible.
        """
        ...

    def writer(self, slice_: Slice, attempt: str) -> Writer:
        """Return a writer that stages a slice. No other attempt of any process has the name `attempt`."""
        ...

    def commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> Outcome | None:
        """Make the slice visible in one step and record it in the chain, only if the sink holds its predecessor.

        Commit what the receipts name, and nothing else. Return the outcome of each row if the sink compares rows.
        Raise CommitUnclear if the sink holds another slice than the predecessor, or if an answer was lost; delete
        nothing then. After a crash at any point, `held` returns what is true.
        """
        ...

    def sweep(self, stream: str, held: Position) -> None:
        """Remove leftovers of attempts at slices up to `held`. Never remove what a committed slice names."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class ExplainingSink(Protocol):
    """A sink that explains where a stream lands and what it guarantees there."""

    def explain(self, stream: StreamInfo, content: Content) -> Sequence[Remark]:
        """Return where the stream lands, what is guaranteed there, what is not, and what would be better."""
        ...


@runtime_checkable
class Recovering(Protocol):
    """A sink that can repair itself when the operator asks for it."""

    def recover(self, stream: str) -> Sequence[str]:
        """Complete the last slices; withdraw those that cannot be completed, the last one first.

        Returns a line for each slice that was withdrawn. Afterwards `held` succeeds.
        """
        ...


@runtime_checkable
class Sealing(Protocol):
    """A sink that delivers piece by piece. penstock seals what it has staged before it sends the first piece."""

    def is_staged(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> bool:
        """Return whether everything that the receipts name is still there, unchanged."""
        ...

    def describe_pieces(self, slice_: Slice, receipts: Sequence[Receipt]) -> Sequence[str]:
        """Return one line for each piece that may have been delivered, for the operator who has to decide."""
        ...


@runtime_checkable
class Withdrawing(Protocol):
    """A sink whose receiver knows which slice is open, and can withdraw it."""

    def open_slice(self, stream: str) -> str | None:
        """Return the id of the slice that was delivered in part; None: there is none."""
        ...

    def withdraw(self, stream: str, slice_id: str) -> Sequence[str]:
        """Remove what was delivered of an open slice; return a line for each thing that was done. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A row that a sink did not take and keeps in quarantine."""

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
    """A sink that finds leftovers cheaply, so that a run sweeps even if it finds nothing new."""

    def sweep_all(self, held: Mapping[str, Position]) -> None:
        """As `Sink.sweep`, for several streams at once. Without the lease: only what no attempt can commit any more."""
        ...


@runtime_checkable
class Keyed(Protocol):
    """A sink that can keep one row for each key: a later row replaces the earlier one."""

    def keeps_one_row(self, stream: StreamInfo) -> bool:
        """Return whether it does so for the stream as configured. Works without a connection."""
        ...


@runtime_checkable
class Proposing(Protocol):
    """A sink that proposes its own options for new streams, for `penstock init`."""

    def propose(self, streams: Sequence[DiscoveredStream]) -> Sequence[Mapping[str, Any]]:
        """The sink's options for each stream, in the same order. Asks nobody: the sink need not be connected."""
        ...


@runtime_checkable
class Quarantining(Protocol):
    """A sink that can put rows into quarantine that it does not take. Needs no lease: no mark moves."""

    def quarantined(self, streams: Sequence[str], *, limit: int) -> tuple[Mapping[str, int], Sequence[Quarantined]]:
        """Return the number of quarantined rows by stream, and the oldest `limit` rows. No names: all streams."""
        ...

    def replay(self, stream: str, ids: Sequence[int], *, overwrite: bool) -> Outcome:
        """Try rows again, as they came. No ids: all rows of the stream. Rows that fail again stay in quarantine.

        Unless `overwrite`, a row stays there if the sink has its key and it is unknown which of the two is newer.
        """
        ...

    def drop(self, streams: Sequence[str], ids: Sequence[int]) -> int:
        """Delete rows from quarantine; return their number."""
        ...


@runtime_checkable
class Noticing(Protocol):
    """A sink that knows what happens to its rows after they have landed."""

    def notices(self, stream: str) -> Sequence[str]:
        """Return warnings for the operator. Called once in every run, so it is cheap."""
        ...


@runtime_checkable
class Archiving(Protocol):
    """A sink that can archive what it holds for a stream, so that the stream can begin again."""

    def archive(self, stream: str, label: str) -> Sequence[str]:
        """Move the stream's rows and its chain, whole, to a place of their own; nothing is deleted.

        Under the lease. `label` makes the name of that place unique. Returns lines that say where the rows are now;
        empty: the sink held nothing. Afterwards `held` is None. Killed anywhere, the next call finishes it.
        StreamRefused if another pipeline uses the same place.
        """
        ...

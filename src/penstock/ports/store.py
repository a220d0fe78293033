"""The interface of a store, which keeps leases, intents, marks and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from penstock.core.marks import Position
from penstock.core.outcome import Delivered, Outcome
from penstock.core.reports import DayOfRuns, Failure, LastLook, RunReport
from penstock.core.slices import Seal, Slice


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that runs a pipeline."""

    #: random, never used before
    token: str
    #: for people: host name and process id
    host: str
    pid: int
    #: machine boot, process namespace and start time: together they show whether the process has ended
    boot: str = ""
    started: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to move a pipeline's marks. For liveness; the chain is the safety."""

    pipeline: str
    owner: Owner
    #: grows with every change of owner
    epoch: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a pipeline now."""

    lease: Lease
    heartbeat: datetime
    expires: datetime


@dataclass(frozen=True, slots=True)
class StreamState:
    """What the store knows of one stream."""

    #: the last slice that is done; None: none yet
    last: Position | None = None
    #: the slice that was intended and is not done
    intent: Slice | None = None
    #: what was staged for the open intent, and counts whatever is staged again; None: nothing is sealed
    seal: Seal | None = None
    #: an operator asked for a reset that has not been carried out
    reset_wanted: bool = False
    #: why the stream stopped; None: it did not
    stopped: str | None = None
    #: grows with every change of the mark, whatever the reason
    version: int = 0
    #: rows and bytes delivered since the last reset
    rows: int = 0
    bytes: int = 0
    #: rows of the last slice that moved any (a refresh compares itself with it)
    last_rows: int = 0
    #: when the mark last moved
    moved_at: datetime | None = None
    #: what became of the rows delivered since the last reset; None: the sink does not look at rows
    outcome: Outcome | None = None
    #: the key after which the search for deleted rows goes on, as canonical JSON; None: it begins at the first key
    compared: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of a stream's history: a change of its mark."""

    version: int
    at: datetime
    #: advance, refresh, reset, rewind, undo, recover, repair
    reason: str
    position: Position | None
    rows: int
    run: str | None
    #: what became of the rows; None: the sink does not look at rows, or none came
    outcome: Outcome | None = None
    bytes: int = 0
    #: what the stream had delivered since its last reset, with this change
    total: Delivered = field(default_factory=Delivered)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One execution of a pipeline."""

    id: str
    pipeline: str
    started: datetime
    ended: datetime | None
    #: running, complete, limited, failed, interrupted, lost
    status: str
    has_more: bool
    #: the run that this one continues; None: it continues none
    continues: str | None
    #: what it has done over all continuations, as a JSON text: Progress.totals
    totals: str
    #: by stream, its progress as a JSON text: of the streams of which no later run had anything to report
    streams: Mapping[str, str] = field(default_factory=dict)
    #: run; or reset, rewind, undo, recover, migrate, repair: an operator's command
    verb: str = "run"


class Store(Protocol):
    """Where intents and marks live. Every write is one durable transaction.

    `intend`, `seal`, `advance`, `stop`, `save_compared`, `request_reset` and `rebuild` compare-and-set on the lease:
    LeaseLost if the lease is not ours any more, and nothing is written. Where the lease is ours but the stream does not
    stand where the caller thinks (only possible if someone restored the store), StreamFailed, and nothing is written.
    Reads after a write see it. A store that cannot be read is never taken for an empty one.

    A store does not grow without end: of changes and runs it keeps what its `HistoryLimits` say. The cost of a write
    does not depend on how many slices and runs there were before, nor on how many other streams there are.
    """

    def acquire(
        self, pipeline: str, owner: Owner, *, now: datetime, ttl: float, gone: Callable[[Owner], bool]
    ) -> Lease:
        """Take the pipeline if it is free, expired, or its owner is gone; PipelineHeld names the holder otherwise."""
        ...

    def heartbeat(self, lease: Lease, *, now: datetime, ttl: float) -> None:
        """Renew the lease; LeaseLost if another process took over."""
        ...

    def release(self, lease: Lease) -> None:
        """Release the pipeline; no error if another process has taken over."""
        ...

    def holder(self, pipeline: str) -> Holder | None: ...

    def streams(self, pipeline: str) -> Mapping[str, StreamState]:
        """Every stream the store knows of this pipeline."""
        ...

    def state(self, pipeline: str, stream: str) -> StreamState:
        """One stream; an unknown one is `StreamState()`."""
        ...

    def intend(self, lease: Lease, slice_: Slice, *, now: datetime, run: str) -> None:
        """Record a slice before it is moved, only if the stream stands at its predecessor with no open intent."""
        ...

    def seal(self, lease: Lease, slice_: Slice, seal: Seal, *, now: datetime) -> Seal:
        """Record what was staged, only if this slice is the open intent.

        Returns the seal that counts: the first one that was recorded.
        """
        ...

    def advance(
        self,
        lease: Lease,
        slice_: Slice,
        *,
        rows: int,
        bytes_: int,
        now: datetime,
        run: str,
        outcome: Outcome | None = None,
    ) -> int:
        """Mark := slice.upto, slice := done, history + 1, a recorded stop cleared, in one transaction.

        Only if this slice is the open intent. Rows, bytes and what became of them are added to the stream's; a reset
        slice sets them to nothing instead and clears `reset_wanted`; an undo that leads to a version before a reset
        sets them to what was delivered up to that version and since. Returns the new version.
        """
        ...

    def stop(self, lease: Lease, stream: str, reason: str | None, *, now: datetime) -> None:
        """Record why a stream stopped, or that it no longer is (None)."""
        ...

    def save_compared(self, lease: Lease, stream: str, compared: str | None) -> None:
        """Record where the search for deleted rows goes on. No mark rests on it."""
        ...

    def request_reset(self, lease: Lease, stream: str, *, now: datetime) -> None:
        """Ask for a reset; it becomes a slice once an open intent is resolved."""
        ...

    def rebuild(
        self,
        lease: Lease,
        stream: str,
        held: Position | None,
        *,
        now: datetime,
        run: str | None,
        sealed: tuple[Slice, Seal] | None = None,
    ) -> int:
        """Set the stream to what the sink holds, dropping an open intent and a stop; history + 1.

        `sealed` is a slice that follows `held` and is sealed: it becomes the open intent, with its seal.
        """
        ...

    def history(self, pipeline: str, stream: str, *, most: int = 50) -> Sequence[Change]:
        """Changes of the mark, newest first, without a gap between them."""
        ...

    def start_run(self, lease: Lease, run: str, *, now: datetime, verb: str = "run") -> RunRecord:
        """Begin a run; it continues the last one if that ended with more to do, or never ended.

        An operator's command continues nothing, and nothing continues it.
        """
        ...

    def save_progress(self, lease: Lease, run: str, *, totals: str, streams: Mapping[str, str]) -> None:
        """Keep a run's progress so far, so that the run after a killed one can go on counting.

        `streams` are those whose progress has changed since it was last kept.
        """
        ...

    def end_run(
        self,
        lease: Lease,
        run: str,
        *,
        now: datetime,
        status: str,
        has_more: bool,
        totals: str,
        streams: Mapping[str, str | None],
    ) -> None:
        """Close a run; does nothing if the lease is lost: a run that was replaced reports nothing.

        `streams` as in `save_progress`; None: the stream has nothing to report, and an earlier report is removed.
        """
        ...

    def runs(self, pipeline: str, *, most: int = 20) -> Sequence[RunRecord]:
        """Runs of a pipeline, newest first."""
        ...

    def save_report(self, pipeline: str, report: RunReport) -> None:
        """Keep how an execution ended. Without the lease: no mark rests on it, and several may do so at once.

        Its cost does not depend on how many streams there are, but for those that failed or had failed before.
        """
        ...

    def failures(self, pipeline: str) -> Mapping[str, Failure]:
        """The last error of each stream that ever failed, and of the pipeline itself under WHOLE_RUN."""
        ...

    def last_looks(self, pipeline: str) -> Sequence[LastLook]:
        """The last look at all streams, and at each selection of streams, newest first."""
        ...

    def days(self, pipeline: str, *, most: int = 14) -> Sequence[DayOfRuns]:
        """Days on which the pipeline was run, newest first."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class WaitReporting(Protocol):
    """A store that can say that it waits for another process."""

    def report_waits(self, say: Callable[[str], None]) -> None:
        """Call `say` when a write has waited for some seconds, in the thread that waits."""
        ...

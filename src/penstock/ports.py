"""The seams: Source, Sink, Store, Mover, Clock, Probe, and what each must keep.

The engine knows these and `core`, nothing else. A suite in `penstock.testing` checks each obligation
against every implementation. Methods raise the errors of `penstock.errors`; anything else is a defect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.outcome import Delivered, Outcome
from penstock.core.reports import DayOfRuns, Failure, LastLook, RunReport
from penstock.core.slices import Kind, Part, Receipt, Slice

if TYPE_CHECKING:
    import pyarrow as pa

# ---------------------------------------------------------------- rows


class Reader(Protocol):
    """A slice's rows, from inside a worker. Small and picklable; opens its own connections."""

    def open(self, part: Part) -> pa.RecordBatchReader:
        """The part's rows, batch by batch, each batch bounded in bytes.

        Every part of a slice has the same schema. A batch may carry a column `_change` ('upsert' or
        'delete'); without it every row is an upsert. Ending the reader or letting go of it frees its connection.
        """
        ...


class Writer(Protocol):
    """Where a slice's rows are put aside, from inside a worker. Small and picklable."""

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        """Put the part aside durably under a name of this attempt alone; nothing becomes visible.

        Two attempts at one part, even at the same time, must not disturb each other.
        """
        ...


# ---------------------------------------------------------------- the source


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One stream of a source, as the catalog shows it."""

    #: the stream's name
    name: str
    #: ROWS: incremental by a cursor; REFRESH: read whole in every run
    kind: Kind
    #: columns that identify a row; () if none
    primary_key: tuple[str, ...] = ()
    #: the order it is read in, e.g. ("updated_at", "id")
    order: tuple[str, ...] = ()
    #: why it is listed but not synced; None: it is
    skipped: str | None = None
    #: the user's word that a full refresh with far fewer rows than before is meant
    accept_drop: bool = False
    #: rows arrive in the order of `order`, across parts and slices
    in_order: bool = False

    def newest_by(self, key: Sequence[str]) -> str | None:
        """The column that says which of two rows with one sink key is newer; None: the row that arrives last is.

        Several rows of the source share a sink key that does not contain the primary key, and neither the rows of a
        slice nor the slices of a first load follow the cursor: the rows must be compared by it.
        """
        shared = not self.primary_key or not set(self.primary_key) <= set(key)
        return self.order[0] if key and shared and self.order and not self.in_order else None


@dataclass(frozen=True, slots=True)
class Budget:
    """How large the next slice may be."""

    #: bytes of Arrow data to aim for
    bytes: int
    #: at most this many rows; None: any number
    rows: int | None = None
    #: bytes per row seen in the slice before; None: not known yet
    row_bytes: float | None = None
    #: how many workers can move parts at the same time
    workers: int = 1
    #: asked only whether there is anything: the bounds of the answer are not used, so they need not be worked out
    look: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """The next slice, as the source proposes it."""

    #: the mark it leads to
    upto: Mark
    #: what it does
    kind: Kind = Kind.ROWS
    #: how it is cut and what to expect; kept with the intent, not part of its id
    plan: Document = field(default_factory=dict)
    #: rows to expect; None: not known
    rows: int | None = None
    #: whether the rows were counted, not estimated
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What a Mover needs to read one slice."""

    reader: Reader
    parts: Sequence[Part]
    #: what the source has no longer as the slice says, and gives otherwise without losing a value (a column that is
    #: gone as NULL), in words
    changed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that holds for a stream, or does not, and that its user should know before trusting it."""

    #: guarantee: it holds; gap: it does not; advice: what would make it better or quicker
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Remaining:
    """What lies between a stream's mark and the run's ceiling, and what lies above it for the time being."""

    #: rows; None: nobody knows without counting
    rows: int | None
    #: counted, not estimated
    exact: bool = False
    #: rows that are there but may not be read yet; None: not known
    held_back: int | None = None
    #: who keeps them from being read, in words
    blocker: str | None = None
    #: what an operator should look at, in words: someone has kept them from being read for long
    warning: str | None = None
    #: how far it is safe to read now and what that rests on, in words; None: nobody asked
    horizon: str | None = None
    #: that nothing below can still appear: proven, or assumed; None: nobody asked
    proven: bool | None = None


@dataclass(frozen=True, slots=True)
class DiscoveredStream:
    """Something that a source could give as a stream, and how it would best be read."""

    #: the stream's name
    name: str
    #: table, view, partitioned table, …
    what: str
    #: (name, type in the source's own words), in order
    columns: tuple[tuple[str, str], ...]
    primary_key: tuple[str, ...] = ()
    #: by statistics, not counted; None: never counted
    rows: int | None = None
    bytes: int | None = None
    #: the stream's options that are proposed, as a pipeline file has them
    options: Mapping[str, Any] = field(default_factory=dict)
    #: why these, and what would be better, in words
    reasons: tuple[str, ...] = ()
    #: why it cannot be read, with what to do about it; None: it can
    refused: str | None = None


class Source(Protocol):
    """Where rows come from. Knows nothing of sinks."""

    def connect(self) -> None:
        """Reach the source; ConnectionFailed if it cannot be reached."""
        ...

    def catalog(self) -> Sequence[StreamInfo]:
        """The streams to sync, by configuration or discovery; a configured one is listed even if broken.

        InputError if the configuration names a place that is not there (a schema).
        """
        ...

    def discover(self) -> Sequence[DiscoveredStream]:
        """Everything the source could give, configured or not, with a proposal for each. Reads no rows, writes nothing.

        Each proposal, written into a pipeline file as it is, is accepted by `content`.
        """
        ...

    def content(self, stream: str) -> Content:
        """Validate the stream and say what would be read now: schema, columns, filter, key, identity.

        StreamRefused, with the reason and the next step, before anything is read. The same configuration
        and the same table give the same content in every process. `shape` and `drift` are not the source's to
        set.
        """
        ...

    def accept(self, stream: str, last: Position, content: Content) -> None:
        """Check that a stored position fits what would be read now.

        StreamRefused if the mark is malformed, or was made under another key or by another database.
        """
        ...

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        """Put in order what reading needs, once in a run, under the lease and before its first plan.

        A lake's reader registers itself and has rows without a place in the order stamped. Returns what was done
        that a user should know, in words. Idempotent: it may be killed anywhere and is asked again.
        """
        ...

    def caught_up(self, stream: str, last: Position) -> None:
        """A run that has moved something has nothing left: the source may let go of what lies below.

        Under the lease. Missing it, by a kill or a limit, only keeps more until the next run prepares.
        """
        ...

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        """The highest place this run will read to, frozen for the run; None: there is nothing to read.

        `after` is where the stream is: its mark may hold what was known when it was made. A ceiling whose `held` is
        true says that someone keeps rows above it from being read: `remaining` says who, and a run tells it even if it
        has nothing to move.
        """
        ...

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        """The next slice after a mark, within ceiling and budget; None: nothing new. Writes nothing."""
        ...

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        """What a run still has before it after a mark. Cheap: estimated where counting would read rows."""
        ...

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        """What holds for this stream as it is configured, what does not, and what would be better."""
        ...

    def reading(self, slice_: Slice) -> AbstractContextManager[Reading]:
        """Read a slice exactly as its own content and bounds say, also when the configuration has changed.

        The parts cover the slice: every row in it is in exactly one part. StreamRefused if the source can no
        longer give what the content says (another database, a column of another type). A column that is gone may be
        given as NULL, which `changed` says; never one whose values are still there.
        """
        ...

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        """The mark for a place that a user names (a number, a time); None: the beginning.

        Also where `accept` would refuse `last`: going elsewhere may be the way out (rows that are gone by retention).
        StreamRefused if this source has no such place, or not any more, or cannot go back at all.
        """
        ...

    def describe(self, mark: Mark | None) -> str:
        """A mark in words, for people."""
        ...

    def close(self) -> None: ...


# ---------------------------------------------------------------- the sink


@dataclass(frozen=True, slots=True)
class Held:
    """The last slice a sink holds for a stream, and what it brought."""

    position: Position
    rows: int
    bytes: int
    #: what became of each row; None: this sink does not look at rows
    outcome: Outcome | None = None


class Sink(Protocol):
    """Where rows go. Holds the chain: the last slice of each stream, atomically with its data."""

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

    def explain(self, stream: StreamInfo, content: Content) -> Sequence[Remark]:
        """Where the stream lands and what holds there, what does not, and what would be better."""
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

    def recover(self, stream: str) -> Sequence[str]:
        """On the operator's word: make the sink whole, withdrawing, last first, slices that cannot be.

        Returns what was withdrawn, in words. Afterwards `held` succeeds.
        """
        ...

    def close(self) -> None: ...


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


# ---------------------------------------------------------------- the store


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that runs a pipeline."""

    #: random, never used before
    token: str
    #: for people: host name and process id
    host: str
    pid: int
    #: machine boot, process namespace and start time: together they tell whether the process is gone
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


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of a stream's history: a change of its mark."""

    version: int
    at: datetime
    #: advance, refresh, reset, rewind, undo, recover
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
    #: the run this one continues; None: it began anew
    continues: str | None
    #: what it has done over all continuations, as a JSON text: Progress.totals
    totals: str
    #: by stream, its progress as a JSON text: of the streams of which no later run had anything to report
    streams: Mapping[str, str] = field(default_factory=dict)
    #: run; or reset, rewind, undo, recover, migrate: an operator's command, which moves no rows of its own
    verb: str = "run"


class Store(Protocol):
    """Where intents and marks live. Every write is one durable transaction.

    `intend`, `advance`, `stop`, `request_reset` and `rebuild` compare-and-set on the lease: LeaseLost if the lease is
    not ours any more, and nothing is written. Where the lease is ours but the stream does not stand where the
    caller thinks (only possible if someone restored the store), StreamFailed, and nothing is written. Reads after a
    write see it. A store that cannot be read is never taken for an empty one.

    A store does not grow without end: of changes and runs it keeps what its `HistoryLimits` say. The cost of a write
    does not depend on how many slices and runs there were before, nor on how many other streams there are.
    """

    def acquire(
        self, pipeline: str, owner: Owner, *, now: datetime, ttl: float, gone: Callable[[Owner], bool]
    ) -> Lease:
        """Take the pipeline if it is free, expired, or its owner is gone; PipelineHeld names the holder otherwise."""
        ...

    def heartbeat(self, lease: Lease, *, now: datetime, ttl: float) -> None:
        """Say that we live; LeaseLost if someone took over."""
        ...

    def release(self, lease: Lease) -> None:
        """Give the pipeline back; quiet if it is not ours any more."""
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

    def request_reset(self, lease: Lease, stream: str, *, now: datetime) -> None:
        """Ask for a reset; it becomes a slice once an open intent is resolved."""
        ...

    def rebuild(self, lease: Lease, stream: str, held: Position | None, *, now: datetime, run: str | None) -> int:
        """Set the stream to what the sink holds, dropping an open intent and a stop; history + 1."""
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
        """Close a run; quiet if the lease is lost: a run that was replaced says nothing.

        `streams` as in `save_progress`; None: there is nothing to report of it, and what an earlier run had is over.
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


# ---------------------------------------------------------------- the rest


Made = TypeVar("Made")


class Spark(Protocol):
    """The one Spark session of a process, for relational work; the Mover moves its parts on the same one."""

    def needs(self, settings: Mapping[str, str], packages: Sequence[str] = ()) -> None:
        """Settings and Maven packages that the session must start with; said before anyone starts it."""
        ...

    def session(self) -> Any:
        """The session, started at the first call; InputError with what to install if it cannot be."""
        ...

    def wait(self, work: Callable[[], Made], failed: str = "Spark failed") -> Made:
        """Run a Spark action beside this thread, so that a signal can end the wait.

        A PenstockError arrives as itself, anything else as a StreamFailed that begins with `failed`, caused by it.
        """
        ...


class NoSpark:
    """Where there is no Spark: a part of the engine's own tests."""

    def needs(self, settings: Mapping[str, str], packages: Sequence[str] = ()) -> None:
        return None

    def session(self) -> Any:
        raise RuntimeError("there is no Spark here")

    def wait(self, work: Callable[[], Made], failed: str = "Spark failed") -> Made:
        raise RuntimeError("there is no Spark here")


def say_nothing(stream: str, text: str) -> None:
    """Where nobody listens."""


def no_mover() -> Mover:
    """Where nothing is moved by the source or sink itself."""
    raise RuntimeError("there is no mover here")


@dataclass(frozen=True, slots=True)
class Context:
    """What every source and sink is built with, besides its options.

    A module that offers one has `Options` and `StreamOptions` (Pydantic models) and
    `build(options, streams, context)`; `streams` maps names to StreamOptions.
    """

    #: the pipeline's name
    pipeline: str
    #: the folder of the pipeline file; relative paths start here
    folder: str
    #: for tests
    probe: Probe
    #: for relational work: a keyed merge, upkeep
    spark: Spark = field(default_factory=NoSpark)
    #: for rows that a source or sink must rewrite itself: a lake's rows without a place in the order
    mover: Callable[[], Mover] = no_mover
    #: print a line about a stream at once: for work that takes long
    say: Callable[[str, str], None] = say_nothing


class Mover(Protocol):
    """Moves a slice's parts from a reader to a writer, somewhere."""

    @property
    def workers(self) -> int:
        """How many parts move at the same time. A cluster may say so only after the first move."""
        ...

    def begin(self) -> None:
        """Begin to start what takes long, beside the caller: there is something to move. Returns at once. Idempotent.

        `close` ends it, also if nothing was moved after all.
        """
        ...

    def warm(self) -> None:
        """Start what takes long, before something is held for `move`: a snapshot, a lock. Idempotent."""
        ...

    def move(self, reader: Reader, writer: Writer, parts: Sequence[Part]) -> Sequence[Receipt]:
        """Move every part; one receipt per part. Failed parts are tried again here, within reason.

        StreamFailed, with the worker's own reason, when a part cannot be moved.
        """
        ...

    def cancel(self) -> None:
        """Ask a running `move` to end soon, from a signal handler or another thread; returns at once.

        What was put aside stays unseen. A `move` that gives up raises StreamFailed.
        """
        ...

    def close(self) -> None: ...


class Clock(Protocol):
    """Time, as an argument."""

    def now(self) -> datetime:
        """The time of day, in UTC."""
        ...

    def elapsed(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class Probe(Protocol):
    """Named points at which a test may stop, kill or freeze the process. Does nothing outside tests."""

    def at(self, point: str, **about: Any) -> None: ...


class NoProbe:
    """The probe outside tests."""

    def at(self, point: str, **about: Any) -> None:
        return None

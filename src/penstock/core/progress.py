"""Progress: what a run has done and is doing, as a fold over messages.

The terminal, the status command and, later, the dashboard and the metrics all render this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import singledispatch
from typing import Any

from penstock.core.fetches import FetchCounts
from penstock.core.messages import (
    Catalog,
    ConnectionStatus,
    Eof,
    Message,
    MessageRefused,
    MoverStatus,
    RowsRemaining,
    StateChanged,
    Status,
    StepDone,
    StreamStatus,
    WorkProgress,
    stamp,
)
from penstock.core.outcome import Outcome


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """One stream within a run."""

    status: Status = Status.PENDING
    #: rows and bytes whose slices are done
    rows: int = 0
    bytes: int = 0
    #: what became of them (created, updated, …); None: the sink does not look at rows
    outcome: Mapping[str, int] | None = None
    #: slices done: as many checkpoints
    slices: int = 0
    #: the current slice and its last step
    number: int | None = None
    step: str | None = None
    #: rows expected in the current slice
    expected: int | None = None
    #: rows up to the run's ceiling that are not done; None: not known
    left: int | None = None
    #: whether they were counted, not estimated
    left_exact: bool = False
    #: rows above the ceiling that may not be read yet, and who keeps them from being read
    held_back: int | None = None
    blocker: str | None = None
    #: how far it is safe to read, and whether that is proven or assumed
    horizon: str | None = None
    proven: bool | None = None
    #: what the source or sink is doing that takes long, and how much of how much is done; None: nothing was reported
    doing: str | None = None
    doing_done: int | None = None
    doing_total: int | None = None
    #: what fetching has cost in this execution; None: nothing was fetched
    fetched: FetchCounts | None = None
    #: the newest mark
    mark: str | None = None
    #: the highest version of the mark that was counted: a replayed message is not counted twice
    version: int = 0
    error: str | None = None
    next_step: str | None = None

    @property
    def is_worth_keeping(self) -> bool:
        """Whether there is more to report than that it was looked at and had nothing new."""
        return bool(self.slices or self.error or self.horizon or self.blocker or self.held_back is not None)


@dataclass(frozen=True, slots=True)
class Progress:
    """A run as a whole."""

    pipeline: str | None = None
    started: datetime | None = None
    updated: datetime | None = None
    streams: Mapping[str, StreamProgress] = field(default_factory=dict)
    #: the connection that failed
    disconnected: str | None = None
    #: the program that is being started to move rows, and since when; None: none is
    starting: str | None = None
    starting_since: datetime | None = None
    #: set by the last message
    ended: str | None = None
    has_more: bool = False
    #: why it ended before everything was done, and what to do about it
    reason: str | None = None
    next_step: str | None = None

    @property
    def rows(self) -> int:
        return sum(stream.rows for stream in self.streams.values())

    @property
    def bytes(self) -> int:
        return sum(stream.bytes for stream in self.streams.values())

    @property
    def slices(self) -> int:
        return sum(stream.slices for stream in self.streams.values())

    @property
    def elapsed(self) -> float:
        """Seconds from the first message to the newest."""
        if self.started is None or self.updated is None:
            return 0.0
        return (self.updated - self.started).total_seconds()

    @property
    def status(self) -> str:
        """Derived: failed only when nothing is active any more."""
        if self.ended:
            return self.ended
        if self.disconnected:
            return "failed"
        states = [stream.status for stream in self.streams.values()]
        active = (Status.PENDING, Status.START, Status.RUNNING, Status.RANGE_COMPLETE)
        if not states or any(state in active for state in states):
            return "running"
        return "failed" if Status.ERROR in states else "complete"

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "pipeline": self.pipeline,
            "status": self.status,
            "started": stamp(self.started) if self.started else None,
            "updated": stamp(self.updated) if self.updated else None,
            "rows": self.rows,
            "bytes": self.bytes,
            "slices": self.slices,
            "has_more": self.has_more,
            "streams": [{"stream": name} | asdict(stream) for name, stream in sorted(self.streams.items())],
        }

    def totals(self) -> dict[str, Any]:
        """What all streams have done together, as JSON."""
        known = [Outcome(**stream.outcome) for stream in self.streams.values() if stream.outcome is not None]
        return {
            "started": stamp(self.started) if self.started else None,
            "rows": self.rows,
            "bytes": self.bytes,
            "slices": self.slices,
            "outcome": sum(known, Outcome()).document() if known else None,
        }

    @classmethod
    def continued(cls, document: Mapping[str, Any]) -> Progress:
        """The start of an execution that continues a run: its counts go on, everything else starts again."""
        started = document.get("started")
        streams = {
            s["stream"]: StreamProgress(
                rows=s["rows"],
                bytes=s["bytes"],
                outcome=s.get("outcome"),
                slices=s["slices"],
                mark=s["mark"],
                version=s["version"],
            )
            for s in document.get("streams", [])
        }
        return cls(
            pipeline=document.get("pipeline"),
            started=datetime.fromisoformat(started) if started else None,
            streams=streams,
        )


def apply(progress: Progress, message: Message) -> Progress:
    """The progress after a message."""
    if message.ts is None:
        raise MessageRefused(f"a {message.type} message without _ts")
    later = message.ts if progress.updated is None else max(progress.updated, message.ts)
    progress = replace(progress, started=progress.started or message.ts, updated=later)
    return _apply(message, progress)


def fold(messages: Iterable[Message], progress: Progress | None = None) -> Progress:
    progress = progress or Progress()
    for message in messages:
        progress = apply(progress, message)
    return progress


def _with(progress: Progress, name: str, **new: Any) -> Progress:
    stream = replace(progress.streams.get(name, StreamProgress()), **new)
    return replace(progress, streams={**progress.streams, name: stream})


#: a step is done: what was reported within it is over
_IDLE: dict[str, Any] = {"doing": None, "doing_done": None, "doing_total": None}


@singledispatch
def _apply(_message: Message, progress: Progress) -> Progress:
    return progress


@_apply.register
def _(message: Catalog, progress: Progress) -> Progress:
    known = progress.streams
    listed = {
        s.stream: replace(
            known.get(s.stream, StreamProgress()),
            status=Status.SKIP if s.skipped else Status.PENDING,
            error=s.skipped,
        )
        for s in message.streams
    }
    return replace(progress, pipeline=message.pipeline, streams={**known, **listed})


@_apply.register
def _(message: StreamStatus, progress: Progress) -> Progress:
    new: dict[str, Any] = {"status": message.status, "error": message.reason, "next_step": message.next_step}
    new |= _IDLE
    if message.status is Status.COMPLETE:
        new |= {"left": 0, "left_exact": True}
    if message.status is Status.ERROR:
        progress = replace(progress, starting=None, starting_since=None)
    return _with(progress, message.stream, **new)


@_apply.register
def _(message: ConnectionStatus, progress: Progress) -> Progress:
    if message.connected:
        return progress
    return replace(progress, disconnected=f"{message.side}: {message.reason}", next_step=message.next_step)


@_apply.register
def _(message: MoverStatus, progress: Progress) -> Progress:
    if message.ready:
        return replace(progress, starting=None, starting_since=None)
    return replace(progress, starting=message.program, starting_since=message.ts)


@_apply.register
def _(message: StepDone, progress: Progress) -> Progress:
    new: dict[str, Any] = {"number": message.number, "step": message.step, **_IDLE}
    if message.step == "intend":
        new["expected"] = message.rows
    return _with(progress, message.stream, **new)


@_apply.register
def _(message: RowsRemaining, progress: Progress) -> Progress:
    found = message.document()
    return _with(progress, message.stream, left=found.pop("rows"), left_exact=found.pop("exact"), **found)


@_apply.register
def _(message: WorkProgress, progress: Progress) -> Progress:
    new: dict[str, Any] = {"doing": message.doing, "doing_done": message.done, "doing_total": message.total}
    return _with(progress, message.stream, **new, **({"fetched": message.fetched} if message.fetched else {}))


@_apply.register
def _(message: StateChanged, progress: Progress) -> Progress:
    known = progress.streams.get(message.stream, StreamProgress())
    if message.version <= known.version:
        return progress
    return _with(
        progress,
        message.stream,
        rows=known.rows + message.rows,
        bytes=known.bytes + message.bytes,
        outcome=_summed(known.outcome, message.outcome),
        slices=known.slices + 1,
        number=message.number,
        step="advance",
        expected=None,
        left=None if known.left is None else max(0, known.left - message.rows),
        mark=message.mark,
        version=message.version,
    )


def _summed(known: Mapping[str, int] | None, more: Mapping[str, int] | None) -> Mapping[str, int] | None:
    if known is None or more is None:
        return more if known is None else known
    return {name: known.get(name, 0) + more.get(name, 0) for name in {**known, **more}}


@_apply.register
def _(message: Eof, progress: Progress) -> Progress:
    return replace(
        progress,
        streams={name: replace(stream, **_IDLE) for name, stream in progress.streams.items()},
        starting=None,
        starting_since=None,
        ended=message.status,
        has_more=message.has_more,
        reason=message.reason,
        next_step=message.next_step or progress.next_step,
    )

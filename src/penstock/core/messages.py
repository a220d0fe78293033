"""Messages: everything that happens in a run, each with its time.

A run says first its `catalog`, last its `eof`. As JSON a message is one line with `type` and `_ts`.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

from penstock.core.fetches import FetchCounts
from penstock.errors import filled


class Status(enum.StrEnum):
    """Where a stream is within a run."""

    PENDING = "pending"  # known, not begun
    START = "start"
    RUNNING = "running"
    RANGE_COMPLETE = "range_complete"  # a slice is done
    COMPLETE = "complete"  # nothing left below the run's ceiling
    ERROR = "error"
    SKIP = "skip"


class MessageRefused(ValueError):
    """A message that no reducer may take."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """What happened, and when."""

    type: ClassVar[str] = ""
    #: when it happened, in UTC; set once, by the emitter
    ts: datetime | None = None

    def stamped(self, now: datetime) -> Self:
        return dataclasses.replace(self, ts=now)


@dataclass(frozen=True, slots=True)
class CatalogStream:
    """One stream, as the catalog message lists it."""

    stream: str
    kind: str
    primary_key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class Catalog(Message):
    """The streams of this run; the first message."""

    type: ClassVar[str] = "catalog"
    pipeline: str
    run: str
    streams: tuple[CatalogStream, ...]


@dataclass(frozen=True, kw_only=True)
class StreamStatus(Message):
    """A stream's status changed."""

    type: ClassVar[str] = "stream_status"
    stream: str
    status: Status
    #: why, for error and skip
    reason: str | None = None
    #: what is safe all the same
    safe: str | None = None
    #: what to do about it
    next_step: str | None = None
    #: whether the stream stopped because sink and store disagree
    stopped: bool = False


@dataclass(frozen=True, kw_only=True)
class ConnectionStatus(Message):
    """A connection was made or failed."""

    type: ClassVar[str] = "connection_status"
    side: str
    connected: bool
    reason: str | None = None
    safe: str | None = None
    next_step: str | None = None


@dataclass(frozen=True, kw_only=True)
class MoverStatus(Message):
    """The program that moves rows is being started, or is ready."""

    type: ClassVar[str] = "mover_status"
    #: its name
    program: str
    ready: bool = False


@dataclass(frozen=True, kw_only=True)
class StepDone(Message):
    """A step of the gate is done for a stream's slice."""

    type: ClassVar[str] = "progress"
    stream: str
    #: gather, intend, move, seal or commit
    step: str
    number: int
    #: rows moved; for `intend` those expected, if known
    rows: int | None = None
    bytes: int | None = None
    parts: int | None = None
    #: whether an earlier run had begun this slice
    resumed: bool = False
    #: for `commit`, what became of the rows (created, updated, …); None: the sink does not look at them
    outcome: dict[str, int] | None = None


@dataclass(frozen=True)
class RemainingRows:
    """Rows up to the run's ceiling, the current slice included, and rows held back above it."""

    #: rows; None: unknown without counting them
    rows: int | None
    #: counted, not estimated
    exact: bool = False
    #: rows above the ceiling that may not be read yet; None: not known
    held_back: int | None = None
    #: what keeps them from being read
    blocker: str | None = None
    #: how far it is safe to read now, and why; None: the source has no horizon
    horizon: str | None = None
    #: whether it is proven, not assumed, that no row appears below; None: not examined
    proven: bool | None = None

    def document(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(RemainingRows)}


@dataclass(frozen=True, kw_only=True)
class RowsRemaining(RemainingRows, Message):
    """What a stream has before it at this moment."""

    type: ClassVar[str] = "remaining"
    stream: str


@dataclass(frozen=True, kw_only=True)
class WorkProgress(Message):
    """How far a source or sink is with something that takes long: a gather, a commit."""

    type: ClassVar[str] = "work"
    stream: str
    #: what it does
    doing: str
    #: how much of it is done, in whatever it counts; None: not counted
    done: int | None = None
    #: how much there is; None: not known
    total: int | None = None
    #: what fetching has cost so far, and which parts are done; None: nothing is fetched
    fetched: FetchCounts | None = None


@dataclass(frozen=True, kw_only=True)
class StateChanged(Message):
    """A stream's mark moved."""

    type: ClassVar[str] = "state"
    stream: str
    #: grows with every change of this stream's mark
    version: int
    number: int
    slice_id: str
    #: the mark's canonical JSON; None: the beginning
    mark: str | None
    #: advance, refresh, begin, reset, rewind, undo, recover, repair
    reason: str
    rows: int = 0
    bytes: int = 0
    #: what became of the rows (created, updated, …); None: the sink does not look at them
    outcome: dict[str, int] | None = None
    #: the mark as its source describes it to people
    at: str | None = None


@dataclass(frozen=True, kw_only=True)
class Log(Message):
    """Something worth a line."""

    type: ClassVar[str] = "log"
    level: str
    text: str
    stream: str | None = None


@dataclass(frozen=True, kw_only=True)
class Eof(Message):
    """The last message of a run."""

    type: ClassVar[str] = "eof"
    #: complete, limited, failed, interrupted, lost
    status: str
    exit_code: int
    has_more: bool
    #: why it ended before everything was done
    reason: str | None = None
    #: what is safe all the same
    safe: str | None = None
    next_step: str | None = None
    ending_state: dict[str, Any] = field(default_factory=dict)
    #: over all continuations of the run
    run_progress: dict[str, Any] = field(default_factory=dict)
    #: this execution alone
    request_progress: dict[str, Any] = field(default_factory=dict)
    #: processor time of this execution, with what it has started; None: not measured
    cpu_seconds: float | None = None


TYPES: dict[str, type[Message]] = {
    kind.type: kind
    for kind in (
        Catalog,
        StreamStatus,
        ConnectionStatus,
        MoverStatus,
        StepDone,
        RowsRemaining,
        WorkProgress,
        StateChanged,
        Log,
        Eof,
    )
}


def stamp(moment: datetime) -> str:
    """A moment as ISO 8601 in UTC with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def encode(message: Message) -> str:
    """A message as one line of JSON."""
    if message.ts is None:
        raise MessageRefused(f"a {message.type} message without _ts")
    document = {"type": message.type, "_ts": stamp(message.ts)}
    body = dataclasses.asdict(message)
    del body["ts"]
    return json.dumps(document | body, ensure_ascii=False)


def decode(line: str) -> Message:
    """A message from its line; unknown keys are refused, and so is a message without `_ts`."""
    document = json.loads(line)
    if not isinstance(document, dict) or document.get("type") not in TYPES:
        raise MessageRefused(f"not a message: {line[:80]}")
    kind = TYPES[document.pop("type")]
    if document.get("_ts") is None:
        raise MessageRefused(f"a {kind.type} message without _ts")
    if "ts" in document:
        raise MessageRefused(f"a {kind.type} message has _ts, not ts")
    try:
        document["ts"] = datetime.fromisoformat(document.pop("_ts"))
        if kind is Catalog:
            document["streams"] = tuple(map(_catalog_stream, document["streams"]))
        if kind is WorkProgress and document.get("fetched") is not None:
            document["fetched"] = FetchCounts.of(document["fetched"])
        if kind is StreamStatus:
            document["status"] = Status(document["status"])
        return kind(**document)
    except (KeyError, TypeError, ValueError) as error:
        raise MessageRefused(f"a {kind.type} message that cannot be read: {error}") from None


def _catalog_stream(document: dict[str, Any]) -> CatalogStream:
    lists = {name: tuple(document[name]) for name in ("primary_key", "order")}
    return CatalogStream(**document | lists)


def with_commands(message: Message, file: str, pipeline: str | None) -> Message:
    """A message whose commands can be pasted. `pipeline` is named where the file has several."""
    if isinstance(message, StreamStatus | ConnectionStatus | Eof) and message.next_step:
        stream = message.stream if isinstance(message, StreamStatus) else None
        return replace(message, next_step=filled(message.next_step, file, pipeline, stream))
    if isinstance(message, Log):
        return replace(message, text=filled(message.text, file, pipeline, message.stream))
    return message

"""The interface of a source, and the capabilities that some sources have.

`Source` has only the methods that the guarantee rests on. Everything else is a capability: a small protocol that the
engine and the command line ask for with `capability`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.messages import RemainingRows
from penstock.core.slices import Kind, Part, Slice
from penstock.ports.rows import Reader
from penstock.ports.spools import Spool


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
    #: the user confirms that a full refresh may have far fewer rows than the one before
    accept_drop: bool = False
    #: rows arrive in the order of `order`, across parts and slices
    in_order: bool = False
    #: the column that says which of two versions of one row is newer: rows may arrive in another order; None: there is
    #: none, and the version that arrives last is the newest
    version: str | None = None
    #: a run looks for rows that were deleted at the source, by comparing keys with the sink
    finds_deletes: bool = False
    #: rows of the sink whose keys one run compares, going round; None: all
    delete_search_rows: int | None = None

    def newest_by(self, key: Sequence[str]) -> str | None:
        """The column that says which of two rows with one sink key is newer; None: the row that arrives last is.

        Several rows of the source share a sink key that does not contain the primary key, and neither the rows of a
        slice nor the slices of a first load follow the cursor: the rows must be compared by it. Versions of one row are
        compared by the column that the source names for it.
        """
        if key and self.version:
            return self.version
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
    #: a gather ends after this many seconds with what it has, if it can: the run is to end then; None: no limit
    seconds: float | None = None
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
    #: one line for each difference between slice and source that loses no value (a column that is gone is NULL)
    changed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that holds for a stream, or does not, and that its user should know before trusting it."""

    #: guarantee: it holds; gap: it does not; advice: what would make it better or quicker
    kind: str
    text: str


@dataclass(frozen=True)
class Remaining(RemainingRows):
    """What `remaining` returns."""

    #: a warning for the operator: rows have been held back for long
    warning: str | None = None


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
    #: reasons for these options, and what would be better
    reasons: tuple[str, ...] = ()
    #: why it cannot be read, with what to do about it; None: it can
    refused: str | None = None
    #: the pipeline's stream that reads it already; None: there is none
    read_by: str | None = None
    #: whether a run reads only what is new; otherwise everything
    reads_only_new: bool = False
    #: whether it has rows of its own, unlike a view
    stores_rows: bool = True
    #: the options that a stream of another name needs besides, to read the same
    options_if_renamed: Mapping[str, Any] = field(default_factory=dict)


class Source(Protocol):
    """Where rows come from. Knows nothing of sinks.

    Obligations that the contract suite tests:

    - Marks come back verbatim: a source gets the very mark that it made. Only the source reads or compares its marks.
    - A slice that is read again gives the same rows, or those that are still there. It never gives a row beyond its
      bounds.
    - Number the parts in the order in which their rows apply. Of two rows with one key, the one in the later part wins,
      and within a part the later row. A source that cannot order its parts puts each key into one part only.
    - A delete is a row with `_change` 'delete' and its key. It follows the same order.
    """

    def connect(self) -> None:
        """Connect; ConnectionFailed if that is impossible."""
        ...

    def catalog(self) -> Sequence[StreamInfo]:
        """List the streams to sync, by configuration or discovery; a configured one even if it is broken.

        InputError if the configuration names a place that is not there (a schema).
        """
        ...

    def content(self, stream: str) -> Content:
        """Validate the stream and return what would be read now: columns, filter, key, identity.

        StreamRefused, with the reason and the next step, before anything is read; NotOffered where the account may
        not read the stream, which is then skipped unless it was delivered before. The same configuration and the
        same table give the same content in every process. A source does not set `shape` and `drift`.
        """
        ...

    def accept(self, stream: str, last: Position, content: Content) -> None:
        """Check that a stored position fits what would be read now.

        StreamRefused if the mark is malformed, or was made under another key or by another database.
        """
        ...

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        """Return the highest place that this run reads to; None: there is nothing to read.

        No row may appear at or below it later. `after` is the mark of the stream. A ceiling whose `held` is true means
        that rows above it are held back: `remaining` explains why, and a run reports it even if it moves nothing.
        """
        ...

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        """Return the next slice after a mark, within ceiling and budget; None: nothing new. Writes nothing."""
        ...

    def reading(self, slice_: Slice) -> AbstractContextManager[Reading]:
        """Read a slice exactly as its own content and bounds say, also when the configuration has changed.

        The parts cover the slice: every row in it is in exactly one part, in the order that the class describes.
        StreamRefused if the source can no longer give what the content says (another database, a column of another
        type). A column that is gone may be given as NULL, which `changed` says; never one whose values are still there.
        """
        ...

    def describe(self, mark: Mark | None) -> str:
        """Describe a mark for people."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Discovering(Protocol):
    """A source that can list every stream it could give."""

    def discover(self) -> Sequence[DiscoveredStream]:
        """List every possible stream, configured or not, with a proposal. Writes nothing.

        Reads no rows, or a bounded sample where only rows show the columns.

        Each proposal, written into a pipeline file as it is, is accepted by `content`.
        """
        ...


@runtime_checkable
class ExplainingSource(Protocol):
    """A source that explains what a stream guarantees and what it does not."""

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        """Return what holds for the stream as configured, what does not, and what would be better."""
        ...


@runtime_checkable
class Estimating(Protocol):
    """A source that can estimate the rows left in a run."""

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        """Return the rows left after a mark. Cheap: an estimate where counting would read rows."""
        ...


@runtime_checkable
class Rewinding(Protocol):
    """A source that can go back to a place that a user names."""

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        """Return the mark for a place that a user names (a number, a time); None: the beginning.

        Also where `accept` would refuse `last`: going elsewhere may be the way out (rows that are gone by retention).
        StreamRefused if this source has no such place, or not any more, or cannot go back at all.
        """
        ...


@runtime_checkable
class Continuing(Protocol):
    """A source whose streams can continue from where another program stopped."""

    def mark_behind(self, stream: str, content: Content, key: Sequence[str]) -> Mark:
        """Return the mark of a stream whose rows another program has read up to a key, given as texts.

        StreamRefused if there is no such place, or if rows below it may still come.
        """
        ...


@runtime_checkable
class Preparing(Protocol):
    """A source that has something to prepare before it is read."""

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        """Prepare what reading needs, once in a run, under the lease and before its first plan.

        A lake's reader registers itself and has rows without a place in the order stamped. Returns what was done
        that a user should know, one line each. Idempotent: it may be killed anywhere and is called again.
        """
        ...


@runtime_checkable
class Releasing(Protocol):
    """A source that keeps rows for a stream, and releases those below its mark."""

    def advanced(self, stream: str, position: Position) -> None:
        """The stream's mark is at `position`: the source may release everything below it.

        Called after every advance, under the lease that the advance was made with. A process that was frozen may call
        late: a source ignores a position whose number is lower than the one it has registered. A call that is missing,
        after a kill, only keeps more until the next one.
        """
        ...


@runtime_checkable
class Awaiting(Protocol):
    """A source that asks about all of its streams at the same time, and may wait for some longer than for others."""

    def is_awaited(self, stream: str) -> bool:
        """Whether the first answer about a stream is still to come: the others go first. Returns at once."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """A source that can tell, without reading, whether an open slice can still be read."""

    def check_open_slice(self, slice_: Slice) -> None:
        """Raise the error with which `reading` would refuse the slice now. Reads no rows and writes nothing."""
        ...


@runtime_checkable
class Gathering(Protocol):
    """A source whose next mark is known only after reading: it reads ahead into a spool."""

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        """Read ahead into the spool and plan the slice from it; None: nothing new. Under the lease, before the intent.

        OutOfTime if `budget.seconds` are over, and what was read cannot be delivered in part.

        The engine closes the spool and makes its digest part of the slice's id.
        `plan` itself writes nothing: it is what looking uses, and answers whether there may be something to gather.
        `reading` reads the spool that the slice names, never the place that it was gathered from.
        """
        ...

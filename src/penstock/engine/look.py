"""Looks at a stream: compares the sink with the store, validates the stream, fixes the ceiling, plans a slice.

`run`, `check`, `plan` and `penstock.read` look at a stream by this. It writes nothing, and needs no lease.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.drift import EVOLVE, follow_drift
from penstock.core.marks import Mark, Position
from penstock.core.slices import Kind, Slice, Verdict, verdict
from penstock.engine import sealing
from penstock.engine.comparing import require_capabilities
from penstock.engine.disagreement import disagreement, open_slice_disagreement
from penstock.errors import ConnectionFailed, PenstockError, StreamRefused
from penstock.ports import (
    Budget,
    Held,
    NoSpools,
    Planned,
    Resuming,
    Sealing,
    Sink,
    Source,
    Spools,
    StreamInfo,
    StreamState,
    Withdrawing,
    capability,
)

Problems = list[PenstockError]


@dataclass
class Look:
    """One stream as its next slice would find it."""

    pipeline: str
    info: StreamInfo
    source: Source
    #: None: the stream is read for a DataFrame, and goes into no sink
    sink: Sink | None
    #: the run's id; a full refresh is identified by it
    run: str
    #: what happens when its columns change: evolve, freeze or quarantine
    drift: str = EVOLVE
    #: columns that were dropped at the source, as the user says, although a new one looks like a rename
    dropped_columns: Collection[str] = ()
    #: where the spool of an open slice lies
    spools: Spools = field(default_factory=NoSpools)
    #: what the sink held; None: nothing, or it was not asked yet
    held: Held | None = None
    #: the content of the next slice; None: not validated yet
    content: Content | None = None
    #: the highest place to read to, fixed by the first plan; None: not fixed yet, or there is nothing to read
    ceiling: Document | None = None

    @property
    def stream(self) -> str:
        return self.info.name

    @property
    def replaces_all(self) -> bool:
        """Whether each slice takes the place of all before it."""
        return self.info.kind is Kind.REFRESH

    def look(self, state: StreamState, budget: Budget, problems: Problems | None = None) -> Planned | None:
        """Compare, validate, fix the ceiling and plan the next slice; None: there is nothing new.

        The first error is raised, or every error is added to `problems` where a list is given. The next slice is the
        one after an open slice, which must be possible to finish. While a reset is wanted, the stream is only
        validated: its next slice starts at the beginning.
        """
        problems_before = len(problems or ())
        with self._collect(problems):
            if state.intent is None:
                self.compare(state.last)
            else:
                self.check_open_slice(state, state.intent)
        with self._collect(problems):
            self.validate(state, problems)
            if not state.reset_wanted and len(problems or ()) == problems_before:
                # Planning finds further problems: a cursor of `infinity`, rows removed by retention.
                at = position_ahead(state)
                return self.plan(at.mark if at else None, budget)
        return None

    def check_open_slice(self, state: StreamState, slice_: Slice) -> None:
        """Check that a run can finish the open slice: the sink holds it or the one before, and it can be read."""
        if self.sink is None or self.find_in_sink(state.last, slice_) is not None or not slice_.kind.moves:
            return
        seals = capability(self.sink, Sealing)
        if seals is not None and (seal := state.seal or sealing.find_beside(self.spools, slice_)) is not None:
            if not seals.is_staged(slice_, seal.attempt, seal.receipts):
                raise sealing.staged_is_gone(slice_, seals.describe_pieces(slice_, seal.receipts))
            return
        if sealing.is_gathered(slice_, self.source) and self.spools.find_gathered(self.stream, slice_.spool) is None:
            raise sealing.gathered_is_gone(slice_)
        if (resuming := capability(self.source, Resuming)) is not None:
            resuming.check_open_slice(slice_)

    def find_in_sink(self, last: Position | None, slice_: Slice) -> Held | None:
        """Ask the sink for an open slice; None: it holds the one before. StreamStopped if it holds another one."""
        if self.sink is None:
            return None
        held = self.sink.held(self.stream)
        position = held.position if held else None
        answer = verdict(position, slice_)
        if answer is Verdict.OTHER:
            raise disagreement(self.pipeline, self.stream, last, position, at_hand=slice_.number)
        if answer is Verdict.NEXT and (opened := self.find_open_slice()) not in (None, slice_.id):
            raise open_slice_disagreement(self.pipeline, self.stream, opened or "", slice_)
        return held if answer is Verdict.IN else None

    def compare(self, last: Position | None) -> Held | None:
        """Ask the sink which slice it holds. StreamStopped if the store has another one, or has none of it open."""
        if self.sink is None:
            return None
        held = self.sink.held(self.stream)
        position = held.position if held else None
        if (position.id if position else None) != (last.id if last else None):
            raise disagreement(self.pipeline, self.stream, last, position)
        if (opened := self.find_open_slice()) is not None:
            raise open_slice_disagreement(self.pipeline, self.stream, opened, None)
        self.held = held
        return held

    def find_open_slice(self) -> str | None:
        """The id of the slice that the sink has received in part, where it can tell."""
        withdrawing = capability(self.sink, Withdrawing)
        return withdrawing.open_slice(self.stream) if withdrawing else None

    def validate(self, state: StreamState, problems: Problems | None = None) -> Content:
        """Return the content of the next slice, once source and sink have agreed to it."""
        content = self.content if self.content is not None else self.source.content(self.stream)
        at = position_ahead(state)
        if at and at.mark:
            with self._collect(problems):
                self.source.accept(self.stream, at, content)
        if self.content is None:
            content = follow_drift(
                content_before(state), content, self.drift, whole=self.replaces_all, dropped=self.dropped_columns
            )
            if self.sink is not None:
                with self._collect(problems):
                    self.sink.check(self.info, content)
                if self.info.finds_deletes:
                    with self._collect(problems):
                        check_delete_search(self.info, content, self.source, self.sink)
            self.content = content
        return content

    def plan(self, after: Mark | None, budget: Budget) -> Planned | None:
        """Ask the source for the next slice after a mark. The first call fixes the ceiling."""
        if self.content is None:
            raise RuntimeError("a stream is validated before it is planned")
        if self.ceiling is None:
            self.ceiling = self.source.ceiling(self.stream, self.content, self.run, after)
        if self.ceiling is None:
            return None
        return self.source.plan(self.stream, self.content, after, self.ceiling, budget)

    def forget(self) -> None:
        """Forget content and ceiling: the source has changed something."""
        self.content = self.ceiling = None

    @contextmanager
    def _collect(self, problems: Problems | None) -> Iterator[None]:
        """Add an error to the problems instead of raising it. A failed connection is always raised."""
        try:
            yield
        except ConnectionFailed:
            raise
        except PenstockError as error:
            if problems is None:
                raise
            others = error.others if isinstance(error, StreamRefused) else ()
            # The sink says what it holds and what fits by the same table.
            known = {problem.what for problem in problems}
            found = [each for each in (error, *others) if each.what not in known]
            problems += [each.at(pipeline=self.pipeline, stream=self.stream) for each in found]


def keep_delivered(info: StreamInfo, state: StreamState) -> StreamInfo:
    """A stream that was delivered before is never skipped: what keeps it from being read now is its failure."""
    return replace(info, skipped=None) if info.skipped is not None and has_delivered(state) else info


def has_delivered(state: StreamState) -> bool:
    """Whether rows of the stream are in the sink, or may be."""
    return state.last is not None or state.intent is not None


def check_delete_search(info: StreamInfo, content: Content, source: Source, sink: Sink) -> None:
    """StreamRefused if rows that were deleted at the source cannot be found or deleted in the sink."""
    option = "`find_deletes: compare`"
    try:
        reading, writing = require_capabilities(info, source, sink)
        reading.compared_columns(info.name, content)
        writing.check_delete_search(info)
    except StreamRefused as refused:
        raise StreamRefused(
            f"{option} is not possible: {refused.what}",
            next_step=f"remove {option}; or: {refused.next_step}",
            safe=refused.safe,
            stream=info.name,
        ) from None
    sink.check(info, replace(content, changes=True))


def content_before(state: StreamState) -> Content | None:
    """The content of the open slice, or else of the last one."""
    before = state.intent or state.last
    return Content.parse(before.content) if before else None


def position_ahead(state: StreamState) -> Position | None:
    """Where the next slice that is planned starts: after the open slice, or at the mark; None: at the beginning."""
    if state.reset_wanted:
        return None
    return state.intent.position if state.intent else state.last

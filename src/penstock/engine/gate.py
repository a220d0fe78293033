"""The gate: plan, intend, move, commit, advance. The only way a mark moves.

`Gate.turn` takes one slice of one stream through it, finishing an open intent before anything new is planned.
Every line between two probe points may be the last one this process executes; whoever comes next asks the sink.
"""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from penstock.core.documents import Document
from penstock.core.drift import EVOLVE, followed, kept
from penstock.core.marks import Mark, Position
from penstock.core.messages import Log, Message, Remaining, StateChanged, StepDone
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Receipt, Slice, Verdict, faults_of, following, verdict
from penstock.engine import drifting, undoing
from penstock.engine.disagreement import disagreement
from penstock.errors import CommitUnclear, SliceRefused, StreamFailed, StreamStopped
from penstock.ports import (
    Budget,
    Clock,
    Held,
    Lease,
    Mover,
    Noticing,
    Planned,
    Probe,
    Sink,
    Source,
    Store,
    StreamInfo,
    StreamState,
)

#: how often a commit is tried again after the sink has said that it holds the predecessor
COMMIT_TRIES = 5
#: a refresh with fewer rows than this share of the one before needs the user's word
DROP_LIMIT = 0.5


class Turn(enum.Enum):
    """What a turn did."""

    MOVED = "a slice went through"
    NOTHING = "nothing new"


@dataclass
class Gate:
    """One stream of one run."""

    pipeline: str
    info: StreamInfo
    run: str
    source: Source
    sink: Sink
    store: Store
    lease: Lease
    mover: Callable[[], Mover]
    clock: Clock
    probe: Probe
    say: Callable[[Message], None]
    slice_bytes: int
    workers: Callable[[], int]
    #: rows the run may still move; asked anew for every slice
    rows_left: Callable[[], int | None]
    #: the highest place this run reads to; frozen at the first plan
    ceiling: Document | None = None
    content: Document | None = None
    #: Arrow bytes per row of the last slice
    row_bytes: float | None = None
    #: whether the source has put in order what this run needs
    settled: bool = False
    #: whether this run has taken a slice of it through
    moved: bool = False
    #: the last slice that this run has taken through
    delivered: Position | None = None
    #: a refresh that was open, and that this run has read: there is no need for a second one
    refreshed: str | None = None
    #: whether this run has warned of someone who keeps rows from being read
    warned: bool = False
    #: what happens when its columns change: evolve, freeze or quarantine
    drift: str = EVOLVE
    #: what the sink held when this run looked; None: nothing, or nobody has asked
    last: Position | None = None
    #: columns that were dropped at the source, as the user says, although a new one looks like a rename
    dropped: Collection[str] = ()

    @property
    def stream(self) -> str:
        return self.info.name

    @property
    def whole(self) -> bool:
        """Whether each slice takes the place of all before it."""
        return self.info.kind is Kind.REFRESH

    def turn(self) -> Turn:
        """Take the open slice, or else the next one, through the gate."""
        state = self.store.state(self.pipeline, self.stream)
        self.probe.at("gate.started")
        slice_ = state.intent
        if slice_ is None:
            self.greet(state)
            slice_ = self.next_slice(state)
            if slice_ is None:
                if self.moved and state.last:
                    self.source.reached(self.stream, state.last)
                if self.held:
                    self.say_left(state)
                return Turn.NOTHING
        else:
            self.say(StepDone(stream=self.stream, step="intend", number=slice_.number, resumed=True))
        was_open = state.intent is not None
        has_read = self.pass_through(state, slice_)
        if was_open and has_read and slice_.kind is Kind.REFRESH:
            self.refreshed = slice_.id
        self.moved = True
        return Turn.MOVED

    def rewind(self, to: str) -> Turn:
        """Take the mark to a place that the user names, by a slice without rows. Nothing may be open."""
        state = self.store.state(self.pipeline, self.stream)
        self.probe.at("gate.started")
        self.greet(state)
        if state.last is None or state.last.mark is None:
            return self.stays("is at its beginning already")
        content = kept(drifting.before(state), self.source.content(self.stream))
        mark = self.source.rewound(self.stream, content, state.last, to)
        if mark == state.last.mark:
            return self.stays("is at that place already")
        return self.lead(state, mark, content, Kind.REWIND)

    def undo(self, version: int) -> Turn:
        """Take the mark to where it was at a version of its history, by a slice without rows. Nothing may be open."""
        state = self.store.state(self.pipeline, self.stream)
        self.probe.at("gate.started")
        self.greet(state)
        if self.info.kind is Kind.REFRESH:
            raise undoing.whole(self.stream)
        changes = undoing.changes_to(self.store, self.pipeline, self.stream, version, state)
        to = undoing.place(changes, version, self.stream)
        if state.last and to.mark == state.last.mark:
            return self.stays("is at that place already")
        content = kept(drifting.before(state), self.source.content(self.stream))
        self.source.accept(self.stream, to, content)
        # A source that hears of a place ahead may let go of what lies before it: only once the mark is there.
        ahead = undoing.way(changes, to).back is False
        return self.lead(state, to.mark, content, Kind.UNDO, {"version": version}, settle=not ahead)

    def lead(
        self,
        state: StreamState,
        mark: Mark | None,
        content: Document,
        kind: Kind,
        plan: Document | None = None,
        *,
        settle: bool = True,
    ) -> Turn:
        """Take the mark to another place by a slice without rows."""
        slice_ = following(
            state.last, pipeline=self.pipeline, stream=self.stream, upto=mark, content=content, kind=kind, plan=plan
        )
        if settle:
            # Before the mark goes back: what lies between must not be removed by anyone from here on.
            self.settle(content, slice_.position)
        self.pass_through(state, self.intend(slice_, rows=0))
        return Turn.MOVED

    def tell(self, lines: Iterable[Message]) -> None:
        for line in lines:
            self.say(line)

    def stays(self, why: str) -> Turn:
        self.say(Log(level="info", stream=self.stream, text=why))
        return Turn.NOTHING

    # ------------------------------------------------------------ before a slice

    def greet(self, state: StreamState) -> None:
        """Ask the sink which slice it holds, even when nothing is new; stop if the store says another."""
        held = self._held(state)
        if (held.position.id if held else None) != (state.last.id if state.last else None):
            self.stop(disagreement(self.pipeline, self.stream, state.last, held.position if held else None))
        if state.stopped:
            self.store.stop(self.lease, self.stream, None, now=self.clock.now())
        if held:
            self.sink.sweep(self.stream, held.position)
        self.probe.at("gate.greeted")

    def next_slice(self, state: StreamState) -> Slice | None:
        if state.reset_wanted and state.last:
            slice_ = following(
                state.last,
                pipeline=self.pipeline,
                stream=self.stream,
                upto=None,
                content=json.loads(state.last.content),
                kind=Kind.RESET,
            )
            return self.intend(slice_, rows=0)
        if not self.settled:
            self.settle(self.validated(state), state.last)
        budget = Budget(self.slice_bytes, self.rows_left(), self.row_bytes, self.workers())
        planned = self.plan(state, budget)
        if planned is not None and self.moved and self.renewed(state):
            planned = self.plan(state, budget)
        self.probe.at("gate.planned")
        if planned is None or self.content is None or self.ceiling is None:
            return None
        self.say_left(state)
        slice_ = following(
            state.last,
            pipeline=self.pipeline,
            stream=self.stream,
            upto=planned.upto,
            content=self.content,
            kind=planned.kind,
            plan=planned.plan,
        )
        self.intend(slice_, rows=planned.rows)
        self.tell(
            drifting.told(self.stream, drifting.before(state), self.content, whole=self.whole, dropped=self.dropped)
        )
        if not self.moved:
            self.tell(drifting.reminder(self.stream, self.content))
        return slice_

    def settle(self, content: Document, at: Position | None) -> None:
        """Let the source put in order what reading on from `at` needs. Only under the lease: it may write."""
        for line in self.source.settle(self.stream, content, at):
            self.say(Log(level="info", stream=self.stream, text=line))
        for line in self.sink.notices(self.stream) if isinstance(self.sink, Noticing) else ():
            self.say(Log(level="warning", stream=self.stream, text=line))
        self.probe.at("gate.settled")
        self.settled = True
        # What was seen before, in the look without the lease too, may have changed by it.
        self.content = self.ceiling = None

    def look(self) -> Turn:
        """Fix how far this run reads, where what other streams read has to reach at least as far."""
        state = self.store.state(self.pipeline, self.stream)
        if state.intent is None and not state.reset_wanted:
            if not self.settled:
                self.settle(self.validated(state), state.last)
            self.plan(state, Budget(self.slice_bytes, rows=1, look=True))
        return Turn.NOTHING

    def validated(self, state: StreamState) -> Document:
        """What would be read now, once source and sink have agreed to it."""
        content = self.content if self.content is not None else self.source.content(self.stream)
        if state.last and state.last.mark:
            self.source.accept(self.stream, state.last, content)
        if self.content is None:
            content = followed(drifting.before(state), content, self.drift, whole=self.whole, dropped=self.dropped)
            self.sink.check(self.info, content)
            self.content = content
        return content

    def renewed(self, state: StreamState) -> bool:
        """Whether what would be read has changed since the slice before: a run may take hours."""
        before, self.content = self.content, None
        return self.validated(state) != before

    def plan(self, state: StreamState, budget: Budget) -> Planned | None:
        """Ask the source for the next slice; validates the stream the first time."""
        if self.refreshed is not None and state.last and state.last.id == self.refreshed:
            return None
        content = self.validated(state)
        after = state.last.mark if state.last else None
        if self.ceiling is None:
            self.ceiling = self.source.ceiling(self.stream, content, self.run, after)
            if self.ceiling is None:
                return None
        return self.source.plan(self.stream, content, after, self.ceiling, budget)

    @property
    def held(self) -> bool:
        """Whether someone keeps rows above the ceiling from being read: that is told even if nothing moves."""
        return bool(self.ceiling and self.ceiling.get("held"))

    def say_left(self, state: StreamState) -> None:
        """Say what the stream has before it, and who keeps it from going further."""
        if self.content is None or self.ceiling is None:
            return
        left = self.source.left(self.stream, self.content, state.last.mark if state.last else None, self.ceiling)
        self.say(
            Remaining(
                stream=self.stream,
                rows=left.rows,
                exact=left.exact,
                held_back=left.held_back,
                blocker=left.blocker,
                horizon=left.horizon,
                proven=left.proven,
            )
        )
        if left.warning and not self.warned:
            self.say(Log(level="warning", stream=self.stream, text=left.warning))
            self.warned = True

    def intend(self, slice_: Slice, rows: int | None) -> Slice:
        self.store.intend(self.lease, slice_, now=self.clock.now(), run=self.run)
        self.probe.at("gate.intended", number=slice_.number)
        self.say(StepDone(stream=self.stream, step="intend", number=slice_.number, rows=rows))
        return slice_

    # ------------------------------------------------------------ one slice

    def pass_through(self, state: StreamState, slice_: Slice) -> bool:
        """Take a slice through; whether its rows were read by this run, and not found in the sink."""
        held = self.ask(state, slice_)
        self.probe.at("gate.asked", number=slice_.number)
        if held is None:
            attempt = uuid.uuid4().hex[:12]
            receipts = self.move(state, slice_, attempt)
            self.probe.at("gate.moved", number=slice_.number)
            rows, bytes_ = sum(r.rows for r in receipts), sum(r.bytes for r in receipts)
            self.say(StepDone(stream=self.stream, step="move", number=slice_.number, rows=rows, bytes=bytes_))
            outcome = self.commit(state, slice_, attempt, receipts)
        else:
            rows, bytes_, outcome = held.rows, held.bytes, held.outcome
        self.probe.at("gate.committed", number=slice_.number)
        became = outcome.document() if outcome else None
        self.say(
            StepDone(stream=self.stream, step="commit", number=slice_.number, rows=rows, bytes=bytes_, outcome=became)
        )
        for line in outcome.warnings() if outcome else ():
            self.say(Log(level="warning", stream=self.stream, text=f"slice {slice_.number}: {line}"))
        self.advance(slice_, rows, bytes_, outcome)
        self.delivered = slice_.position
        self.sink.sweep(self.stream, slice_.position)
        self.probe.at("gate.swept", number=slice_.number)
        return held is None

    def ask(self, state: StreamState, slice_: Slice) -> Held | None:
        """The slice as the sink holds it; None: it holds the predecessor. Anything else stops the stream."""
        held = self._held(state)
        position = held.position if held else None
        answer = verdict(position, slice_)
        if answer is Verdict.OTHER:
            self.stop(disagreement(self.pipeline, self.stream, state.last, position, at_hand=slice_.number))
        return held if answer is Verdict.IN else None

    def move(self, state: StreamState, slice_: Slice, attempt: str) -> Sequence[Receipt]:
        if not slice_.kind.moves:
            return ()
        if slice_.kind is Kind.REFRESH:
            # It is read in one snapshot, under a lock on its table: neither is held while Spark starts.
            self.mover().warm()
        with self.source.reading(slice_) as reading:
            self.tell(drifting.otherwise(slice_, reading.changed, self.drift))
            # A slice that only takes note of something has no parts, and needs nobody to move them.
            if not reading.parts and slice_.kind is Kind.ROWS:
                return ()
            writer = self.sink.writer(slice_, attempt)
            receipts = self.mover().move(reading.reader, writer, reading.parts)
        fault = faults_of(reading.parts, receipts)
        if fault:
            raise SliceRefused(
                f"slice {slice_.number} was not committed: {fault}",
                next_step="run again; if it happens again, report it as a defect",
                pipeline=self.pipeline,
                stream=self.stream,
            )
        self.tell(_nulled(self.stream, slice_, receipts))
        rows, bytes_ = sum(r.rows for r in receipts), sum(r.bytes for r in receipts)
        if slice_.kind is Kind.REFRESH:
            self._check_drop(state, rows)
        if rows:
            self.row_bytes = bytes_ / rows
        return receipts

    def _check_drop(self, state: StreamState, rows: int) -> None:
        if self.info.accept_drop or rows >= state.last_rows * DROP_LIMIT:
            return
        raise StreamFailed(
            f"the full refresh read {rows} rows where the one before had {state.last_rows}",
            next_step="see that the source is whole; if the drop is meant, set `accept_drop: true` on the stream",
            safe="Nothing was replaced: readers see the refresh before.",
            pipeline=self.pipeline,
            stream=self.stream,
        )

    def commit(self, state: StreamState, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> Outcome | None:
        """Commit; after a conflict or a lost answer ask the sink and decide by the chain, never blindly."""
        for _ in range(COMMIT_TRIES):
            try:
                return self.sink.commit(slice_, attempt, receipts)
            except CommitUnclear as unclear:
                reason = unclear
            self.probe.at("gate.unclear", number=slice_.number)
            held = self.ask(state, slice_)
            if held is not None:
                return held.outcome
        raise StreamFailed(
            f"slice {slice_.number} could not be committed in {COMMIT_TRIES} tries: {reason.what}",
            next_step="run again; the slice is still open and is tried again",
            pipeline=self.pipeline,
            stream=self.stream,
        )

    def advance(self, slice_: Slice, rows: int, bytes_: int, outcome: Outcome | None) -> None:
        version = self.store.advance(
            self.lease, slice_, rows=rows, bytes_=bytes_, now=self.clock.now(), run=self.run, outcome=outcome
        )
        self.probe.at("gate.advanced", number=slice_.number)
        self.say(
            StateChanged(
                stream=self.stream,
                version=version,
                number=slice_.number,
                slice_id=slice_.id,
                mark=slice_.upto.text if slice_.upto else None,
                reason=slice_.reason,
                rows=rows,
                bytes=bytes_,
                outcome=outcome.document() if outcome else None,
                at=self.source.describe(slice_.upto),
            )
        )

    # ------------------------------------------------------------ what is left, and stops

    def has_more(self) -> bool:
        """Whether another turn would move something."""
        state = self.store.state(self.pipeline, self.stream)
        if state.intent or state.reset_wanted:
            return True
        return self.plan(state, Budget(self.slice_bytes, rows=1, look=True)) is not None

    def _held(self, state: StreamState) -> Held | None:
        try:
            return self.sink.held(self.stream)
        except StreamStopped as reason:
            self.stop(reason)
            raise

    def stop(self, reason: StreamStopped) -> None:
        """Stop the stream. Only the holder of the lease may: a process that was replaced ends quietly (LeaseLost)."""
        self.store.stop(self.lease, self.stream, reason.what, now=self.clock.now())
        raise reason


def _nulled(stream: str, slice_: Slice, receipts: Sequence[Receipt]) -> Iterable[Message]:
    """That values were not delivered as they are, if so."""
    count = sum(receipt.nulled for receipt in receipts)
    if count:
        values = "1 value has" if count == 1 else f"{count} values have"
        text = f"slice {slice_.number}: {values} no exact form and became NULL, as the pipeline file says"
        yield Log(level="warning", stream=stream, text=text)

"""The gate: plan, intend, move, commit, advance. The only way a mark moves.

Two steps are optional: a source gathers before `intend`, a sink seals between `move` and `commit`.

`Gate.turn` takes one slice of one stream through it, finishing an open intent before anything new is planned.
Every line between two probe points may be the last one this process executes; whoever comes next asks the sink.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.drift import EVOLVE, followed, kept
from penstock.core.marks import Mark, Position
from penstock.core.messages import Log, Message, RowsRemaining, StateChanged, StepDone
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Receipt, Seal, Slice, Verdict, faults_of, following, verdict
from penstock.engine import drifting, sealing, undoing
from penstock.engine.disagreement import disagreement, open_slice_disagreement
from penstock.errors import CommitUnclear, SliceRefused, StreamFailed, StreamStopped
from penstock.ports import (
    Budget,
    Clock,
    Gathering,
    Held,
    Lease,
    Mover,
    Noticing,
    Planned,
    Preparing,
    Probe,
    Releasing,
    Sealing,
    Sink,
    Source,
    Spools,
    Store,
    StreamInfo,
    StreamState,
    Withdrawing,
    capability,
    estimate,
    find_mark,
    has_capability,
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
    spools: Spools
    lease: Lease
    mover: Callable[[], Mover]
    clock: Clock
    probe: Probe
    emit: Callable[[Message], None]
    slice_bytes: int
    workers: Callable[[], int]
    #: rows the run may still move; asked anew for every slice
    rows_left: Callable[[], int | None]
    #: the highest place this run reads to; frozen at the first plan
    ceiling: Document | None = None
    content: Content | None = None
    #: Arrow bytes per row of the last slice
    row_bytes: float | None = None
    #: whether the source has put in order what this run needs
    is_prepared: bool = False
    #: whether this run has taken a slice of it through
    has_moved: bool = False
    #: the last slice that this run has taken through
    last_delivered: Position | None = None
    #: a refresh that was open, and that this run has read: there is no need for a second one
    finished_refresh: str | None = None
    #: whether this run has warned of someone who keeps rows from being read
    has_warned: bool = False
    #: what happens when its columns change: evolve, freeze or quarantine
    drift: str = EVOLVE
    #: what the sink held when this run looked; None: nothing, or nobody has asked
    sink_position: Position | None = None
    #: columns that were dropped at the source, as the user says, although a new one looks like a rename
    dropped_columns: Collection[str] = ()

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
            self.compare_with_sink(state)
            slice_ = self.next_slice(state)
            if slice_ is None:
                if self.has_rows_held_back:
                    self.report_remaining(state)
                return Turn.NOTHING
        else:
            self.emit(StepDone(stream=self.stream, step="intend", number=slice_.number, resumed=True))
        was_open = state.intent is not None
        has_read = self.deliver(state, slice_)
        if was_open and has_read and slice_.kind is Kind.REFRESH:
            self.finished_refresh = slice_.id
        self.has_moved = True
        return Turn.MOVED

    def rewind(self, to: str) -> Turn:
        """Take the mark to a place that the user names, by a slice without rows. Nothing may be open."""
        state = self.store.state(self.pipeline, self.stream)
        self.probe.at("gate.started")
        self.compare_with_sink(state)
        if state.last is None or state.last.mark is None:
            return self.report_unchanged("is at its beginning already")
        content = kept(drifting.last_content(state), self.source.content(self.stream))
        mark = find_mark(self.source, self.stream, content, state.last, to)
        if mark == state.last.mark:
            return self.report_unchanged("is at that place already")
        return self.move_mark(state, mark, content, Kind.REWIND)

    def undo(self, version: int) -> Turn:
        """Take the mark to where it was at a version of its history, by a slice without rows. Nothing may be open."""
        state = self.store.state(self.pipeline, self.stream)
        self.probe.at("gate.started")
        self.compare_with_sink(state)
        if self.info.kind is Kind.REFRESH:
            raise undoing.refuse_refresh(self.stream)
        changes = undoing.changes_to(self.store, self.pipeline, self.stream, version, state)
        to = undoing.find_position(changes, version, self.stream)
        if state.last and to.mark == state.last.mark:
            return self.report_unchanged("is at that place already")
        content = kept(drifting.last_content(state), self.source.content(self.stream))
        self.source.accept(self.stream, to, content)
        # A source that hears of a place ahead may let go of what lies before it: only once the mark is there.
        ahead = undoing.find_route(changes, to).back is False
        return self.move_mark(state, to.mark, content, Kind.UNDO, {"version": version}, prepare=not ahead)

    def move_mark(
        self,
        state: StreamState,
        mark: Mark | None,
        content: Content,
        kind: Kind,
        plan: Document | None = None,
        *,
        prepare: bool = True,
    ) -> Turn:
        """Take the mark to another place by a slice without rows."""
        slice_ = following(
            state.last, pipeline=self.pipeline, stream=self.stream, upto=mark, content=content, kind=kind, plan=plan
        )
        if prepare:
            # Before the mark goes back: what lies between must not be removed by anyone from here on.
            self.prepare(content, slice_.position)
        self.deliver(state, self.intend(slice_, rows=0))
        return Turn.MOVED

    def emit_all(self, lines: Iterable[Message]) -> None:
        for line in lines:
            self.emit(line)

    def report_unchanged(self, why: str) -> Turn:
        self.emit(Log(level="info", stream=self.stream, text=why))
        return Turn.NOTHING

    # ------------------------------------------------------------ before a slice

    def compare_with_sink(self, state: StreamState) -> None:
        """Ask the sink which slice it holds, even when nothing is new; stop if the store says another."""
        held = self._ask_sink(state)
        if (held.position.id if held else None) != (state.last.id if state.last else None):
            self.stop(disagreement(self.pipeline, self.stream, state.last, held.position if held else None))
        if (opened := self._open_slice()) is not None:
            self.stop(open_slice_disagreement(self.pipeline, self.stream, opened, None))
        if state.stopped:
            self.store.stop(self.lease, self.stream, None, now=self.clock.now())
        if held:
            self.sweep(held.position)
        self.probe.at("gate.compared")

    def next_slice(self, state: StreamState) -> Slice | None:
        if state.reset_wanted and state.last:
            slice_ = following(
                state.last,
                pipeline=self.pipeline,
                stream=self.stream,
                upto=None,
                content=Content.parse(state.last.content),
                kind=Kind.RESET,
            )
            return self.intend(slice_, rows=0)
        if not self.is_prepared:
            self.prepare(self.validate(state), state.last)
        budget = Budget(self.slice_bytes, self.rows_left(), self.row_bytes, self.workers())
        planned = self.plan(state, budget)
        if planned is not None and self.has_moved and self.content_has_changed(state):
            planned = self.plan(state, budget)
        self.probe.at("gate.planned")
        if planned is None or self.content is None or self.ceiling is None:
            return None
        self.report_remaining(state)
        spool = ""
        if planned.kind.moves and (gathering := capability(self.source, Gathering)):
            planned, spool = self.gather(gathering, state, budget)
            if planned is None:
                return None
        slice_ = following(
            state.last,
            pipeline=self.pipeline,
            stream=self.stream,
            upto=planned.upto,
            content=self.content,
            kind=planned.kind,
            plan=planned.plan,
            spool=spool,
        )
        self.intend(slice_, rows=planned.rows)
        self.emit_all(
            drifting.describe_changes(
                self.stream, drifting.last_content(state), self.content, whole=self.whole, dropped=self.dropped_columns
            )
        )
        if not self.has_moved:
            self.emit_all(drifting.remind(self.stream, self.content))
        return slice_

    def gather(self, gathering: Gathering, state: StreamState, budget: Budget) -> tuple[Planned | None, str]:
        """Let the source read ahead into a spool; the slice that it plans from it, and the spool's digest."""
        if self.content is None or self.ceiling is None:
            return None, ""
        number, after = (state.last.number + 1, state.last.mark) if state.last else (1, None)
        with self.spools.gather(self.stream, number, new_attempt()) as spool:
            planned = gathering.gather(self.stream, self.content, after, self.ceiling, budget, spool)
            self.probe.at("gate.gathered", number=number)
            digest = self.spools.close_gathered(spool) if planned is not None else ""
        self.probe.at("gate.spooled", number=number)
        if planned is not None:
            self.emit(StepDone(stream=self.stream, step="gather", number=number, rows=planned.rows))
        return planned, digest

    def prepare(self, content: Content, at: Position | None) -> None:
        """Let the source put in order what reading on from `at` needs. Only under the lease: it may write."""
        preparing, noticing = capability(self.source, Preparing), capability(self.sink, Noticing)
        for line in preparing.prepare(self.stream, content, at) if preparing else ():
            self.emit(Log(level="info", stream=self.stream, text=line))
        for line in noticing.notices(self.stream) if noticing else ():
            self.emit(Log(level="warning", stream=self.stream, text=line))
        self.probe.at("gate.prepared")
        self.is_prepared = True
        # What was seen before, in the look without the lease too, may have changed by it.
        self.content = self.ceiling = None

    def fix_ceiling(self) -> Turn:
        """Fix how far this run reads, where what other streams read has to reach at least as far."""
        state = self.store.state(self.pipeline, self.stream)
        if state.intent is None and not state.reset_wanted:
            if not self.is_prepared:
                self.prepare(self.validate(state), state.last)
            self.plan(state, Budget(self.slice_bytes, rows=1, look=True))
        return Turn.NOTHING

    def validate(self, state: StreamState) -> Content:
        """What would be read now, once source and sink have agreed to it."""
        content = self.content if self.content is not None else self.source.content(self.stream)
        if state.last and state.last.mark:
            self.source.accept(self.stream, state.last, content)
        if self.content is None:
            content = followed(
                drifting.last_content(state), content, self.drift, whole=self.whole, dropped=self.dropped_columns
            )
            self.sink.check(self.info, content)
            self.content = content
        return content

    def content_has_changed(self, state: StreamState) -> bool:
        """Whether what would be read has changed since the slice before: a run may take hours."""
        before, self.content = self.content, None
        return self.validate(state) != before

    def plan(self, state: StreamState, budget: Budget) -> Planned | None:
        """Ask the source for the next slice; validates the stream the first time."""
        if self.finished_refresh is not None and state.last and state.last.id == self.finished_refresh:
            return None
        content = self.validate(state)
        after = state.last.mark if state.last else None
        if self.ceiling is None:
            self.ceiling = self.source.ceiling(self.stream, content, self.run, after)
            if self.ceiling is None:
                return None
        return self.source.plan(self.stream, content, after, self.ceiling, budget)

    @property
    def has_rows_held_back(self) -> bool:
        """Whether someone keeps rows above the ceiling from being read: that is told even if nothing moves."""
        return bool(self.ceiling and self.ceiling.get("held"))

    def report_remaining(self, state: StreamState) -> None:
        """Say what the stream has before it, and who keeps it from going further."""
        if self.content is None or self.ceiling is None:
            return
        after = state.last.mark if state.last else None
        remaining = estimate(self.source, self.stream, self.content, after, self.ceiling)
        self.emit(
            RowsRemaining(
                stream=self.stream,
                rows=remaining.rows,
                exact=remaining.exact,
                held_back=remaining.held_back,
                blocker=remaining.blocker,
                horizon=remaining.horizon,
                proven=remaining.proven,
            )
        )
        if remaining.warning and not self.has_warned:
            self.emit(Log(level="warning", stream=self.stream, text=remaining.warning))
            self.has_warned = True

    def intend(self, slice_: Slice, rows: int | None) -> Slice:
        self.store.intend(self.lease, slice_, now=self.clock.now(), run=self.run)
        self.probe.at("gate.intended", number=slice_.number)
        self.emit(StepDone(stream=self.stream, step="intend", number=slice_.number, rows=rows))
        return slice_

    # ------------------------------------------------------------ one slice

    def deliver(self, state: StreamState, slice_: Slice) -> bool:
        """Take a slice through; whether its rows were read by this run, and not found in the sink."""
        held = self.find_in_sink(state, slice_)
        self.probe.at("gate.asked", number=slice_.number)
        if held is None:
            attempt, receipts = self.stage(state, slice_)
            rows, bytes_ = sum(r.rows for r in receipts), sum(r.bytes for r in receipts)
            self.emit(StepDone(stream=self.stream, step="move", number=slice_.number, rows=rows, bytes=bytes_))
            outcome = self.commit(state, slice_, attempt, receipts)
        else:
            rows, bytes_, outcome = held.rows, held.bytes, held.outcome
        self.probe.at("gate.committed", number=slice_.number)
        became = outcome.document() if outcome else None
        self.emit(
            StepDone(stream=self.stream, step="commit", number=slice_.number, rows=rows, bytes=bytes_, outcome=became)
        )
        for line in outcome.warnings() if outcome else ():
            self.emit(Log(level="warning", stream=self.stream, text=f"slice {slice_.number}: {line}"))
        self.advance(slice_, rows, bytes_, outcome)
        self.last_delivered = slice_.position
        self.sweep(slice_.position)
        self.probe.at("gate.swept", number=slice_.number)
        if (releasing := capability(self.source, Releasing)) is not None:
            releasing.advanced(self.stream, slice_.position)
        return held is None

    def stage(self, state: StreamState, slice_: Slice) -> tuple[str, Sequence[Receipt]]:
        """Move the slice; where the sink seals, only if it is not sealed yet. The attempt that counts, its receipts."""
        attempt = new_attempt()
        seals = capability(self.sink, Sealing)
        if seals is None:
            receipts = self.move(state, slice_, attempt)
            self.probe.at("gate.moved", number=slice_.number)
            return attempt, receipts
        seal = state.seal or sealing.find_beside(self.spools, slice_)
        if seal is None:
            seal = Seal(slice_.id, attempt, tuple(self.move(state, slice_, attempt)))
            self.probe.at("gate.moved", number=slice_.number)
        seal = self.seal(slice_, seal)
        if seal.attempt != attempt and not seals.is_staged(slice_, seal.attempt, seal.receipts):
            self.stop(sealing.staged_is_gone(slice_, seals.describe_pieces(slice_, seal.receipts)))
        return seal.attempt, seal.receipts

    def seal(self, slice_: Slice, seal: Seal) -> Seal:
        """Record what was staged, in the store and beside the spool, before the first piece is delivered.

        The store comes first: it refuses a process that was replaced.
        """
        seal = self.store.seal(self.lease, slice_, seal, now=self.clock.now())
        self.probe.at("gate.sealed", number=slice_.number)
        if not sealing.keep_beside(self.spools, slice_, seal):
            self.stop(sealing.sealed_otherwise(slice_))
        self.probe.at("gate.seal_kept", number=slice_.number)
        self.emit(StepDone(stream=self.stream, step="seal", number=slice_.number))
        return seal

    def sweep(self, held: Position) -> None:
        """Remove what attempts at slices up to `held` left behind. The sink holds that slice."""
        self.sink.sweep(self.stream, held)
        if has_capability(self.source, Gathering) or has_capability(self.sink, Sealing):
            self.spools.sweep(self.stream, held.number)

    def find_in_sink(self, state: StreamState, slice_: Slice) -> Held | None:
        """The slice as the sink holds it; None: it holds the predecessor. Anything else stops the stream."""
        held = self._ask_sink(state)
        position = held.position if held else None
        answer = verdict(position, slice_)
        if answer is Verdict.OTHER:
            self.stop(disagreement(self.pipeline, self.stream, state.last, position, at_hand=slice_.number))
        if answer is Verdict.NEXT and (opened := self._open_slice()) not in (None, slice_.id):
            self.stop(open_slice_disagreement(self.pipeline, self.stream, opened or "", slice_))
        return held if answer is Verdict.IN else None

    def move(self, state: StreamState, slice_: Slice, attempt: str) -> Sequence[Receipt]:
        if not slice_.kind.moves:
            return ()
        if slice_.spool and self.spools.find_gathered(self.stream, slice_.spool) is None:
            self.stop(sealing.gathered_is_gone(slice_))
        if slice_.kind is Kind.REFRESH:
            # It is read in one snapshot, under a lock on its table: neither is held while Spark starts.
            self.mover().warm()
        with self.source.reading(slice_) as reading:
            self.emit_all(drifting.describe_missing(slice_, reading.changed, self.drift))
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
        self.emit_all(_describe_nulls(self.stream, slice_, receipts))
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
            except StreamStopped as stopped:
                # What was delivered of the slice is not what was staged: someone restored or lost something.
                self.stop(stopped)
                raise
            self.probe.at("gate.unclear", number=slice_.number)
            held = self.find_in_sink(state, slice_)
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
        self.emit(
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

    def _open_slice(self) -> str | None:
        withdrawing = capability(self.sink, Withdrawing)
        return withdrawing.open_slice(self.stream) if withdrawing else None

    def _ask_sink(self, state: StreamState) -> Held | None:
        try:
            return self.sink.held(self.stream)
        except StreamStopped as reason:
            self.stop(reason)
            raise

    def stop(self, reason: StreamStopped) -> None:
        """Stop the stream. Only the holder of the lease may: a process that was replaced ends quietly (LeaseLost)."""
        self.store.stop(self.lease, self.stream, reason.what, now=self.clock.now())
        raise reason


def new_attempt() -> str:
    """A name that no other attempt of any process has."""
    return uuid.uuid4().hex[:12]


def _describe_nulls(stream: str, slice_: Slice, receipts: Sequence[Receipt]) -> Iterable[Message]:
    """That values were not delivered as they are, if so."""
    count = sum(receipt.nulled for receipt in receipts)
    if count:
        values = "1 value has" if count == 1 else f"{count} values have"
        text = f"slice {slice_.number}: {values} no exact form and became NULL, as the pipeline file says"
        yield Log(level="warning", stream=stream, text=text)

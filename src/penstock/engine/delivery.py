"""One slice through the gate: asked for, moved, sealed where the sink seals, committed, advanced, swept.

Every line between two probe points may be the last one this process executes; the next process asks the sink.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from penstock.core.marks import Position
from penstock.core.messages import Log, Message, StateChanged, StepDone
from penstock.core.outcome import Outcome
from penstock.core.retry import Retry
from penstock.core.slices import Kind, Receipt, Seal, Slice, faults_of
from penstock.engine import drifting, sealing
from penstock.engine.look import Look
from penstock.errors import CommitUnclear, SliceRefused, StreamFailed, StreamStopped
from penstock.ports import (
    Clock,
    Gathering,
    Held,
    Lease,
    Mover,
    Probe,
    Releasing,
    Sealing,
    Sink,
    Source,
    Spools,
    Store,
    StreamState,
    capability,
    has_capability,
)

#: of a commit, while the sink holds the predecessor
COMMITS = Retry(5)
#: a refresh with fewer rows than this share of the one before needs `accept_drop`
DROP_LIMIT = 0.5


@dataclass
class Delivery:
    """One stream of one run: what it works on, and how it delivers a slice."""

    look: Look
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
    #: rows the run may still move; asked again for every slice
    rows_left: Callable[[], int | None]
    #: seconds for which the run may still begin slices; None: without end
    seconds_left: Callable[[], float | None]
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
    #: whether the run's time was over before the next slice was read
    is_unfinished: bool = False

    @property
    def pipeline(self) -> str:
        return self.look.pipeline

    @property
    def stream(self) -> str:
        return self.look.stream

    @property
    def run(self) -> str:
        return self.look.run

    @property
    def source(self) -> Source:
        return self.look.source

    def deliver(self, state: StreamState, slice_: Slice, *, was_open: bool = False) -> bool:
        """Take a slice through; whether its rows were read by this run, and not found in the sink.

        A slice that was open may be in the sink already. One that this turn has planned is not: the sink was compared
        before the plan, and `commit` refuses it if the sink has taken another one since.
        """
        held = self.find_in_sink(state, slice_) if was_open else None
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
        try:
            return self.look.find_in_sink(state.last, slice_)
        except StreamStopped as reason:
            self.stop(reason)

    def move(self, state: StreamState, slice_: Slice, attempt: str) -> Sequence[Receipt]:
        if not slice_.kind.moves:
            return ()
        is_gathered = sealing.is_gathered(slice_, self.source)
        if is_gathered and self.spools.find_gathered(self.stream, slice_.spool) is None:
            self.stop(sealing.gathered_is_gone(slice_))
        if slice_.kind is Kind.REFRESH:
            # It is read in one snapshot, under a lock on its table: neither is held while Spark starts.
            self.mover().warm()
        with self.source.reading(slice_) as reading:
            self.emit_all(drifting.describe_missing(slice_, reading.changed, self.look.drift))
            # A slice that only moves the mark has no parts, and needs no mover.
            if not reading.parts and slice_.kind is not Kind.REFRESH:
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
        if self.look.info.accept_drop or rows >= state.last_rows * DROP_LIMIT:
            return
        raise StreamFailed(
            f"the full refresh read {rows} rows, far fewer than the previous one ({state.last_rows})",
            next_step="check that the source is complete; if the drop is intended, set `accept_drop: true` on the "
            "stream",
            safe="Nothing was replaced: readers still see the previous refresh.",
            pipeline=self.pipeline,
            stream=self.stream,
        )

    def commit(self, state: StreamState, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> Outcome | None:
        """Commit; after a conflict or a lost answer ask the sink and decide by the chain, never blindly."""
        for _ in COMMITS.attempts():
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
            f"slice {slice_.number} could not be committed in {COMMITS.tries} tries: {reason.what}",
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

    def stop(self, reason: StreamStopped) -> NoReturn:
        """Stop the stream. Only the holder of the lease may: a process that was replaced ends quietly (LeaseLost)."""
        self.store.stop(self.lease, self.stream, reason.what, now=self.clock.now())
        raise reason

    def emit_all(self, lines: Iterable[Message]) -> None:
        for line in lines:
            self.emit(line)


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

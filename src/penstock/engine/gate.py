"""The gate: plan, intend, move, commit, advance. The only way a mark moves.

Two steps are optional: a source gathers before `intend`, a sink seals between `move` and `commit`.

`Gate.turn` takes one slice of one stream through it, finishing an open intent before anything new is planned.
Every line between two probe points may be the last one this process executes; the next process asks the sink.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.core.content import Content
from penstock.core.documents import Document, canonical, digest
from penstock.core.drift import keep_columns
from penstock.core.marks import Mark, Position
from penstock.core.messages import Log, RowsRemaining, StepDone
from penstock.core.ranges import Key
from penstock.core.slices import Kind, Slice, following
from penstock.engine import drifting, undoing
from penstock.engine.delivery import Delivery, new_attempt
from penstock.engine.look import content_before
from penstock.errors import OutOfTime, StreamStopped
from penstock.ports import (
    Budget,
    ComparingSource,
    Gathering,
    GatheringRepairs,
    Noticing,
    Planned,
    Preparing,
    StreamState,
    capability,
    estimate,
    find_mark,
    find_mark_behind,
)


class Turn(enum.Enum):
    """What a turn did."""

    MOVED = "a slice went through"
    NOTHING = "nothing new"
    UNFINISHED = "the run's time was over while the source read ahead"


@dataclass
class Gate(Delivery):
    """One stream of one run, in turns: what is open is finished before anything new is planned."""

    def turn(self) -> Turn:
        """Take the open slice, or else the next one, through the gate."""
        state = self.store.state(self.pipeline, self.stream)
        self.probe.at("gate.started")
        self.is_unfinished = False
        slice_ = state.intent
        if slice_ is None:
            self.compare_with_sink(state)
            try:
                slice_ = self.next_slice(state)
            except OutOfTime as over:
                self.report_unfinished(over)
                return Turn.UNFINISHED
            if slice_ is None:
                if self.has_rows_held_back:
                    self.report_remaining(state)
                return Turn.NOTHING
        else:
            self.emit(StepDone(stream=self.stream, step="intend", number=slice_.number, resumed=True))
        was_open = state.intent is not None
        has_read = self.deliver(state, slice_, was_open=was_open)
        if was_open and has_read and slice_.kind is Kind.REFRESH:
            self.finished_refresh = slice_.id
        self.has_moved = True
        return Turn.MOVED

    def rewind(self, to: str) -> Turn:
        """Move the mark to a place that the user names, by a slice without rows. No slice may be open."""
        state = self.store.state(self.pipeline, self.stream)
        self.probe.at("gate.started")
        self.compare_with_sink(state)
        if state.last is None or state.last.mark is None:
            return self.report_unchanged("is at its beginning already")
        content = keep_columns(content_before(state), self.source.content(self.stream))
        mark = find_mark(self.source, self.stream, content, state.last, to)
        if mark == state.last.mark:
            return self.report_unchanged("is at that place already")
        return self.move_mark(state, mark, content, Kind.REWIND)

    def continue_behind(self, key: Sequence[str]) -> Turn:
        """Begin the stream where another program stopped, by a slice without rows; not if it has begun already."""
        state = self.store.state(self.pipeline, self.stream)
        self.probe.at("gate.started")
        self.compare_with_sink(state)
        if state.last is not None:
            return self.report_unchanged("has begun already and stays as it is")
        content = self.look.validate(state)
        return self.move_mark(state, find_mark_behind(self.source, self.stream, content, key), content, Kind.REWIND)

    def undo(self, version: int) -> Turn:
        """Move the mark back to a version of its history, by a slice without rows. No slice may be open."""
        state = self.store.state(self.pipeline, self.stream)
        self.probe.at("gate.started")
        self.compare_with_sink(state)
        if self.look.replaces_all:
            raise undoing.refuse_refresh(self.stream)
        changes = undoing.changes_to(self.store, self.pipeline, self.stream, version, state)
        to = undoing.find_position(changes, version, self.stream)
        if state.last and to.mark == state.last.mark:
            return self.report_unchanged("is at that place already")
        content = keep_columns(content_before(state), self.source.content(self.stream))
        self.source.accept(self.stream, to, content)
        # A source that prepares for a place ahead may release what lies before it: only once the mark is there.
        ahead = undoing.find_route(changes, to).back is False
        return self.move_mark(state, to.mark, content, Kind.UNDO, {"version": version}, prepare=not ahead)

    def repair(self, keys: Sequence[Key], deletes: Sequence[Key]) -> Turn:
        """Deliver the current rows of keys, and deletes, by a slice that lists them. No slice may be open.

        The mark stays, so the digest of the keys, or of the spool with their rows, tells one repair from another: a
        repair that `state recover` has dropped, and that a frozen process commits after all, is not taken for a later
        repair of other keys.
        """
        state = self.store.state(self.pipeline, self.stream)
        self.probe.at("gate.started")
        self.compare_with_sink(state)
        reading = capability(self.source, ComparingSource)
        if reading is None or state.last is None or state.last.mark is None:
            return self.report_unchanged("has nothing to repair")
        if not self.is_prepared:
            self.prepare(self.look.validate(state), state.last)
        content = self.look.validate(state)
        if deletes and not content.changes:
            content = replace(content, changes=True)
            self.sink.check(self.look.info, content)
        spool = digest(canonical([list(map(list, keys)), list(map(list, deletes))]))
        if (gathering := capability(self.source, GatheringRepairs)) is not None:
            spool = self.gather_repair(gathering, state.last, content, keys, deletes)
            if not spool:
                return self.report_unchanged("the source no longer has what was to be repaired, or has it again")
        plan = reading.plan_repair(self.stream, content, state.last.mark, keys, deletes)
        slice_ = following(
            state.last,
            pipeline=self.pipeline,
            stream=self.stream,
            upto=state.last.mark,
            content=content,
            kind=Kind.REPAIR,
            plan=plan,
            spool=spool,
        )
        self.deliver(state, self.intend(slice_, rows=len(keys) + len(deletes)))
        self.has_moved = True
        return Turn.MOVED

    def gather_repair(
        self, gathering: GatheringRepairs, last: Position, content: Content, keys: Sequence[Key], deletes: Sequence[Key]
    ) -> str:
        """Let the source read the rows of a repair into a spool; the spool's digest, "" if there are none."""
        assert last.mark is not None
        number = last.number + 1
        with self.spools.gather(self.stream, number, new_attempt()) as spool:
            rows = gathering.gather_repair(self.stream, content, last.mark, keys, deletes, spool)
            self.probe.at("gate.gathered", number=number)
            found = self.spools.close_gathered(spool) if rows else ""
        self.probe.at("gate.spooled", number=number)
        return found

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

    def report_unchanged(self, why: str) -> Turn:
        self.emit(Log(level="info", stream=self.stream, text=why))
        return Turn.NOTHING

    # ------------------------------------------------------------ before a slice

    def compare_with_sink(self, state: StreamState) -> None:
        """Ask the sink which slice it holds, even when nothing is new; stop if the store says another.

        Once in a run: after a slice that this run has committed, the sink's own answer to the commit counts.
        """
        if self.last_delivered is None or self.last_delivered != state.last:
            try:
                held = self.look.compare(state.last)
            except StreamStopped as reason:
                self.stop(reason)
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
            self.prepare(self.look.validate(state), state.last)
        budget = Budget(self.slice_bytes, self.rows_left(), self.row_bytes, self.workers(), self.seconds_left())
        planned = self.plan(state, budget)
        if planned is not None and self.has_moved and self.content_has_changed(state):
            planned = self.plan(state, budget)
        self.probe.at("gate.planned")
        content = self.look.content
        if planned is None or content is None:
            return None
        self.report_remaining(state)
        spool = ""
        if planned.kind.moves and (gathering := capability(self.source, Gathering)):
            planned, spool = self.gather(gathering, state, content, budget)
            if planned is None:
                return None
        slice_ = following(
            state.last,
            pipeline=self.pipeline,
            stream=self.stream,
            upto=planned.upto,
            content=content,
            kind=planned.kind,
            plan=planned.plan,
            spool=spool,
        )
        self.intend(slice_, rows=planned.rows)
        self.emit_all(
            drifting.describe_changes(
                self.stream,
                content_before(state),
                content,
                whole=self.look.replaces_all,
                dropped=self.look.dropped_columns,
            )
        )
        if not self.has_moved:
            self.emit_all(drifting.remind(self.stream, content))
        return slice_

    def gather(
        self, gathering: Gathering, state: StreamState, content: Content, budget: Budget
    ) -> tuple[Planned | None, str]:
        """Let the source read ahead into a spool; the slice that it plans from it, and the spool's digest."""
        if self.look.ceiling is None:
            return None, ""
        number, after = (state.last.number + 1, state.last.mark) if state.last else (1, None)
        with self.spools.gather(self.stream, number, new_attempt()) as spool:
            planned = gathering.gather(self.stream, content, after, self.look.ceiling, budget, spool)
            self.probe.at("gate.gathered", number=number)
            digest = self.spools.close_gathered(spool) if planned is not None else ""
        self.probe.at("gate.spooled", number=number)
        if planned is not None:
            self.emit(StepDone(stream=self.stream, step="gather", number=number, rows=planned.rows))
        return planned, digest

    def prepare(self, content: Content, at: Position | None) -> None:
        """Let the source prepare to read on from `at`. Only under the lease: it may write."""
        preparing, noticing = capability(self.source, Preparing), capability(self.sink, Noticing)
        for line in preparing.prepare(self.stream, content, at) if preparing else ():
            self.emit(Log(level="info", stream=self.stream, text=line))
        for line in noticing.notices(self.stream) if noticing else ():
            self.emit(Log(level="warning", stream=self.stream, text=line))
        self.probe.at("gate.prepared")
        self.is_prepared = True
        # What was seen before, in the look without the lease too, may have changed by it.
        self.look.forget()

    def fix_ceiling(self) -> Turn:
        """Fix how far this run reads, before the streams that must reach at least as far."""
        state = self.store.state(self.pipeline, self.stream)
        if state.intent is None and not state.reset_wanted:
            if not self.is_prepared:
                self.prepare(self.look.validate(state), state.last)
            self.plan(state, Budget(self.slice_bytes, rows=1, look=True))
        return Turn.NOTHING

    def content_has_changed(self, state: StreamState) -> bool:
        """Whether what would be read has changed since the slice before: a run may take hours."""
        before, self.look.content = self.look.content, None
        return self.look.validate(state) != before

    def plan(self, state: StreamState, budget: Budget) -> Planned | None:
        """Ask the source for the next slice; validates the stream the first time."""
        if self.finished_refresh is not None and state.last and state.last.id == self.finished_refresh:
            return None
        self.look.validate(state)
        return self.look.plan(state.last.mark if state.last else None, budget)

    @property
    def has_rows_held_back(self) -> bool:
        """Whether rows above the ceiling are held back: reported even if nothing moves."""
        return bool(self.look.ceiling and self.look.ceiling.get("held"))

    def report_remaining(self, state: StreamState) -> None:
        """Report the rows left, and why rows are held back."""
        content, ceiling = self.look.content, self.look.ceiling
        if content is None or ceiling is None:
            return
        after = state.last.mark if state.last else None
        remaining = estimate(self.source, self.stream, content, after, ceiling)
        self.emit(RowsRemaining(stream=self.stream, **remaining.document()))
        if remaining.warning and not self.has_warned:
            self.emit(Log(level="warning", stream=self.stream, text=remaining.warning))
            self.has_warned = True

    def intend(self, slice_: Slice, rows: int | None) -> Slice:
        self.store.intend(self.lease, slice_, now=self.clock.now(), run=self.run)
        self.probe.at("gate.intended", number=slice_.number)
        self.emit(StepDone(stream=self.stream, step="intend", number=slice_.number, rows=rows))
        return slice_

    # ------------------------------------------------------------ what is left, and stops

    def has_more(self) -> bool:
        """Whether another turn would move something."""
        if self.is_unfinished:
            return True
        state = self.store.state(self.pipeline, self.stream)
        if state.intent or state.reset_wanted:
            return True
        try:
            return self.plan(state, Budget(self.slice_bytes, rows=1, look=True)) is not None
        except OutOfTime as over:
            # The look before the first turn has used the time.
            self.report_unfinished(over)
            return True

    def report_unfinished(self, over: OutOfTime) -> None:
        """The run's time was over before the next slice was read."""
        self.emit(Log(level="warning", stream=self.stream, text=f"{over.what}. Next: {over.next_step}"))
        self.is_unfinished = True

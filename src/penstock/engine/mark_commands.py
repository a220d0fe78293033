"""Commands that move marks without rows: reset, rewind, undo, recover and migrate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from penstock.core.limits import Limits
from penstock.core.marks import Position
from penstock.core.messages import (
    Eof,
    Log,
    StateChanged,
)
from penstock.core.slices import Seal, Slice
from penstock.engine import sealing, undoing
from penstock.engine.execution import Execution
from penstock.engine.gate import Gate, Turn
from penstock.engine.reporter import Ending
from penstock.errors import (
    UNTOUCHED,
    InputError,
    StreamFailed,
    StreamRefused,
    StreamStopped,
)
from penstock.ports import (
    Archiving,
    Lease,
    Sealing,
    Withdrawing,
    capability,
    recover_sink,
)


class MarkCommands(Execution):
    """An execution that can take marks elsewhere."""

    def reset(self, streams: Sequence[str]) -> Eof:
        """Set streams back to their beginning: open slices are finished first, then an empty slice says so."""
        return self._report_errors("reset", lambda: self._reset_all(streams))

    def rewind(self, streams: Sequence[str] | None, to: str) -> Eof:
        """Set streams back to a place that the source knows: what comes after it is delivered again."""
        return self._report_errors("rewind", lambda: self._move_marks(streams, lambda gate: partial(gate.rewind, to)))

    def continue_behind(self, keys: Mapping[str, Sequence[str]]) -> Eof:
        """Begin streams behind the keys up to which another program has delivered their rows."""
        return self._report_errors(
            "import", lambda: self._move_marks([*keys], lambda gate: partial(gate.continue_behind, keys[gate.stream]))
        )

    def undo(self, streams: Sequence[str] | None, version: int | None = None) -> Eof:
        """Take marks back to where they were before their last change, or at a version of their history."""
        return self._report_errors("undo", lambda: self._move_marks(streams, lambda gate: self._undo(gate, version)))

    def recover(self, streams: Sequence[str] | None = None, *, drop_sealed: bool = False) -> Eof:
        """Set the store to what the sink holds; withdraws from the sink what cannot be made whole.

        `drop_sealed`: the operator confirms that a sealed slice may be dropped, although pieces of it may be delivered.
        """
        return self._report_errors("recover", lambda: self._recover_all(streams, drop_sealed))

    def migrate(self, streams: Sequence[str]) -> Eof:
        """Begin streams again in a new place, as they are configured now; what was delivered is kept elsewhere."""
        return self._report_errors("migrate", lambda: self._migrate_all(streams))

    def _reset_all(self, names: Sequence[str]) -> Ending:
        streams = self._connect(names)
        with self._hold_lease() as lease:
            for info in streams:
                gate = self._gate(info, Limits(), lease)
                state = self.store.state(self.pipeline, info.name)
                if state.intent is None and (state.last is None or state.last.mark is None):
                    self._reporter.report(Log(level="info", stream=info.name, text="is at its beginning already"))
                    continue
                self.store.request_reset(lease, info.name, now=self.clock.now())
                self.probe.at("engine.reset_wanted")
                while self.store.state(self.pipeline, info.name).reset_wanted and self._take_turn(gate) is not None:
                    self._check_interrupts()
            self._ending = self._conclude(None, [])
        return self._ending

    def _move_marks(self, names: Sequence[str] | None, make_work: Callable[[Gate], Callable[[], Turn]]) -> Ending:
        """Take marks elsewhere, each once what is open is finished; `make_work` is called before that."""
        streams = self._connect(names)
        with self._hold_lease() as lease:
            for info in streams:
                self._check_interrupts()
                gate = self._gate(info, Limits(), lease)
                work = make_work(gate)
                if self._finish_open(gate):
                    self._isolate(gate, work)
            self._ending = self._conclude(None, [])
        return self._ending

    def _undo(self, gate: Gate, version: int | None) -> Callable[[], Turn]:
        if version is None:
            version = undoing.default_version(self.store.state(self.pipeline, gate.stream))
        if version is None:
            return partial(gate.report_unchanged, "has finished the undo that was begun before")
        return partial(gate.undo, version)

    def _finish_open(self, gate: Gate) -> bool:
        """Finish what is open or wanted, and plan nothing new; False: it failed."""
        while True:
            state = self.store.state(self.pipeline, gate.stream)
            if state.intent is None and not state.reset_wanted:
                return True
            if self._take_turn(gate) is None:
                return False
            self._check_interrupts()

    def _recover_all(self, names: Sequence[str] | None, drop_sealed: bool) -> Ending:
        streams = self._connect(names)
        with self._hold_lease() as lease:
            for info in streams:
                try:
                    self._recover(lease, info.name, drop_sealed)
                except StreamStopped as error:
                    self._fail(info.name, error)
            self._ending = self._conclude(None, [])
        return self._ending

    def _migrate_all(self, names: Sequence[str]) -> Ending:
        streams = self._connect(names)
        archiving = capability(self.sink, Archiving)
        if archiving is None:
            raise InputError(
                "this sink cannot archive the data that it holds",
                safe=UNTOUCHED,
                next_step="rename the stream in the pipeline file, and set `table` to the table that it reads",
                pipeline=self.pipeline,
            )
        with self._hold_lease() as lease:
            label = self.clock.now().strftime("%Y%m%dT%H%M%S")
            for info in streams:
                self._check_interrupts()
                try:
                    lines = archiving.archive(info.name, label)
                except (StreamFailed, StreamRefused) as error:
                    self._fail(info.name, error)
                    continue
                for line in lines or ("the sink holds nothing of it",):
                    self._reporter.report(Log(level="info", stream=info.name, text=line))
                self.probe.at("engine.archived")
                held = self.sink.held(info.name)
                self._set_store(lease, info.name, held.position if held else None)
            self._ending = self._conclude(None, [])
        return self._ending

    def _recover(self, lease: Lease, stream: str, drop_sealed: bool) -> None:
        for line in recover_sink(self.sink, stream):
            self._reporter.report(Log(level="warning", stream=stream, text=line))
        held = self.sink.held(stream)
        position = held.position if held else None
        sealed = self._resolve_sealed(stream, position, drop_sealed)
        self._set_store(lease, stream, position, sealed)

    def _resolve_sealed(self, stream: str, held: Position | None, drop_sealed: bool) -> tuple[Slice, Seal] | None:
        """The sealed slice that stays open, if one does. Pieces of it may be delivered: it is never simply dropped."""
        seals = capability(self.sink, Sealing)
        if seals is None:
            return None
        found = self._find_sealed(stream, held)
        withdrawing = capability(self.sink, Withdrawing)
        if withdrawing is not None:
            opened = withdrawing.open_slice(stream)
            of_opened = [each for each in found if each[0].id == opened]
            if len(of_opened) == 1 and _is_staged(seals, of_opened[0]):
                return of_opened[0]
            for line in withdrawing.withdraw(stream, opened) if opened is not None else ():
                self._reporter.report(Log(level="warning", stream=stream, text=line))
            self.probe.at("engine.withdrawn")
        elif len(found) == 1 and _is_staged(seals, found[0]):
            return found[0]
        elif found and not drop_sealed:
            pieces = [line for slice_, seal in found for line in seals.describe_pieces(slice_, seal.receipts)]
            raise sealing.needs_decision(found[-1][0], pieces)
        for each in found:
            # One whose pieces are still there counts as soon as the same slice is planned again: a process that was
            # frozen may be about to deliver them.
            if not _is_staged(seals, each):
                self.spools.remove_seal(stream, each[0].number, each[0].id)
        return None

    def _find_sealed(self, stream: str, held: Position | None) -> list[tuple[Slice, Seal]]:
        """Sealed slices that follow what the sink holds: the store's, and those beside the spools."""
        state = self.store.state(self.pipeline, stream)
        known = [(state.intent, state.seal)] if state.intent is not None and state.seal is not None else []
        known += [each for each in sealing.read_all(self.spools, stream) if each not in known]
        return [each for each in known if each[0].previous == (held.id if held else "")]

    def _set_store(
        self, lease: Lease, stream: str, position: Position | None, sealed: tuple[Slice, Seal] | None = None
    ) -> None:
        """Set the store to what the sink holds; an open slice is dropped, unless it is sealed and stays open."""
        self.probe.at("engine.recovering")
        version = self.store.rebuild(lease, stream, position, now=self.clock.now(), run=self._run, sealed=sealed)
        self._reporter.report(
            StateChanged(
                stream=stream,
                version=version,
                number=position.number if position else 0,
                slice_id=position.id if position else "",
                mark=position.mark.text if position and position.mark else None,
                reason="recover",
                at=self.source.describe(position.mark if position else None),
            )
        )


def _is_staged(seals: Sealing, sealed: tuple[Slice, Seal]) -> bool:
    slice_, seal = sealed
    return seals.is_staged(slice_, seal.attempt, seal.receipts)

"""A run: one pipeline's streams through the gate, in turns, under one lease, until nothing is left or a limit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.core.limits import Limits
from penstock.core.messages import (
    Eof,
    Status,
    StreamStatus,
)
from penstock.engine import order
from penstock.engine.gate import Gate, Turn
from penstock.engine.repairing import Repairs
from penstock.engine.reporter import Ending
from penstock.errors import (
    ConnectionFailed,
)
from penstock.ports import (
    Awaiting,
    Budget,
    Gathering,
    Sweeping,
    capability,
    has_capability,
)


class Engine(Repairs):
    """Runs one pipeline over ports."""

    def run(self, limits: Limits | None = None, only: Sequence[str] | None = None) -> Eof:
        """Move what is new, up to the limits."""
        return self._report_errors("run", lambda: self._run_all(limits or Limits(), only))

    def _run_all(self, limits: Limits, only: Sequence[str] | None) -> Ending:
        self._begun = self.clock.elapsed()
        streams = self._connect(only)
        gates = [self._gate(info, limits, None) for info in streams]
        if self._has_nothing_new(gates):
            if (sweeping := capability(self.sink, Sweeping)) is not None:
                sweeping.sweep_all({gate.stream: held.position for gate in gates if (held := gate.look.held)})
            for gate in gates:
                self._reporter.report(StreamStatus(stream=gate.stream, status=Status.COMPLETE))
            return Ending("complete", 0)
        with self._hold_lease() as lease:
            for gate in gates:
                gate.lease = lease
            limit, waiting = self._take_turns(self._fix_ceilings(gates), limits)
            self._ending = self._conclude(limit, waiting)
        return self._ending

    def _fix_ceilings(self, gates: Sequence[Gate]) -> list[Gate]:
        """Where some streams are ahead of others, those that come last look first: what they refer to is there then.

        Gives the streams that did not fail by it.
        """
        by_name = {gate.stream: gate for gate in gates}
        failed = [
            name
            for name in order.from_the_end(list(by_name), self._ahead)
            if self._isolate(by_name[name], by_name[name].fix_ceiling) is None
        ]
        return [gate for gate in gates if gate.stream not in failed]

    def _take_turns(self, gates: Sequence[Gate], limits: Limits) -> tuple[str | None, list[Gate]]:
        """One slice of each stream in turn, so that a large stream does not keep the others waiting."""
        waiting = list(gates)
        for gate in gates:
            self._reporter.report(StreamStatus(stream=gate.stream, status=Status.START))
        while waiting:
            self._check_interrupts()
            limit = limits.describe_reached(
                moved=self._reporter.request.rows, elapsed=self.clock.elapsed() - self._begun
            )
            if limit:
                return limit, list(waiting)
            names = [gate.stream for gate in waiting]
            gate = waiting.pop(order.next_of(names, self._ahead, [name for name in names if self._is_awaited(name)]))
            turn = self._take_turn(gate)
            if turn is Turn.MOVED:
                self.store.save_progress(
                    gate.lease,
                    self._run,
                    totals=self._reporter.totals(),
                    streams=self._reporter.progress_of([gate.stream]),
                )
                self._reporter.report(StreamStatus(stream=gate.stream, status=Status.RANGE_COMPLETE))
                waiting.append(gate)
            elif turn is Turn.UNFINISHED:
                waiting.append(gate)
            elif turn is Turn.NOTHING:
                if gate.look.info.finds_deletes and self._isolate(gate, partial(self.find_deletes, gate)) is None:
                    continue
                self._reporter.report(StreamStatus(stream=gate.stream, status=Status.COMPLETE))
        return None, []

    def _has_nothing_new(self, gates: Sequence[Gate]) -> bool:
        """A look without the lease: if every stream agrees with its sink and has nothing new, nothing is written.

        Anything else, a disagreement too, is looked at again under the lease: another process may be at work.
        """
        found = (self._may_have_work(gate) for gate in gates)
        # A source that gathers looks at all of its streams, so that it can fetch ahead for those that come later.
        return not any(list(found) if has_capability(self.source, Gathering) else found)

    def _may_have_work(self, gate: Gate) -> bool:
        try:
            return self._is_awaited(gate.stream) or self._has_work(gate)
        except ConnectionFailed:
            raise
        except Exception:  # noqa: BLE001 (asked again under the lease, where a failure is its stream's own)
            return True

    def _is_awaited(self, stream: str) -> bool:
        """Whether the source still waits for a first answer about a stream: it does not keep the others waiting."""
        awaiting = capability(self.source, Awaiting)
        return awaiting is not None and awaiting.is_awaited(stream)

    def _has_work(self, gate: Gate) -> bool:
        state = self.store.state(self.pipeline, gate.stream)
        if state.reset_wanted or state.stopped or (gate.look.info.finds_deletes and state.last is not None):
            return True
        if state.intent:
            held = self.sink.held(gate.stream)
            if state.intent.kind.moves and (held is None or held.position.id != state.intent.id):
                self.mover().begin()
            return True
        budget = Budget(self.settings.slice_bytes, rows=1, seconds=gate.seconds_left(), look=True)
        planned = gate.look.look(state, budget)
        if planned is not None and planned.kind.moves and planned.rows != 0:
            # It starts in the background, beside the other looks, the lease and the plan.
            self.mover().begin()
        # Rows that are held back are reported, and the run's record has them.
        return planned is not None or gate.has_rows_held_back

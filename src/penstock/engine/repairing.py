"""Delivers rows that differ between source and sink, by slices that list their keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from penstock.core.comparing import Difference
from penstock.core.drift import EVOLVE
from penstock.core.limits import Limits
from penstock.core.messages import Eof, Log
from penstock.core.ranges import Key
from penstock.engine import order
from penstock.engine.comparing import Comparison, DeletedKeys, Differences
from penstock.engine.delivery import DROP_LIMIT
from penstock.engine.gate import Gate, Turn
from penstock.engine.mark_commands import MarkCommands
from penstock.engine.reporter import Ending
from penstock.errors import NotComparable, StreamFailed
from penstock.ports import StreamInfo, StreamState

#: keys that one slice delivers: its plan lists them
SLICE_KEYS = 2000
#: fewer deletes than this are delivered without a question
MIN_DROP_ROWS = 100


@dataclass(frozen=True, slots=True)
class Repair:
    """What is to be repaired of one stream."""

    #: keys whose rows are missing or stale in the sink
    keys: Sequence[Key] = ()
    #: keys that were deleted at the source
    deletes: Sequence[Key] = ()

    @property
    def all(self) -> list[Key]:
        return [*self.keys, *self.deletes]


@dataclass
class Repaired:
    """What became of a repair."""

    #: by stream, keys that still differ
    left: dict[str, dict[Key, Difference]] = field(default_factory=dict)


class Repairs(MarkCommands):
    """An execution that can deliver keys."""

    def repair(self, wanted: Mapping[str, Repair], result: Repaired) -> Eof:
        """Deliver the current rows of keys, and delete keys that the source no longer has."""
        return self._report_errors("repair", lambda: self._repair_all(wanted, result))

    def _repair_all(self, wanted: Mapping[str, Repair], result: Repaired) -> Ending:
        streams = self._connect(list(wanted))
        with self._hold_lease() as lease:
            waiting = list(streams)
            while waiting:
                self._check_interrupts()
                # Rows that others refer to come first.
                info = waiting.pop(order.next_of([each.name for each in waiting], self._ahead))
                gate = self._gate(info, Limits(), lease)
                if self._finish_open(gate):
                    self._isolate(gate, partial(self._repair, gate, wanted[info.name], result))
            self._ending = self._conclude(None, [])
        return self._ending

    def _repair(self, gate: Gate, wanted: Repair, result: Repaired) -> Turn:
        with closing(self._comparison(gate.look.info)) as comparison:
            return self._repair_keys(gate, comparison, wanted, result)

    def _repair_keys(self, gate: Gate, comparison: Comparison, wanted: Repair, result: Repaired) -> Turn:
        turn = Turn.NOTHING
        for some in _chunks(wanted):
            self._check_interrupts()
            # Under the lease now: what has been delivered meanwhile is not delivered again.
            found = _look(comparison, some.all)
            deletes = set(some.deletes)
            keys = [key for key, kind in found.items() if kind is not Difference.EXTRA]
            gone = [key for key, kind in found.items() if kind is Difference.EXTRA and key in deletes]
            if not keys and not gone:
                continue
            turn = gate.repair(keys, gone)
            left = _look(comparison, [*keys, *gone])
            if left:
                result.left.setdefault(gate.stream, {}).update(left)
        if turn is Turn.NOTHING:
            gate.report_unchanged("nothing differs any more")
        for kind in Difference:
            count = sum(each is kind for each in result.left.get(gate.stream, {}).values())
            if count:
                text = f"{count} {kind} after the repair: the sink does not take them, or has a newer row"
                gate.emit(Log(level="warning", stream=gate.stream, text=text))
        return turn

    def find_deletes(self, gate: Gate) -> Turn:
        """Look for rows that were deleted at the source since the last time, and deliver the deletes."""
        info, stream = gate.look.info, gate.stream
        state = self.store.state(self.pipeline, stream)
        if state.last is None or state.last.mark is None:
            return Turn.NOTHING

        def report(rows: int) -> None:
            self._check_interrupts()
            self.report_work(stream, "looking for deleted rows", done=rows)

        report(0)
        with closing(self._comparison(info, keys_only=True, report=report)) as comparison:
            return self._find_deletes(gate, comparison, state)

    def _find_deletes(self, gate: Gate, comparison: Comparison, state: StreamState) -> Turn:
        try:
            after = tuple(json.loads(state.compared)) if state.compared else None
            if after is not None and len(after) != len(comparison.columns.key):
                after = None  # the key was another one
            found = comparison.find_deleted(after, gate.look.info.delete_search_rows)
        except NotComparable as reason:
            # It could be, by its configuration: nothing was delivered yet.
            return gate.report_unchanged(f"deleted rows are not looked for: it {reason.what}")
        turn = self._deliver_deletes(gate, comparison, found) if found.keys else Turn.NOTHING
        compared = json.dumps(found.upto) if found.upto else None
        if compared != state.compared:
            self.store.save_compared(gate.lease, gate.stream, compared)
        self.probe.at("engine.compared")
        return turn

    def _deliver_deletes(self, gate: Gate, comparison: Comparison, found: DeletedKeys) -> Turn:
        number, info = len(found.keys), gate.look.info
        foreign = comparison.explain_foreign_rows()
        if foreign:
            text = f"{number} rows of the sink are not at the source; none was deleted, because {foreign}"
            gate.emit(Log(level="warning", stream=gate.stream, text=text))
            return Turn.NOTHING
        if number > max(MIN_DROP_ROWS, found.rows * DROP_LIMIT) and not info.accept_drop:
            raise StreamFailed(
                f"{number} of {found.rows} rows of the sink are no longer at the source",
                next_step="check that the source is complete; if the rows were deleted there, set "
                "`accept_drop: true` on the stream",
                safe="No row was deleted; new and changed rows were delivered.",
                pipeline=self.pipeline,
                stream=gate.stream,
            )
        for some in _chunks(Repair(deletes=found.keys)):
            self._check_interrupts()
            gate.repair((), some.deletes)
        return Turn.MOVED

    def _comparison(
        self, info: StreamInfo, *, keys_only: bool = False, report: Callable[[int], None] = lambda _: None
    ) -> Comparison:
        return Comparison(
            info,
            self.source,
            self.sink,
            keys_only=keys_only,
            report=report,
            drift=self.settings.drift.get(info.name, EVOLVE),
            dropped_columns=self.settings.dropped_columns.get(info.name, ()),
            elapsed=self.clock.elapsed,
        )


def _look(comparison: Comparison, keys: Sequence[Key]) -> dict[Key, Difference]:
    found = Differences(comparison.columns)
    comparison.look_again(keys, found)
    return found.keys


def _chunks(wanted: Repair) -> Sequence[Repair]:
    """The repair in pieces that a slice can list. Deletes come last: a slice with deletes has other content."""

    def cut(keys: Sequence[Key]) -> list[Sequence[Key]]:
        return [keys[first : first + SLICE_KEYS] for first in range(0, len(keys), SLICE_KEYS)]

    return [*(Repair(keys=some) for some in cut(wanted.keys)), *(Repair(deletes=some) for some in cut(wanted.deletes))]

"""The state machine on the real lake sink: what may happen to a table, beside what may happen to any stream."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from penstock.core.retry import NO_PAUSE, Retry
from penstock.lake import landing, tables
from tests.engine.lake_world import LakeWorld
from tests.engine.machine import GATE_POINTS, MEMORY, GateMachine, one_of

MEANWHILE = st.sampled_from(["nothing", "compacts", "lands", "lands", "expires"])


class LakeMachine(GateMachine):
    """Beside a table: another pipeline, compaction, expiry, rollback, drop."""

    world: LakeWorld
    points = (*GATE_POINTS, "lake.prepared", "lake.landed")
    between = ("gate.asked", "gate.moved", "lake.part_written", "lake.prepared", "lake.prepared")
    landed = ("lake.landed",)
    most_faults, most_starts, most_rows = 3, 8, 8
    #: one catalog for all examples: making one takes longer than a slice
    lake: str | None = None
    made = 0

    def __init__(self) -> None:
        # A turn is for liveness; in this box whoever goes on goes alone.
        self.patience: list[Any] = [
            mock.patch.object(landing, "TURN_SECONDS", 0.0),
            mock.patch.object(landing, "TURN_POLL", NO_PAUSE),
            *(mock.patch.object(module, "LOST_RACES", Retry(tables.LOST_RACES.tries)) for module in (landing, tables)),
        ]
        for each in self.patience:
            each.start()
        super().__init__()

    def made_world(self) -> LakeWorld:
        if LakeMachine.lake is None:
            LakeMachine.lake = tempfile.mkdtemp(prefix="lake-", dir=MEMORY)
            atexit.register(shutil.rmtree, LakeMachine.lake, ignore_errors=True)
        LakeMachine.made += 1
        name = f"n{LakeMachine.made}"
        return LakeWorld(os.path.join(LakeMachine.lake, name), namespace=name)

    @precondition(lambda self: self.world.now.state)
    @rule(rows=st.integers(0, 2))
    def another_pipeline_lands(self, rows: int) -> None:
        if self.fault():
            self.world.other_lands(rows)
            self.world.check()

    @precondition(lambda self: self.world.now.state)
    @rule()
    def table_is_compacted(self) -> None:
        self.world.compacts()
        self.world.check()

    @precondition(lambda self: self.world.now.state)
    @rule()
    def snapshots_expire(self) -> None:
        self.world.expires()
        self.world.check()

    @precondition(lambda self: self.world.now.state and not self.world.stopped)
    @rule(back=st.integers(1, 3), sure=st.integers(0, 1))
    def main_is_rolled_back(self, back: int, sure: int) -> None:
        if sure == 0 and self.fault():
            self.world.rolls_back(back)

    @precondition(lambda self: self.world.now.state and not self.world.stopped)
    @rule(made_again=st.booleans(), sure=st.integers(0, 5))
    def table_is_dropped(self, made_again: bool, sure: int) -> None:
        if sure == 0 and self.fault():
            self.world.drops()
            if made_again:
                self.world.other_lands(1)
                self.world.look_anew()

    @precondition(lambda self: len(self.world.processes) < 2 and not self.world.stopped)
    @precondition(lambda self: self.world.starts + 1 < self.most_starts)
    @rule(point=one_of("between"), vacate=st.booleans(), meanwhile=MEANWHILE)
    def writer_is_frozen(self, point: str, vacate: bool, meanwhile: str) -> None:
        self.freezes(point, vacate=vacate, meanwhile=lambda: self.happens(meanwhile))

    @precondition(lambda self: len(self.world.processes) < 2 and not self.world.stopped)
    @precondition(lambda self: self.world.starts < self.most_starts)
    @rule(point=one_of("between"), meanwhile=MEANWHILE)
    def writer_meets(self, point: str, meanwhile: str) -> None:
        self.meets(point, lambda: self.happens(meanwhile))

    @precondition(lambda self: len(self.world.processes) < 2 and not self.world.stopped)
    @precondition(lambda self: self.world.starts < self.most_starts)
    @rule(meanwhile=MEANWHILE)
    def landing_is_not_answered(self, meanwhile: str) -> None:
        """A landing took effect, and its process does not learn so."""
        self.row_arrives()
        process = self.world.start()
        self.go_to(process, "lake.landed")
        self.happens(meanwhile)
        if process.point == "lake.landed":
            process.lose_answer()
        self.go(process, 400)

    @precondition(lambda self: self.world.now.link and not self.world.stopped)
    @precondition(lambda self: self.world.starts + 2 < self.most_starts)
    @rule(back=st.integers(1, 2), meanwhile=st.sampled_from(["nothing", "compacts", "lands"]))
    def main_is_rolled_back_and_recovered(self, back: int, meanwhile: str) -> None:
        """The stream stops if the rollback took one of its slices; recover leads out."""
        if not self.fault():
            return
        self.world.rolls_back(back)
        self.happens(meanwhile)
        self.world.finish_without_faults(None)
        if self.world.stopped:
            self.operator_recovers(then_run=True)

    def happens(self, what: str) -> None:
        if what == "lands" and self.world.now.state:
            self.world.other_lands(1)
        elif what == "compacts":
            self.world.compacts()
        elif what == "expires":
            self.world.expires()
        self.world.check()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            for each in self.patience:
                each.stop()
            shutil.rmtree(self.world.folder, ignore_errors=True)


class Focused(LakeMachine):
    """Only what concerns the table: for finding mistakes there, in few examples."""

    most_faults, most_starts = 6, 14
    start = rewind = undo = step = step_to = start_to = finish = crash = answer_is_lost = None  # type: ignore[assignment]
    store_is_copied = store_is_restored = old_store_comes_back = store_is_lost = None  # type: ignore[assignment]
    sink_is_copied = sink_is_restored = table_is_dropped = main_is_rolled_back = None  # type: ignore[assignment]

"""The state machine: everything that may happen to one stream, in any order, as Hypothesis rules."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from unittest import mock

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.engine.files_world import FilesWorld
from tests.engine.gathered_world import GatheredWorld
from tests.engine.processes import Process
from tests.engine.sealed_world import SealedWorld
from tests.engine.world import World, Wrong
from tests.store.memory_store import Contents

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
#: points worth going to at once, so that two processes meet where it matters
GATE_POINTS = (
    "gate.compared",
    "gate.prepared",
    "gate.planned",
    "gate.intended",
    "gate.asked",
    "gate.moved",
    "gate.committed",
    "gate.advanced",
)


#: times the examples of `test_properties_hold`: `script/soak suite --search N`
MORE_EXAMPLES = int(os.environ.get("PENSTOCK_SEARCH", "1"))


def few(examples: int) -> settings:
    """Beside a real server or lake a slice takes a hundred times as long as in a folder: none is shrunk."""
    return settings(
        max_examples=examples * MORE_EXAMPLES,
        stateful_step_count=25,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )


#: the few examples in which a mutant must be caught
SEARCH = settings(few(60), stateful_step_count=12, database=None, phases=[Phase.generate])


def one_of(name: str) -> st.SearchStrategy[str]:
    """One of the points that the machine at hand lists under a name."""
    return st.runner().flatmap(lambda machine: st.sampled_from(getattr(machine, name)))


class GateMachine(RuleBasedStateMachine):
    """Crash, freeze, wake, lost answer, take-over, restored and lost store or sink, reset, rewind, undo, recover."""

    points: tuple[str, ...] = GATE_POINTS
    #: after the sink was asked and before the commit takes effect
    between: tuple[str, ...] = ("gate.asked", "gate.moved")
    #: the points at which a commit has taken effect although its caller may not learn so
    landed: tuple[str, ...] = ()
    #: faults in one history, and processes
    most_faults, most_starts, most_rows = 4, 12, 10

    def __init__(self) -> None:
        super().__init__()
        # Syncing is for power cuts, which no process in this box can see; it would only slow the search.
        self.sync = mock.patch("os.fsync", return_value=None)
        self.sync.start()
        self.folder = tempfile.mkdtemp(prefix="gate-", dir=MEMORY)
        self.world = self.made_world()
        self.faults = 0
        self.store_copy: Contents | None = None
        self.sink_copy: object = None

    def made_world(self) -> World:
        raise NotImplementedError

    @initialize(rows=st.integers(1, 3))
    def first_rows(self, rows: int) -> None:
        for _ in range(rows):
            self.row_arrives()

    def fault(self) -> bool:
        self.faults += 1
        return self.faults <= self.most_faults

    @rule()
    def row_arrives(self) -> None:
        if self.world.rows.arrived < self.most_rows:
            self.world.rows.arrive(self.world.rows.arrived + 1)

    @precondition(
        lambda self: len(self.world.processes) < 2 and not self.world.stopped and self.world.starts < self.most_starts
    )
    @rule(verb=st.sampled_from(["run", "run", "run", "reset"]), steps=st.integers(0, 24))
    def start(self, verb: str, steps: int) -> None:
        self.go(self.world.start(verb), steps)

    @precondition(
        lambda self: len(self.world.processes) < 2 and not self.world.stopped and self.world.starts < self.most_starts
    )
    @precondition(lambda self: self.mark())
    @rule(back=st.integers(1, 3), steps=st.integers(0, 24))
    def rewind(self, back: int, steps: int) -> None:
        self.go(self.world.start("rewind", max(0, self.mark() - back)), steps)

    @precondition(
        lambda self: len(self.world.processes) < 2 and not self.world.stopped and self.world.starts < self.most_starts
    )
    @precondition(lambda self: self.version() > 1)
    @rule(back=st.integers(1, 4), steps=st.integers(0, 24))
    def undo(self, back: int, steps: int) -> None:
        self.go(self.world.start("undo", max(1, self.version() - back)), steps)

    @precondition(lambda self: self.world.processes)
    @rule(which=st.integers(0, 1), steps=st.integers(1, 24))
    def step(self, which: int, steps: int) -> None:
        self.go(self.chosen(which), steps)

    @precondition(lambda self: self.world.processes)
    @rule(which=st.integers(0, 1), point=one_of("points"))
    def step_to(self, which: int, point: str) -> None:
        self.go_to(self.chosen(which), point)

    @precondition(
        lambda self: len(self.world.processes) < 2 and not self.world.stopped and self.world.starts < self.most_starts
    )
    @rule(point=one_of("points"))
    def start_to(self, point: str) -> None:
        self.go_to(self.world.start(), point)

    @precondition(lambda self: self.world.processes)
    @rule(which=st.integers(0, 1), sure=st.booleans())
    def finish(self, which: int, sure: bool) -> None:
        if not sure:
            return
        self.go(self.chosen(which), 400)

    @precondition(lambda self: self.world.processes)
    @rule(which=st.integers(0, 1))
    def crash(self, which: int) -> None:
        if self.fault():
            self.world.crash(self.chosen(which))
            self.world.check()

    @precondition(lambda self: self.world.processes)
    @rule(which=st.integers(0, 1), point=one_of("landed"), steps=st.integers(0, 24))
    def answer_is_lost(self, which: int, point: str, steps: int) -> None:
        process = self.chosen(which)
        self.go_to(process, point)
        if process.point == point:
            process.lose_answer()
        self.go(process, steps)

    @precondition(lambda self: self.world.rows.arrived < self.most_rows)
    @rule(back=st.integers(0, 2))
    def row_is_updated(self, back: int) -> None:
        last = self.world.store.state("p", "s").last
        if last is not None and last.mark is None:
            return  # after a reset everything is above the mark, also what was delivered before
        above = [place for place in self.world.rows.places if place > self.mark()]
        if len(above) > back and self.fault():
            self.world.rows.update(sorted(above)[-1 - back])

    @precondition(lambda self: self.store_copy is None)
    @rule()
    def store_is_copied(self) -> None:
        self.store_copy = self.world.store.copy()

    @precondition(lambda self: self.store_copy is not None)
    @rule()
    def store_is_restored(self) -> None:
        if self.fault():
            assert self.store_copy is not None
            self.world.store.restore(self.store_copy)
            self.world.tampered_store = True

    @precondition(
        lambda self: not self.world.processes and not self.world.stopped and self.world.starts < self.most_starts
    )
    @rule(at=one_of("between"), point=one_of("between"), then_finish=st.booleans())
    def old_store_comes_back(self, at: str, point: str, then_finish: bool) -> None:
        """While one process is at work, a copy of the store from before is used by another, and a row has come."""
        copy = self.world.store.copy()
        self.go_to(self.world.start(), at)
        self.row_arrives()
        if self.fault():
            self.world.store.restore(copy)
            self.world.tampered_store = True
        if not self.world.stopped:
            self.go_to(self.world.start(), point)
        for process in list(self.world.processes) if then_finish else ():
            self.go(process, 400)

    @rule(sure=st.integers(0, 5))
    def store_is_lost(self, sure: int) -> None:
        if sure == 0 and self.fault():
            self.world.store.lose()
            self.world.tampered_store = True

    @precondition(lambda self: self.sink_copy is None)
    @rule()
    def sink_is_copied(self) -> None:
        self.sink_copy = self.world.copy_sink()

    @precondition(lambda self: self.sink_copy is not None)
    @rule(sure=st.booleans())
    def sink_is_restored(self, sure: bool) -> None:
        if sure and self.fault():
            assert self.sink_copy is not None
            self.world.restore_sink(self.sink_copy)

    @precondition(lambda self: self.world.stopped)
    @rule(then_run=st.booleans())
    def operator_recovers(self, then_run: bool) -> None:
        self.world.recover()
        if then_run:
            self.world.finish_without_faults(None)
            if self.world.stopped:
                raise Wrong(f"no way out: after recover a run alone stops again: {self.world.stopped}")

    @rule(which=st.integers(-1, 1), sure=st.integers(0, 4))
    def finish_without_faults(self, which: int, sure: int) -> None:
        if sure:
            return  # it ends much, so it comes seldom
        alone = self.chosen(which) if which >= 0 and self.world.processes else None
        self.world.finish_without_faults(alone)

    def freezes(self, point: str, *, vacate: bool, meanwhile: Callable[[], None]) -> None:
        """One is frozen with its slice at hand; rows leave it; another does the slice; the first one wakes."""
        self.row_arrives()
        first = self.world.start()
        self.go_to(first, point)
        if vacate:
            self.row_is_updated(0)
        meanwhile()
        if not self.world.stopped and not first.ended:
            self.go(self.world.start(), 400)
            self.go(first, 400)

    def meets(self, point: str, meanwhile: Callable[[], None]) -> None:
        """Something happens while one is at work; it goes on."""
        self.row_arrives()
        process = self.world.start()
        self.go_to(process, point)
        meanwhile()
        self.go(process, 400)

    def mark(self) -> int:
        last = self.world.store.state("p", "s").last
        return int(last.mark.document["place"]) if last and last.mark else 0

    def version(self) -> int:
        return self.world.store.state("p", "s").version

    def chosen(self, which: int) -> Process:
        return self.world.processes[which % len(self.world.processes)]

    def go_to(self, process: Process, point: str) -> None:
        for _ in range(60):
            if process.ended or process.step() == point:
                break
            self.world.check()
        self.go(process, 0)

    def go(self, process: Process, steps: int) -> None:
        self.world.step(process, steps)
        self.world.check()

    def teardown(self) -> None:
        try:
            if not self.world.stopped:
                self.world.finish_without_faults(None)
        finally:
            self.world.end()
            self.sync.stop()
            shutil.rmtree(self.folder, ignore_errors=True)


class FilesMachine(GateMachine):
    """Beside a folder of files."""

    world: FilesWorld
    points: tuple[str, ...] = (*GATE_POINTS, "files.manifest_written", "files.manifest_linked")
    between = ("gate.asked", "gate.moved", "files.manifest_written")
    landed = ("files.manifest_linked", "files.all_visible")

    def made_world(self) -> FilesWorld:
        return FilesWorld(self.folder)

    @precondition(lambda self: self.world.visible_files())
    @rule(newest=st.booleans(), sure=st.integers(0, 3))
    def file_is_deleted(self, newest: bool, sure: int) -> None:
        if sure == 0 and self.fault():
            files = sorted(self.world.visible_files())
            self.world.delete(files[-1] if newest else files[0])


class GatheredMachine(FilesMachine):
    """Beside a source that gathers, and a folder of files."""

    world: GatheredWorld
    points = (*FilesMachine.points, "gate.gathered", "gate.spooled")

    def made_world(self) -> GatheredWorld:
        return GatheredWorld(self.folder)

    @rule(sure=st.integers(0, 3))
    def spools_are_lost(self, sure: int) -> None:
        if sure == 0 and self.fault():
            self.world.lose_spools()


class SealedMachine(GateMachine):
    """Beside a source that gathers and a sink that seals."""

    world: SealedWorld
    points = (*GATE_POINTS, "gate.gathered", "gate.spooled", "gate.sealed", "gate.seal_kept", "sealed.piece_sent")
    between = ("gate.asked", "gate.moved", "gate.sealed", "gate.seal_kept", "sealed.piece_sent")
    landed = ("sealed.piece_sent",)

    def made_world(self) -> SealedWorld:
        return SealedWorld(self.folder)

    @rule(sure=st.integers(0, 3))
    def spools_are_lost(self, sure: int) -> None:
        if sure == 0 and self.fault():
            self.world.lose_spools()

    @rule(point=one_of("between"), loses=st.booleans(), steps=st.integers(0, 24))
    def slice_is_cut_short(self, point: str, loses: bool, steps: int) -> None:
        """One process dies with a slice of several pieces, a row of it changes, perhaps the spools are lost."""
        if self.is_free() and self.fault():
            self.cut_short(point)
            if loses:
                self.world.lose_spools()
            self.go(self.world.start(), steps)

    @rule(point=one_of("between"), another=st.booleans())
    def store_forgets_the_slice(self, point: str, another: bool) -> None:
        """The store comes back as it was before the slice was sealed; perhaps the next plan is another one."""
        if self.is_free() and self.fault():
            copies = [self.world.store.copy()]
            self.cut_short(point, copies)
            self.world.store.restore(copies[0] if another else copies[-1])
            self.world.tampered_store = True
            if another:
                self.row_arrives()
            self.go(self.world.start(), 400)
            if self.world.stopped:
                self.operator_recovers(True)

    @rule(first=one_of("between"), second=one_of("between"))
    def two_stage_one_slice(self, first: str, second: str) -> None:
        """One is frozen, a row changes, another does the same slice; the first wakes, then the other goes on."""
        if self.is_free() and self.world.starts + 1 < self.most_starts and self.fault():
            self.row_arrives()
            self.row_arrives()
            frozen = self.world.start()
            self.go_to(frozen, first)
            self.row_of_the_slice_changes()
            other = self.world.start()
            self.go_to(other, second)
            self.row_of_the_slice_changes()
            self.go(frozen, 400)
            self.go(other, 400)

    def is_free(self) -> bool:
        return not self.world.processes and not self.world.stopped and self.world.starts < self.most_starts

    def cut_short(self, point: str, copies: list[Contents] | None = None) -> None:
        self.row_arrives()
        self.row_arrives()
        process = self.world.start()
        if copies is not None:
            self.go_to(process, "gate.intended")
            copies.append(self.world.store.copy())
        self.go_to(process, point)
        if not process.ended:
            self.world.crash(process)
        self.row_of_the_slice_changes()

    def row_of_the_slice_changes(self) -> None:
        last = self.world.store.state("p", "s").last
        above = sorted(place for place in self.world.rows.places if place > self.mark())
        if above and not (last is not None and last.mark is None) and self.world.rows.arrived < self.most_rows:
            self.world.rows.update(above[0])


class SealedNotGathered(SealedMachine):
    """Rows of a slice may change between two moves of it: only the seal keeps pieces of both apart."""

    def made_world(self) -> SealedWorld:
        return SealedWorld(self.folder, gathers=False)

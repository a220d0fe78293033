"""The state machine on the real Postgres sink: what may happen to a server, beside what may happen to any stream."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.engine.machine import GATE_POINTS, GateMachine, one_of
from tests.engine.postgres_world import INSIDE, PostgresWorld

MEANWHILE = st.sampled_from(["nothing", "nothing", "connection", "crash"])


class PostgresMachine(GateMachine):
    """Beside a table to which rows are added: connections that are cut, a server that crashes, a drop."""

    world: PostgresWorld
    points = (*GATE_POINTS, "postgres.prepared", *INSIDE, "postgres.landed")
    between = ("gate.asked", "gate.moved", "postgres.part_written", "postgres.prepared", *INSIDE)
    landed = ("postgres.landed",)
    #: where a writer has not yet begun its slice
    early = ("gate.started", "gate.compared", "gate.planned", "gate.intended", "gate.asked")
    #: where a writer is frozen until another has gone past it
    halts = (*between, "postgres.landed", "gate.committed")
    most_faults, most_starts, most_rows = 3, 8, 10
    #: one database for all examples, in which each has a schema of its own
    url = ""
    made = itertools.count(1)
    keyed = False

    def made_world(self) -> PostgresWorld:
        schema = f"w{next(self.made)}"
        return PostgresWorld(self.folder, url=self.url, schema=schema, keyed=self.keyed)

    @precondition(lambda self: self.world.processes)
    @rule(which=st.integers(0, 1), what=st.sampled_from(["connection", "crash"]))
    def server_fails(self, which: int, what: str) -> None:
        if self.fault():
            self.happens(what, which)

    @precondition(lambda self: self.world.now.slices and not self.world.stopped)
    @rule(recovered=st.booleans(), sure=st.booleans())
    def table_is_dropped(self, recovered: bool, sure: bool) -> None:
        """The stream stops; recover leads out."""
        if sure and self.world.there and self.fault():
            self.world.drops()
            if recovered:
                self.world.finish_without_faults(None)
                self.operator_recovers(then_run=True)

    @precondition(lambda self: len(self.world.processes) < 2 and not self.world.stopped)
    @precondition(lambda self: self.world.starts + 1 < self.most_starts)
    @rule(point=one_of("halts"), vacate=st.booleans(), more=st.integers(0, 4), meanwhile=MEANWHILE)
    def writer_is_frozen(self, point: str, vacate: bool, more: int, meanwhile: str) -> None:
        """Another does its slice and up to two more before it wakes."""

        def happens() -> None:
            for _ in range(more):
                self.row_arrives()
            self.happens(meanwhile, -1)

        self.freezes(point, vacate=vacate, meanwhile=happens)

    @precondition(lambda self: len(self.world.processes) < 2 and not self.world.stopped)
    @precondition(lambda self: self.world.starts < self.most_starts)
    @rule(point=one_of("between"), meanwhile=MEANWHILE)
    def writer_meets(self, point: str, meanwhile: str) -> None:
        self.meets(point, lambda: self.happens(meanwhile, -1))

    @precondition(lambda self: not self.world.processes and not self.world.stopped)
    @precondition(lambda self: self.world.starts + 1 < self.most_starts)
    @rule(at=one_of("early"), point=one_of("halts"), dies=st.booleans())
    def writers_cross(self, at: str, point: str, dies: bool) -> None:
        """One halts before it has begun, another does its slice; the first goes on meanwhile, then the second."""
        self.row_arrives()
        first = self.world.start()
        self.go_to(first, at)
        if self.world.stopped:
            return
        second = self.world.start()
        self.go_to(second, point)
        if dies and not second.ended:
            self.world.crash(second)
        for process in (first, second):
            self.go(process, 400)

    def happens(self, what: str, which: int) -> None:
        if what == "connection" and self.world.processes:
            self.world.cut(self.chosen(which))
        elif what == "crash":
            self.world.crashes()
        self.world.check()


class KeyedMachine(PostgresMachine):
    """Beside a table with a key."""

    keyed = True


class Narrow(PostgresMachine):
    """Only what several do: for finding mistakes in few examples."""

    most_faults, most_starts = 6, 14
    start = rewind = undo = step = step_to = start_to = finish = crash = answer_is_lost = None  # type: ignore[assignment]
    store_is_copied = store_is_restored = sink_is_copied = sink_is_restored = server_fails = None  # type: ignore[assignment]


class Meeting(Narrow):
    """Writers that meet each other, or a server that fails."""

    old_store_comes_back = store_is_lost = table_is_dropped = None  # type: ignore[assignment]


class Losing(Narrow):
    """Stores that are lost or come back, and tables that are dropped."""

    writer_is_frozen = writers_cross = None  # type: ignore[assignment]

"""The world of the gate model with the real engine in it, and what must hold there, whatever the sink.

Names follow `gate_model.py`: doubled, ahead, vanished, false stop, lost, partial, livelock, no way out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from penstock.core.messages import Eof, Message, Status, StreamStatus
from penstock.engine import Engine, Settings
from penstock.ports import Mover, Owner, Probe, Sink, Source, Spools
from tests.engine.processes import Process
from tests.harness.doubles import Clock, LoopMover, MemorySource, Rows
from tests.store.memory_store import MemoryStore

PIPELINE, STREAM = "p", "s"
#: refusals that say that another process was faster: the stream stands elsewhere now, or the sink has lost something
FASTER = ("cannot rewind forward", "it cannot go back to version", "it has not been changed yet")


class Wrong(AssertionError):
    """A property does not hold."""


class Return(NamedTuple):
    """A slice that leads elsewhere than on: a reset to place 0, a rewind or an undo to its own."""

    number: int
    #: where the stream stood, and where it stands then; an undo may lead ahead
    after: int
    to: int


@dataclass
class World(ABC):
    """One stream, one source log, one store, one sink, up to two processes."""

    folder: str
    rows: Rows = field(default_factory=Rows)
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    processes: list[Process] = field(default_factory=list)
    stopped: str | None = None
    tampered_store: bool = False
    tampered_sink: bool = False
    starts: int = 0
    #: rows that someone removed
    deleted: set[tuple[int, int]] = field(default_factory=set)
    #: by process, and all that was reported
    engines: dict[str, Engine] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    mover: ClassVar[Callable[[], Mover]] = LoopMover

    @abstractmethod
    def sink(self, probe: Probe) -> Sink: ...

    def source(self, probe: Probe) -> Source:
        return MemorySource({STREAM: self.rows})

    @property
    def spools(self) -> Spools | None:
        """Where a source gathers and a sink seals; None: neither does."""
        return None

    @abstractmethod
    def returns(self) -> list[Return]:
        """Every slice that leads elsewhere, in order."""

    @abstractmethod
    def delivered(self) -> list[tuple[int, int]]:
        """(generation, place) of every visible row; a slice that leads elsewhere begins a generation."""

    @abstractmethod
    def check_seen(self) -> None:
        """What readers see now, after what they saw before: nothing vanished, nothing doubled."""

    @abstractmethod
    def look_anew(self) -> None:
        """Someone meddled with the sink: what is seen now is what counts."""

    @abstractmethod
    def copy_sink(self) -> object: ...

    @abstractmethod
    def restore_sink(self, copy: object) -> None: ...

    @abstractmethod
    def check_whole(self) -> None:
        """At rest: nothing is visible in part."""

    def excused(self, token: str, reason: str) -> bool:
        """Whether a process may fail so, although nobody has meddled."""
        return reason.startswith(FASTER)

    def start(self, verb: str = "run", to: int = 0) -> Process:
        """A process that takes the lease over, whoever holds it. `to`: the place to rewind to, or the version."""
        self.starts += 1
        token = f"P{self.starts}"

        def heard(message: Message) -> None:
            self.messages.append(message)
            if isinstance(message, StreamStatus) and message.status is Status.ERROR:
                if message.stopped:
                    self.stopped = message.reason
                elif self.excused(token, message.reason or ""):
                    return
                elif not (self.tampered_store or self.tampered_sink):
                    raise Wrong(f"{token} failed: {message.reason}")

        def work(probe: Probe) -> Eof:
            engine = Engine(
                PIPELINE,
                source=self.source(probe),
                sink=self.sink(probe),
                store=self.store,
                mover=type(self).mover,
                clock=self.clock,
                probe=probe,
                owner=Owner(token, "here", self.starts),
                gone=lambda _: True,
                emit=heard,
                settings=Settings(heartbeat=False),
                spools=self.spools,
            )
            self.engines[token] = engine
            if verb == "recover, drop sealed":
                return engine.recover([STREAM], drop_sealed=True)
            if verb == "reset":
                return engine.reset([STREAM])
            if verb == "rewind":
                return engine.rewind([STREAM], str(to))
            if verb == "undo":
                return engine.undo([STREAM], to)
            return engine.recover([STREAM]) if verb == "recover" else engine.run()

        process = Process(token, work)
        if not process.ended:
            self.processes.append(process)
        return process

    def step(self, process: Process, times: int = 1) -> None:
        for _ in range(times):
            if not process.ended:
                process.step()
                self.check()
        self.processes = [p for p in self.processes if not p.ended]

    def crash(self, process: Process) -> None:
        process.crash()
        self.processes.remove(process)

    def recover(self) -> None:
        """The operator's recover, undisturbed; other processes are frozen meanwhile."""
        self.stopped = None
        process = self.start("recover")
        process.run()
        if process in self.processes:
            self.processes.remove(process)
        if self.stopped:
            raise Wrong(f"no way out: recover itself stopped: {self.stopped}")
        self.look_anew()

    # ------------------------------------------------------------ what readers see

    def covered(self, seen: Collection[tuple[int, int]], place: int, returns: Sequence[Return]) -> bool:
        """Whether a place was delivered after the last slice that led back before it.

        One that led past it, an undo, leaves it to those before: it was delivered then.
        """
        wanted = [0]
        for generation, (_, after, to) in enumerate(returns, 1):
            if after < place <= to:
                wanted = list(range(generation))
            elif place > to:
                wanted = [generation]
        return any((generation, place) in seen for generation in wanted)

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        """At every moment."""
        self.check_seen()
        if not self.tampered_sink:
            missing = self._missing_below_mark()
            if missing:
                raise Wrong(f"ahead: the mark is past {missing}, which nobody sees")
        if self.stopped and not (self.tampered_store or self.tampered_sink):
            raise Wrong(f"false stop: {self.stopped}")

    def check_generations(self, rows: Sequence[tuple[int, int]]) -> None:
        """No row twice in a generation, and none that comes before the place that was gone back to."""
        if len(rows) != len(set(rows)):
            raise Wrong(f"doubled: {sorted(r for r in set(rows) if rows.count(r) > 1)}")
        begins = [0, *(each.to for each in self.returns())]
        early = [(generation, place) for generation, place in rows if place <= begins[generation]]
        if early:
            raise Wrong(f"doubled: {early} were delivered again, and come before the place that was gone back to")

    def _missing_below_mark(self) -> list[int]:
        last = self.store.state(PIPELINE, STREAM).last
        if last is None or last.mark is None:
            return []
        returns = [each for each in self.returns() if each.number <= last.number]
        seen = set(self.delivered())
        wanted = [place for place in range(1, last.mark.document["place"] + 1) if place in self.rows.places]
        return [place for place in wanted if not self.covered(seen, place, returns)]

    def finish_without_faults(self, process: Process | None) -> None:
        """No further faults: one process, or none, finishes alone; then one whole run. Then all must be there."""
        for other in [p for p in self.processes if p is not process]:
            self.crash(other)
        if process is not None:
            process.run()
            self.processes = []
            self.check()
        if self.stopped:
            return
        last = self.start()
        last.run()
        self.processes = []
        self.check()
        if self.store.state(PIPELINE, STREAM).stopped:
            return
        state = self.store.state(PIPELINE, STREAM)
        seen, returns = set(self.delivered()) | self.deleted, self.returns()
        lost = [place for place in self.rows.places if not self.covered(seen, place, returns)]
        place = state.last.mark.document["place"] if state.last and state.last.mark else 0
        if lost or place != self.rows.arrived or state.intent:
            raise Wrong(f"lost: places {lost} are not visible, the mark is {place} of {self.rows.arrived}")
        self.check_whole()

    def end(self) -> None:
        for process in self.processes:
            process.crash()

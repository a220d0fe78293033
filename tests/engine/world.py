"""The world of the gate model with the real engine and the real files sink in it, and what must hold there.

Names follow `gate_model.py`: doubled, ahead, vanished, false stop, lost, partial, livelock, no way out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.core.messages import Eof, Message, Status, StreamStatus
from penstock.engine import Engine, Settings
from penstock.ports import Context, Owner, Probe
from penstock.sinks.files import FilesSink, Options, build
from penstock.testing.doubles import Clock, LoopMover, MemorySource, Rows
from penstock.testing.memory_store import MemoryStore
from penstock.testing.processes import Process

PIPELINE, STREAM = "p", "s"
_NUMBER = re.compile(r"^(\d{8})-")


class Wrong(AssertionError):
    """A property does not hold."""


@dataclass
class World:
    """One stream, one source log, one store, one folder, up to two processes."""

    folder: str
    rows: Rows = field(default_factory=Rows)
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    processes: list[Process] = field(default_factory=list)
    stopped: str | None = None
    tampered_store: bool = False
    tampered_sink: bool = False
    starts: int = 0
    seen: frozenset[str] = frozenset()
    copies: int = 0
    #: rows in files that someone removed
    deleted: set[tuple[int, int]] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)

    @property
    def out(self) -> str:
        return os.path.join(self.folder, "out")

    def sink(self, probe: Probe) -> FilesSink:
        return build(Options(directory=self.out, format="ndjson"), {}, Context(PIPELINE, self.folder, probe))

    def start(self, verb: str = "run", to: int = 0) -> Process:
        """A process that takes the lease over, whoever holds it. `to`: where to rewind."""
        self.starts += 1
        token = f"P{self.starts}"

        def heard(message: Message) -> None:
            if isinstance(message, StreamStatus) and message.status is Status.ERROR:
                if message.stopped:
                    self.stopped = message.reason
                elif (message.reason or "").startswith("cannot rewind forward"):
                    return  # another process was faster, and the stream stands before that place now
                elif not (self.tampered_store or self.tampered_sink):
                    raise Wrong(f"{token} failed: {message.reason}")

        def work(probe: Probe) -> Eof:
            engine = Engine(
                PIPELINE,
                source=MemorySource({STREAM: self.rows}),
                sink=self.sink(probe),
                store=self.store,
                mover=LoopMover,
                clock=self.clock,
                probe=probe,
                owner=Owner(token, "here", self.starts),
                gone=lambda _: True,
                emit=heard,
                settings=Settings(heartbeat=False),
            )
            if verb == "reset":
                return engine.reset([STREAM])
            if verb == "rewind":
                return engine.rewind([STREAM], str(to))
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

    def copy_sink(self) -> str:
        self.copies += 1
        copy = os.path.join(self.folder, f"copy{self.copies}")
        if os.path.isdir(self.out):
            shutil.copytree(self.out, copy, symlinks=True)
        return copy

    def restore_sink(self, copy: str) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        if os.path.isdir(copy):
            shutil.copytree(copy, self.out, symlinks=True)
        self.tampered_sink = True
        self.seen = self.visible_files()

    def delete(self, name: str) -> None:
        """Someone removes a file. An old one is theirs to remove; one of the last two slices stops the stream."""
        before = self.delivered()
        os.unlink(os.path.join(self.out, STREAM, name))
        self.tampered_sink = True
        self.seen = self.visible_files()
        self.deleted |= set(before) - set(self.delivered())
        self.removed.add(name)

    def recover(self) -> None:
        """The operator's recover, undisturbed; other processes are frozen meanwhile."""
        self.stopped = None
        process = self.start("recover")
        process.run()
        if process in self.processes:
            self.processes.remove(process)
        if self.stopped:
            raise Wrong(f"no way out: recover itself stopped: {self.stopped}")
        self.seen = self.visible_files()

    # ------------------------------------------------------------ what readers see

    def visible_files(self) -> frozenset[str]:
        data = os.path.join(self.out, STREAM)
        return frozenset(os.listdir(data)) if os.path.isdir(data) else frozenset()

    def manifests(self) -> dict[int, dict[str, object]]:
        folder = os.path.join(self.out, "_penstock", PIPELINE, STREAM, "manifests")
        found = {}
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if not name.startswith("."):
                with open(os.path.join(folder, name)) as file:
                    document = json.load(file)
                found[document["number"]] = document
        return found

    def returns(self) -> list[tuple[int, int]]:
        """(number, place) of every slice that leads back, in order: a reset to place 0, a rewind to its own."""
        found: list[tuple[int, int]] = []
        for number, manifest in sorted(self.manifests().items()):
            if manifest["kind"] in ("reset", "rewind"):
                upto: Any = manifest["upto"]
                found.append((number, upto["place"] if upto else 0))
        return found

    def covered(self, seen: Collection[tuple[int, int]], place: int, returns: Sequence[tuple[int, int]]) -> bool:
        """Whether a place was delivered after the last slice that led back before it."""
        generation = max((index for index, (_, to) in enumerate(returns, 1) if to < place), default=0)
        return (generation, place) in seen

    def delivered(self) -> list[tuple[int, int]]:
        """(generation, place) of every visible row; a reset or a rewind begins a generation."""
        returns = self.returns()
        rows = []
        for name in self.visible_files():
            match = _NUMBER.match(name)
            assert match, name
            generation = sum(number < int(match.group(1)) for number, _ in returns)
            with open(os.path.join(self.out, STREAM, name)) as file:
                rows += [(generation, json.loads(line)["place"]) for line in file]
        return rows

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        """At every moment."""
        files = self.visible_files()
        if not self.seen <= files:
            raise Wrong(f"vanished: {sorted(self.seen - files)}")
        if files != self.seen or self.processes == []:
            rows = self.delivered()
            if len(rows) != len(set(rows)):
                raise Wrong(f"doubled: {sorted(r for r in set(rows) if rows.count(r) > 1)}")
            begins = [0, *(to for _, to in self.returns())]
            early = [(generation, place) for generation, place in rows if place <= begins[generation]]
            if early:
                raise Wrong(f"doubled: {early} were delivered again, and come before the place that was gone back to")
        self.seen = files
        if not self.tampered_sink:
            missing = self._missing_below_mark()
            if missing:
                raise Wrong(f"ahead: the mark is past {missing}, which nobody sees")
        if self.stopped and not (self.tampered_store or self.tampered_sink):
            raise Wrong(f"false stop: {self.stopped}")

    def _missing_below_mark(self) -> list[int]:
        last = self.store.state(PIPELINE, STREAM).last
        if last is None or last.mark is None:
            return []
        returns = [(number, to) for number, to in self.returns() if number <= last.number]
        seen = set(self.delivered())
        wanted = [place for place in range(1, last.mark.document["place"] + 1) if place in self.rows.places]
        return [place for place in wanted if not self.covered(seen, place, returns)]

    def settle(self, process: Process | None) -> None:
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
        self._check_whole()

    def _check_whole(self) -> None:
        named = {os.path.basename(f["name"]) for m in self.manifests().values() for f in m["files"]}  # type: ignore[attr-defined]
        differ = (named ^ self.visible_files()) - self.removed
        if differ:
            raise Wrong(f"partial: named and visible files differ: {sorted(differ)}")

    def end(self) -> None:
        for process in self.processes:
            process.crash()

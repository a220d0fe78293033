"""A pipeline in a box: a source in memory, a real folder, a store in memory, and an engine for each run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.limits import Limits
from penstock.core.marks import Mark, Position
from penstock.core.messages import Eof, Log, Message, StateChanged, StreamStatus
from penstock.core.slices import Slice
from penstock.engine import Engine, Settings
from penstock.errors import StreamFailed
from penstock.ports import Budget, Context, Mover, NoProbe, Owner, Planned, Probe, Sink, Store, StreamState
from penstock.sinks.files import FilesSink, Options, build
from tests.harness.doubles import Clock, LoopMover, MemorySource, Rows
from tests.store.memory_store import Contents, MemoryStore

PIPELINE = "shop"
M = TypeVar("M", bound=Message)


class At:
    """A probe that does something when a point is reached for the n-th time."""

    def __init__(self, point: str, action: Callable[[], Any], time: int = 1) -> None:
        self.point, self.action, self.time, self.reached = point, action, time, 0

    def at(self, point: str, **about: Any) -> None:
        if point == self.point:
            self.reached += 1
            if self.reached == self.time:
                self.action()


@dataclass
class Pipeline:
    """What stays between runs."""

    folder: str
    rows: dict[str, Rows]
    source: MemorySource = field(init=False)
    store: MemoryStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    said: list[Message] = field(default_factory=list)
    owners: int = 0
    #: whether the processes of other owners are gone
    gone: bool = True
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.source = MemorySource(self.rows)

    @property
    def out(self) -> str:
        return os.path.join(self.folder, "out")

    def sink(self, probe: Probe | None = None) -> FilesSink:
        return build(Options(directory="out", format="ndjson"), {}, Context(PIPELINE, self.folder, probe or NoProbe()))

    def open(
        self,
        probe: Probe | None = None,
        *,
        sink: Sink | None = None,
        store: Store | None = None,
        mover: Callable[[], Mover] = LoopMover,
        heartbeat: bool = False,
    ) -> Engine:
        self.owners += 1
        self.said = []
        self.engine = Engine(
            PIPELINE,
            source=self.source,
            sink=sink or self.sink(probe),
            store=store or self.store,
            mover=mover,
            clock=self.clock,
            probe=probe or NoProbe(),
            owner=Owner(f"owner {self.owners}", "here", self.owners),
            gone=lambda _: self.gone,
            emit=self.said.append,
            settings=Settings(heartbeat=heartbeat),
        )
        return self.engine

    def run(self, probe: Probe | None = None, *, only: Sequence[str] | None = None, **limits: Any) -> Eof:
        return self.open(probe).run(Limits(**limits), only)

    # ------------------------------------------------------------ what there is

    def state(self, stream: str = "a") -> StreamState:
        return self.store.state(PIPELINE, stream)

    def kept(self) -> Contents:
        """All that the store holds, apart from the reports of runs."""
        return replace(self.store.copy(), failures={}, looks={}, days={})

    def delivered(self, stream: str = "a") -> list[int]:
        """The places that readers see."""
        found: list[int] = []
        data = os.path.join(self.out, stream)
        for name in os.listdir(data) if os.path.isdir(data) else ():
            with open(os.path.join(data, name)) as file:
                found += [json.loads(line)["place"] for line in file]
        return sorted(found)

    def disk(self) -> dict[str, tuple[bytes | None, int]]:
        """Every file with its bytes, every folder, and when it was changed."""
        found: dict[str, tuple[bytes | None, int]] = {}
        for folder, _, names in os.walk(self.folder):
            found[folder] = None, os.stat(folder).st_mtime_ns
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[path] = file.read(), os.stat(path).st_mtime_ns
        return found

    def heard(self, kind: type[M], stream: str | None = None) -> list[M]:
        messages = [message for message in self.said if isinstance(message, kind)]
        return [m for m in messages if stream is None or getattr(m, "stream", None) == stream]

    def statuses(self, stream: str) -> list[str]:
        return [message.status.value for message in self.heard(StreamStatus, stream)]

    def error(self, stream: str) -> StreamStatus:
        (found,) = [message for message in self.heard(StreamStatus, stream) if message.reason]
        return found

    def moved(self) -> list[str]:
        """The streams in the order in which their slices went through."""
        return [message.stream for message in self.heard(StateChanged)]

    def logs(self) -> list[str]:
        return [message.text for message in self.heard(Log)]


def rows(count: int) -> Rows:
    made = Rows()
    for key in range(count):
        made.arrive(key)
    return made


class Breaking(MemorySource):
    """A source whose stream `b` breaks at one of the engine's questions."""

    def __init__(self, streams: Any, at: str, error: Exception) -> None:
        super().__init__(streams)
        self.breaks_at, self.error = at, error

    def _break(self, at: str, stream: str) -> None:
        if (at, stream) == (self.breaks_at, "b"):
            raise self.error

    def content(self, stream: str) -> Content:
        self._break("content", stream)
        return super().content(stream)

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        self._break("prepare", stream)
        return super().prepare(stream, content, last)

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        self._break("plan", stream)
        return super().plan(stream, content, after, ceiling, budget)

    def reading(self, slice_: Slice) -> Any:
        self._break("reading", slice_.stream)
        return super().reading(slice_)


def broken_off(pipeline: Pipeline) -> None:
    """A run that leaves its slice open."""

    class Failing(LoopMover):
        def move(self, reader: Any, writer: Any, parts: Any) -> Any:
            raise StreamFailed("the worker died", next_step="run again")

    assert pipeline.open(mover=Failing).run().exit_code == 1

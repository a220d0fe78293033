"""Whole runs of the engine, moved by a loop, and what was said of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from tests.harness.doubles import Clock, LoopMover
from tests.store.memory_store import MemoryStore

from penstock.core.messages import Eof, Message, StepDone, StreamStatus
from penstock.engine import Engine, Settings
from penstock.ports import Context, Mover, NoProbe, Owner, Probe, Sink, Source
from penstock.shaping.source import ShapedSource
from penstock.sinks import postgres as postgres_sink
from penstock.sources import postgres as postgres_source

_numbers = itertools.count(1)


@dataclass
class PipelineRuns:
    """Pipelines with one store."""

    store: MemoryStore = field(default_factory=MemoryStore)
    said: list[Message] = field(default_factory=list)
    #: how the last run ended
    eof: Eof | None = None

    @property
    def outcomes(self) -> list[dict[str, int] | None]:
        """What became of the rows of each slice."""
        return [m.outcome for m in self.said if isinstance(m, StepDone) and m.step == "commit"]

    def run(
        self,
        pipeline: str,
        source: Source,
        sink: Sink,
        *,
        dropped: Sequence[str] = (),
        mover: Callable[[], Mover] = LoopMover,
        probe: Probe = NoProbe(),  # noqa: B008 (it holds nothing)
        slice_bytes: int = 256 << 20,
    ) -> list[str]:
        """One run; what went wrong in it, in words."""
        before = len(self.said)
        with closing(source), closing(sink):
            self.eof = Engine(
                pipeline,
                source=ShapedSource(source),
                sink=sink,
                store=self.store,
                mover=mover,
                clock=Clock(),
                probe=probe,
                owner=Owner(f"owner{next(_numbers)}", "here", 1),
                gone=lambda _: True,
                emit=self.said.append,
                settings=Settings(
                    heartbeat=False, slice_bytes=slice_bytes, dropped_columns={"t": dropped, "orders": dropped}
                ),
            ).run()
        bad = [m for m in self.said[before:] if isinstance(m, StreamStatus) and m.status in ("error", "skip")]
        return [f"{message.reason}; {message.next_step}" for message in bad]


def context(pipeline: str, folder: str = ".") -> Context:
    return Context(pipeline=pipeline, folder=folder, probe=NoProbe(), mover=LoopMover)


def open_source(url: str, pipeline: str = "copy", stream: str = "t", **options: Any) -> Source:
    said = {stream: postgres_source.StreamOptions.model_validate(options)}
    return postgres_source.build(postgres_source.Options.model_validate({"url": url}), said, context(pipeline))


def open_sink(url: str, pipeline: str = "copy", stream: str = "t", **options: Any) -> Sink:
    said = {stream: postgres_sink.StreamOptions.model_validate(options)}
    return postgres_sink.build(postgres_sink.Options.model_validate({"url": url}), said, context(pipeline))

"""Whole runs of the engine into and out of lakes, rows in memory, moved by a loop unless Spark is meant."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.harness.doubles import Clock, LoopMover, MemorySource, Rows
from tests.store.memory_store import MemoryStore

from penstock.core.messages import Log, Message, StreamStatus
from penstock.engine import Engine, Settings
from penstock.lake.lake import Lake
from penstock.lake.options import LakeOptions
from penstock.ports import Context, Mover, NoProbe, NoSpark, Owner, Sink, Source, Spark
from penstock.sinks import files
from penstock.sinks import lake as lake_sink
from penstock.sources import lake as lake_source

_numbers = itertools.count(1)


@dataclass
class World:
    """A folder, a store and a lake; what was said in its runs."""

    folder: Path
    options: Mapping[str, Any]
    spark: Spark = field(default_factory=NoSpark)
    mover: Callable[[], Mover] = LoopMover
    store: MemoryStore = field(default_factory=MemoryStore)
    said: list[Message] = field(default_factory=list)
    #: the one that lands
    pipeline: str = "in"

    @property
    def lake(self) -> Lake:
        return Lake.from_options(
            LakeOptions.model_validate(self.options), folder=str(self.folder), pipeline=self.pipeline
        )

    def context(self, pipeline: str) -> Context:
        return Context(pipeline, str(self.folder), NoProbe(), spark=self.spark, mover=self.mover)

    def sink(self, **stream: Any) -> lake_sink.LakeSink:
        """The sink of the pipeline that lands; options are those of its stream `s`."""
        streams = {"s": lake_sink.StreamOptions.model_validate(stream)}
        return lake_sink.build(lake_sink.Options.model_validate(self.options), streams, self.context(self.pipeline))

    def source(self) -> lake_source.LakeSource:
        return lake_source.build(
            lake_source.Options.model_validate({**self.options, "namespace": self.lake.namespace}),
            {},
            self.context("out"),
        )

    def land(self, rows: Rows, **stream: Any) -> None:
        """Everything that is new in memory into the table `s`."""
        self._run(self.pipeline, MemorySource({"s": rows}, most=10), self.sink(**stream))

    def export(self) -> list[dict[str, Any]]:
        """Everything that is new in the lake into files; all rows there so far, in their order."""
        sink = files.build(files.Options(directory="out", format="parquet"), {}, self.context("out"))
        self._run("out", self.source(), sink)
        made = sorted((self.folder / "out" / "s").rglob("*.parquet"))
        return [row for file in made for row in pa.parquet.read_table(file).to_pylist()]

    def _run(self, pipeline: str, source: Source, sink: Sink) -> None:
        before = len(self.said)
        Engine(
            pipeline,
            source=source,
            sink=sink,
            store=self.store,
            mover=self.mover,
            clock=Clock(),
            probe=NoProbe(),
            owner=Owner(f"owner{next(_numbers)}", "here", 1),
            gone=lambda _: True,
            emit=self.said.append,
            settings=Settings(heartbeat=False),
        ).run()
        bad = [m for m in self.said[before:] if isinstance(m, StreamStatus) and m.status in ("error", "skip")]
        assert bad == [], [m for m in self.said[before:] if isinstance(m, Log)] + bad


def rows(*keys: int) -> Rows:
    made = Rows()
    for key in keys:
        made.arrive(key)
    return made

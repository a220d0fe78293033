"""Tables made through the lake sink, for the tests of their upkeep: a source in memory, a lake in one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from tests.harness.doubles import Clock, LoopMover, MemorySource, Rows
from tests.store.memory_store import MemoryStore

from penstock.core.content import Content
from penstock.core.documents import canonical, parse
from penstock.core.messages import Eof, Message
from penstock.core.slices import Part, Slice
from penstock.engine import Engine, Settings
from penstock.lake import names, tables
from penstock.lake.lake import Lake
from penstock.lake.metadata import read_state
from penstock.lake.options import LakeOptions
from penstock.lake.table_state import TableState
from penstock.lake.upkeep.job import UpkeepJob
from penstock.lake.upkeep.options import UpkeepOptions
from penstock.links.spark import SparkSessionProvider
from penstock.ports import Context, NoProbe, NoSpark, Owner, Probe, Reading, Sink, Source, Spark
from penstock.sinks import files as files_sink
from penstock.sinks import lake as lake_sink
from penstock.sources import lake as lake_source

#: a version that says that a key is gone
GONE = -1


@dataclass(frozen=True)
class _Reader:
    """Rows of one part, with their change."""

    rows: Rows

    def open(self, part: Part) -> pa.RecordBatchReader:
        terms = parse(part.terms)
        found = self.rows.between(terms["after"], terms["upto"])
        columns: list[Sequence[Any]] = [[row[i] for row in found] for i in range(3)]
        changes = ["delete" if row[2] == GONE else "upsert" for row in found]
        batch = pa.record_batch(
            [*(pa.array(column, pa.int64()) for column in columns), pa.array(changes, pa.string())],
            names=["place", "key", "version", "_change"],
        )
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])


class Changes(MemorySource):
    """The source in memory, with columns that a table can be made from, and deletes."""

    def __init__(self, rows: Rows, most: int) -> None:
        super().__init__({"s": rows}, most=most)

    def content(self, stream: str) -> Content:
        return replace(super().content(stream), changes=True)

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        with super().reading(slice_) as reading:
            parts = reading.parts
            if len(parts) > 20:
                ends = {"after": parse(parts[0].terms)["after"], "upto": parse(parts[-1].terms)["upto"]}
                parts = [Part(0, canonical(ends))]
            yield Reading(_Reader(self.streams["s"]), parts)


@dataclass
class UpkeepTable:
    """One pipeline into one table `s` of a namespace of its own, and readers of it."""

    folder: Path
    name: str
    spark: Spark = field(default_factory=NoSpark)
    stream: lake_sink.StreamOptions = field(default_factory=lake_sink.StreamOptions)
    rows: Rows = field(default_factory=Rows)
    store: MemoryStore = field(default_factory=MemoryStore)
    runs: int = 0
    #: of the last pipeline
    said: list[Message] = field(default_factory=list)
    #: what the sink is told of earlier states
    states: dict[str, Any] = field(default_factory=dict)

    @property
    def lake(self) -> Lake:
        return Lake.from_options(LakeOptions(), folder=str(self.folder), pipeline=self.name)

    def context(self, pipeline: str, probe: Probe | None = None) -> Context:
        return Context(pipeline, str(self.folder), probe or NoProbe(), spark=self.spark, mover=LoopMover)

    def sink(self, probe: Probe | None = None) -> Sink:
        options = lake_sink.Options.model_validate({"upkeep": {"snapshots": self.states}})
        return lake_sink.build(options, {"s": self.stream}, self.context(self.name, probe))

    def land(self, *keys: int, version: int = 0, most: int = 2, probe: Probe | None = None) -> Eof:
        """Rows for these keys arrive and are landed, `most` of them a slice, each in a file of its own."""
        for key in keys:
            self.rows.arrive(key, version)
        return self.run(self.name, Changes(self.rows, most), self.sink(probe), probe)

    def read(self, reader: str, most: int | None = None, **options: Any) -> Eof:
        """A pipeline from the table into files; `most` rows at a time."""
        from penstock.core.limits import Limits

        return self.lead(reader, lambda engine: engine.run(Limits(most, None)), **options)

    def lead(self, reader: str, act: Callable[[Engine], Eof], **options: Any) -> Eof:
        """Something else with that pipeline; options are those of its stream."""
        place = lake_source.Options(namespace=self.name)
        streams = {"s": lake_source.StreamOptions.model_validate(options)}
        source = lake_source.build(place, streams, self.context(reader))
        out = files_sink.Options(directory=f"{self.name}-{reader}", format="ndjson")
        sink = files_sink.build(out, {"s": files_sink.StreamOptions()}, self.context(reader))
        return act(self.engine(reader, source, sink))

    def run(self, name: str, source: Source, sink: Sink, probe: Probe | None = None) -> Eof:
        return self.engine(name, source, sink, probe).run()

    def engine(self, name: str, source: Source, sink: Sink, probe: Probe | None = None) -> Engine:
        self.runs += 1
        said: list[Message] = []
        self.said = said
        return Engine(
            name,
            source=source,
            sink=sink,
            store=self.store,
            mover=LoopMover,
            clock=Clock(),
            probe=probe or NoProbe(),
            owner=Owner(f"{name}-{self.runs}", "here", 1),
            gone=lambda _: True,
            emit=said.append,
            settings=Settings(heartbeat=False),
        )

    def seen(self, reader: str) -> list[dict[str, Any]]:
        """Every row that a reader has written, in the order in which it did."""
        import json

        found = []
        for path in sorted((self.folder / f"{self.name}-{reader}" / "s").rglob("*.ndjson")):
            found += [json.loads(line) for line in path.read_text().splitlines()]
        return found

    # ------------------------------------------------------------ the table

    @property
    def state(self) -> TableState:
        found = read_state(self.lake, "s")
        assert found is not None
        return found

    @property
    def table(self) -> Table:
        found = tables.load_table(self.lake, "s")
        assert found is not None
        return found

    def rows_in(self) -> list[tuple[Any, ...]]:
        """Every row with its number, in order."""
        found = self.table.scan().to_arrow().sort_by(names.SEQ)
        columns = [found.column(name).to_pylist() for name in ("place", "key", "version", names.SEQ)]
        return list(zip(*columns, strict=True))

    def work(self, *, now: datetime | None = None, spark: Spark | None = None, **options: Any) -> UpkeepJob:
        chosen = {key: options.pop(key) for key in ("force", "dry_run", "probe") if key in options}
        return UpkeepJob(
            lake=self.lake,
            table="s",
            options=UpkeepOptions(**options),
            spark=spark or self.spark,
            mover=LoopMover,
            probe=chosen.pop("probe", NoProbe()),
            now=now or datetime.now(UTC),
            **chosen,
        )

    def paths(self) -> list[Path]:
        """Every file in the table's folder."""
        folder = Path(self.state.location.removeprefix("file://"))
        return sorted(path for path in folder.rglob("*") if path.is_file())


def provider_for(folder: Path, spark_provider: SparkSessionProvider | None = None) -> SparkSessionProvider:
    """Spark for every namespace of the lake in a folder: this one, or one of its own."""
    spark_provider = spark_provider or SparkSessionProvider()
    place = Lake.from_options(LakeOptions(), folder=str(folder), pipeline="any")
    spark_provider.require(place.spark_settings(), place.spark_packages())
    return spark_provider

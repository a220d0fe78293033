"""A state table in a real lake, filled by the sink, beside the reference fold of the same documents."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.harness.doubles import LoopMover
from tests.lake.folds import LAYOUT, reference_state

from penstock.core.content import Content
from penstock.core.marks import Mark, Position
from penstock.core.ops import FEED_COLUMNS, Layout, Row, State, fold
from penstock.core.outcome import Outcome
from penstock.core.slices import Part, Slice, following
from penstock.lake.folding.side_data import list_files, read_files
from penstock.lake.lake import Lake
from penstock.lake.metadata import read_state
from penstock.lake.options import LakeOptions
from penstock.lake.table_state import TableState
from penstock.lake.tables import load_table
from penstock.ports import Context, NoProbe, Probe, Spark
from penstock.sinks import lake as lake_sink

STREAM = "images"
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("document", pa.string())])


@dataclass
class StateWorld:
    """One lake in a folder, and a sink whose stream has a state table."""

    folder: Path
    namespace: str
    spark: Spark
    layout: Layout = LAYOUT
    pipeline: str = "in"
    last: Position | None = None
    expected: State = field(default_factory=State)
    said: list[str] = field(default_factory=list)
    attempts: int = 0
    documents: int = 0

    @property
    def lake(self) -> Lake:
        return Lake.from_options(LakeOptions(namespace=self.namespace), folder=str(self.folder), pipeline="in")

    def content(self) -> Content:
        return Content(FEED_COLUMNS, key=("id",), entities=self.layout.document())

    def sink(self, probe: Probe | None = None, **options: Any) -> lake_sink.LakeSink:
        def say(stream: str, text: str) -> None:
            self.said.append(text)

        context = Context(
            self.pipeline, str(self.folder), probe or NoProbe(), spark=self.spark, mover=LoopMover, say=say
        )
        streams = {STREAM: lake_sink.StreamOptions.model_validate({"mode": "state", **options})}
        return lake_sink.build(lake_sink.Options(namespace=self.namespace), streams, context)

    def next_slice(self) -> Slice:
        number = self.last.number + 1 if self.last else 1
        return following(
            self.last, pipeline=self.pipeline, stream=STREAM, upto=Mark.of({"n": number}), content=self.content()
        )

    def rows(self, documents: Sequence[Any]) -> list[Row]:
        """With ids and times that go on from slice to slice."""
        found = [Row(self.documents + i, each, 10 * (self.documents + i)) for i, each in enumerate(documents, 1)]
        self.documents += len(documents)
        return found

    def try_slice(
        self, rows: Sequence[Row], *, parts: int = 2, probe: Probe | None = None, **options: Any
    ) -> Outcome | None:
        """One attempt at the next slice."""
        sink, slice_ = self.sink(probe, **options), self.next_slice()
        self.attempts += 1
        attempt = f"a{self.attempts}"
        writer: Any = sink.writer(slice_, attempt)
        # What a probe does in workers is tested with every writer.
        writer = pickle.loads(pickle.dumps(replace(writer, probe=NoProbe())))
        step = max(1, -(-len(rows) // parts))
        receipts = [
            writer.write(_table(rows[begin : begin + step]).to_reader(), Part(index, "{}"))
            for index, begin in enumerate(range(0, len(rows), step))
        ]
        outcome = sink.commit(slice_, attempt, receipts)
        held = sink.held(STREAM)
        assert held is not None
        sink.sweep(STREAM, held.position)
        return outcome

    def land(self, *documents: Any, **options: Any) -> Outcome | None:
        rows = self.rows(documents)
        slice_ = self.next_slice()
        outcome = self.try_slice(rows, **options)
        self.expect(rows, slice_)
        return outcome

    def expect(self, rows: Sequence[Row], slice_: Slice) -> None:
        self.last = slice_.position
        self.expected = fold(self.expected, self.layout.shape, rows).state

    # ------------------------------------------------------------ what is there

    def state(self) -> TableState:
        found = read_state(self.lake, STREAM)
        assert found is not None
        return found

    def current(self) -> dict[str, Any]:
        """The table and what is beside it, in the reference's form."""
        table = load_table(self.lake, STREAM)
        assert table is not None
        entities: dict[str, Any] = {}
        for row in table.scan().to_arrow().to_pylist():
            if row["_tombstone"]:
                continue
            parts = [str(row[column.name]) for column in self.layout.key]
            key = parts[0] if len(parts) == 1 else json.dumps(parts, separators=(",", ":"))
            assert key not in entities, "one row for each entity"
            scalars = {c.name: row[c.name] for c in self.layout.scalars if row[c.name] is not None}
            multi = {c.name: sorted(map(str, row[c.name])) for c in self.layout.multi if row[c.name]}
            entities[key] = (scalars, multi)
        early, fan_outs = {}, {}
        for row in self.side():
            if row["kind"] == "early":
                kept = json.loads(row["v"])
                early[row["b"]] = (kept["s"], {name: sorted(values) for name, values in kept["m"].items()})
            elif row["kind"] == "fan":
                fan_outs[row["a"], row["b"], row["c"]] = row["v"]
        return {"entities": entities, "early": early, "fan_outs": fan_outs}

    def side(self) -> list[dict[str, Any]]:
        """Rows of the side data that hold, and those in quarantine."""
        table, named = load_table(self.lake, STREAM), self.state().properties.get("penstock.side")
        assert table is not None
        paths = [file.file_path for file in list_files(table, int(named) if named else None)]
        rows = [row for batch in read_files(table.io, paths) for row in batch.to_pylist()]
        last: dict[Any, dict[str, Any]] = {}
        for row in sorted(rows, key=lambda each: each["number"]):
            if row["kind"] != "bad":
                last[row["kind"], row["a"], row["b"], row["c"]] = row
        return [row for row in last.values() if not row["gone"]] + [row for row in rows if row["kind"] == "bad"]

    def check(self) -> None:
        assert self.current() == reference_state(self.expected, self.layout)


def _table(rows: Sequence[Row]) -> pa.Table:
    texts = [row.document if isinstance(row.document, str) else json.dumps(row.document) for row in rows]
    return pa.table(
        [[row.id for row in rows], pa.array([row.at for row in rows], pa.int64()).cast(SCHEMA.field(1).type), texts],
        schema=SCHEMA,
    )

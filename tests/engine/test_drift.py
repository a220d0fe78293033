"""Columns that change between two slices, while one is open, and across a rewind: what the gate says and delivers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.content import Column, Content
from penstock.core.marks import Position
from penstock.core.messages import Eof, Log
from penstock.core.slices import Part, Slice
from penstock.core.types import parse_type
from penstock.engine import Engine, Settings
from penstock.ports import Reading
from penstock.shaping.source import ShapedSource
from tests.engine.pipeline import At, Pipeline, broken_off, rows
from tests.harness.doubles import MemorySource, Rows

INT = {"place": "int64", "key": "int64", "version": "int64"}


@dataclass(frozen=True)
class Wider:
    """Rows with columns beside their own: in each the place, in the column's type."""

    reader: Any
    columns: tuple[tuple[str, str], ...]

    def open(self, part: Part) -> pa.RecordBatchReader:
        batch = self.reader.open(part).read_all().combine_chunks().to_batches()
        place = batch[0].column("place") if batch else pa.array([], pa.int64())
        types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
        arrays = [(name, place.cast(types[type_])) for name, type_ in self.columns]
        made = pa.RecordBatch.from_arrays([each for _, each in arrays], names=[name for name, _ in arrays])
        return pa.RecordBatchReader.from_batches(made.schema, [made])


class Shifting(MemorySource):
    """A source whose columns can be changed, and that sees only its own contents."""

    def __init__(self, streams: dict[str, Rows]) -> None:
        super().__init__(streams)
        self.columns: dict[str, str] = dict(INT)
        #: what it would say of an open slice
        self.changed: list[str] = []

    def content(self, stream: str) -> Content:
        columns = tuple(Column(name, parse_type(type_)) for name, type_ in self.columns.items())
        return replace(super().content(stream), columns=columns)

    def accept(self, stream: str, last: Position, content: Content) -> None:
        assert Content.parse(last.content).drift is None
        assert content.drift is None
        super().accept(stream, last, content)

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        content = Content.parse(slice_.content)
        assert content.drift is None
        columns = tuple((column.name, str(column.type)) for column in content.columns)
        with super().reading(slice_) as found:
            yield replace(found, reader=Wider(found.reader, columns), changed=self.changed)


class Drift(Pipeline):
    """A pipeline of which the columns can be changed, and the policy."""

    shifting: Shifting
    policy = "evolve"

    def __post_init__(self) -> None:
        self.shifting = Shifting(self.rows)
        self.source = ShapedSource(self.shifting)  # type: ignore[assignment]  # around a MemorySource

    def open(self, *arguments: Any, **more: Any) -> Engine:
        engine = super().open(*arguments, **more)
        engine.settings = Settings(heartbeat=False, drift={"a": self.policy})
        return engine

    def found(self) -> list[dict[str, Any]]:
        """Every row that readers see, in the order of their places."""
        folder = os.path.join(self.out, "a")
        lines = [line for name in os.listdir(folder) for line in Path(folder, name).read_text().splitlines()]
        return sorted(map(json.loads, lines), key=lambda row: row["place"])

    def arrived(self, **columns: str | None) -> Eof:
        """Two more rows after columns have changed (None: dropped), and a run."""
        for name, type_ in columns.items():
            if type_ is None:
                del self.shifting.columns[name]
            else:
                self.shifting.columns[name] = type_
        for _ in range(2):
            self.rows["a"].arrive(1)
        return self.run()

    def spoken(self) -> list[tuple[str, str]]:
        return [(message.level, message.text) for message in self.heard(Log)]


@pytest.fixture
def drift(tmp_path: Path) -> Drift:
    """Two rows that are delivered."""
    pipeline = Drift(str(tmp_path), {"a": rows(2)})
    assert pipeline.run().exit_code == 0
    return pipeline


def test_a_column_that_is_gone_is_null_and_said_once(drift: Drift) -> None:
    assert drift.arrived(version=None).exit_code == 0
    assert drift.spoken() == [
        ("warning", "column version (int64) is gone: it stays in the sink, and rows from now on bring no value for it")
    ]
    assert [row["version"] for row in drift.found()] == [1, 2, None, None]
    drift.arrived()
    assert drift.spoken() == []


def test_nothing_new_says_nothing_and_writes_nothing(drift: Drift) -> None:
    drift.shifting.columns["new"] = "string"
    before = drift.disk()
    assert drift.run().exit_code == 0
    assert drift.spoken() == []
    assert drift.disk() == before


def test_a_frozen_stream_stops_even_without_new_rows(drift: Drift) -> None:
    drift.policy = "freeze"
    drift.shifting.columns["new"] = "string"
    assert drift.run().exit_code == 2
    assert "column new is new (string)" in str(drift.error("a").reason)
    assert drift.state().intent is None
    drift.policy = "evolve"
    assert drift.arrived().exit_code == 0
    drift.policy = "freeze"
    assert drift.arrived().exit_code == 0
    assert [row.get("new") for row in drift.found()] == [None, None, "3", "4", "5", "6"]


def test_a_narrower_column_is_widened_on_the_way(drift: Drift) -> None:
    drift.arrived(version="int32")
    assert [row["version"] for row in drift.found()] == [1, 2, 3, 4]
    drift.arrived(version="string")
    assert "was int32 and is string" not in str(drift.error("a").reason), "what the sink has counts"
    assert "column version was int64 and is string now" in str(drift.error("a").reason)


def test_columns_that_change_within_a_run_are_in_its_next_slice(drift: Drift) -> None:
    def change() -> None:
        drift.shifting.columns["new"] = "string"
        del drift.shifting.columns["version"]

    for _ in range(6):
        drift.rows["a"].arrive(1)
    assert drift.run(At("gate.advanced", change, time=2)).exit_code == 0
    assert [(row["version"], row.get("new")) for row in drift.found()] == [
        *((place, None) for place in range(1, 7)),
        (None, "7"),
        (None, "8"),
    ]
    assert [level for level, _ in drift.spoken()] == ["warning", "info"]
    drift.policy = "freeze"
    for _ in range(4):
        drift.rows["a"].arrive(1)
    drift.run(At("gate.advanced", lambda: drift.shifting.columns.update(more="string")))
    assert "column more is new" in str(drift.error("a").reason)
    assert len(drift.found()) == 10, "the slice before the change is in"


def test_an_open_slice_keeps_its_columns(drift: Drift) -> None:
    drift.rows["a"].arrive(1)
    broken_off(drift)
    drift.shifting.columns["new"] = "string"
    drift.rows["a"].arrive(1)
    assert drift.run().exit_code == 0
    assert [row.get("new") for row in drift.found()] == [None, None, None, "4"]
    assert drift.spoken() == [("info", "column new is new (string): the sink gets it")]


def test_what_an_open_slice_lacks_is_said_or_refused(drift: Drift) -> None:
    drift.rows["a"].arrive(1)
    broken_off(drift)
    drift.shifting.changed = ["column version is gone: it is NULL"]
    drift.policy = "freeze"
    assert drift.run().exit_code == 2
    assert "slice 2 is open: column version is gone" in str(drift.error("a").reason)
    assert drift.state().intent is not None
    drift.policy = "evolve"
    assert drift.run().exit_code == 0
    assert drift.spoken() == [("warning", "slice 2: column version is gone: it is NULL")]
    assert len(drift.found()) == 3


def test_a_rewind_and_a_reset_keep_what_the_sink_has(drift: Drift) -> None:
    drift.arrived(version=None)
    content = Content.parse(drift.state().last.content)  # type: ignore[union-attr]  # there is one
    drift.open().rewind(["a"], "2")
    drift.shifting.columns["version"] = "string"
    assert drift.run().exit_code == 2
    drift.open().reset(["a"])
    assert drift.run().exit_code == 2, "the sink still has the column as it was"
    last = drift.state().last
    assert last is not None
    held = Content.parse(last.content)
    assert (held.columns, held.reads) == (content.columns, content.reads)


def test_values_that_do_not_fit_are_put_aside(drift: Drift) -> None:
    drift.policy = "quarantine"
    assert drift.arrived(version="string", new="int32", key=None).exit_code == 0
    assert drift.spoken() == [
        ("warning", "column key (int64) is gone: it stays in the sink, and rows from now on bring no value for it"),
        (
            "warning",
            "column version was int64 and is string now: the sink's column is NULL from now on, and the values are "
            "stored in _quarantined",
        ),
        ("warning", "column new is new (int32): its values are stored in _quarantined"),
        ("warning", "2 columns do not fit the sink (version, new): values are stored in its column _quarantined"),
    ]
    *_, row, last = drift.found()
    assert row == {"place": 3, "key": None, "version": None, "_quarantined": '{"version":"3","new":"3"}'}
    assert json.loads(last["_quarantined"]) == {"version": "4", "new": "4"}
    drift.arrived()
    assert [text for _, text in drift.spoken()] == [
        "2 columns do not fit the sink (version, new): values are stored in its column _quarantined"
    ]


def test_a_slice_that_puts_aside_does_so_after_the_policy_has_changed(drift: Drift) -> None:
    drift.policy = "quarantine"
    drift.shifting.columns["new"] = "int64"
    drift.rows["a"].arrive(1)
    broken_off(drift)
    drift.policy = "evolve"
    drift.rows["a"].arrive(1)
    assert drift.run().exit_code == 0
    *_, aside, taken = drift.found()
    assert (aside.get("new"), aside["_quarantined"]) == (None, '{"new":"3"}')
    assert (taken["new"], taken["_quarantined"]) == (4, None)


def test_a_source_gets_back_what_it_gave(drift: Drift) -> None:
    drift.arrived(version=None)
    last = drift.state().last
    assert last is not None
    assert Content.parse(last.content).undrifted == drift.shifting.content("a")

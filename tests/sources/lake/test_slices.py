"""Slices of a lake table: their bounds, their order, and what a changing schema does to them."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import StringType
from tests.harness.doubles import Clock, LoopMover
from tests.sources.lake.lakes import LakeWorld, orders
from tests.store.memory_store import MemoryStore

from penstock.core.limits import Limits
from penstock.engine import Engine, Settings
from penstock.errors import StreamRefused
from penstock.lake import planning
from penstock.ports import Budget, NoProbe, Owner
from penstock.sinks import files


@pytest.fixture
def lake(tmp_path: Path) -> LakeWorld:
    made = LakeWorld(tmp_path)
    for first in range(1, 101, 10):
        made.land(orders(first, first + 9))
    return made


# ---------------------------------------------------------------- bounds


def test_rows_of_a_slice_are_counted_exactly(lake: LakeWorld) -> None:
    slices = lake.reader().run(Budget(bytes=1 << 30, rows=7, workers=2))
    assert [len(rows) for rows in slices] == [7] * 14 + [2]
    assert [id_ for rows in slices for id_ in rows.column("id").to_pylist()] == list(range(1, 101))


def test_bytes_of_a_slice_are_kept_between_files(lake: LakeWorld) -> None:
    slices = lake.reader().run(Budget(bytes=25_000, row_bytes=1000.0))
    assert [len(rows) for rows in slices] == [20] * 5


def test_one_large_file_is_cut_inside(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 1000))
    slices = lake.reader().run(Budget(bytes=300_000, row_bytes=1000.0))
    assert [len(rows) for rows in slices] == [300, 300, 300, 100]


def test_a_row_larger_than_the_budget_still_goes_through(lake: LakeWorld) -> None:
    slices = lake.reader(start=95).run(Budget(bytes=10, row_bytes=1000.0))
    assert [len(rows) for rows in slices] == [1] * 5


def test_max_rows_of_a_run_are_kept_exactly(lake: LakeWorld) -> None:
    store = MemoryStore()

    def run(most: int) -> tuple[int, bool]:
        sink = files.build(files.Options(directory="out", format="ndjson"), {}, lake.context("out"))
        engine = Engine(
            "out",
            source=lake.source(),
            sink=sink,
            store=store,
            mover=LoopMover,
            clock=Clock(),
            probe=NoProbe(),
            owner=Owner(os.urandom(8).hex(), "here", 1),
            gone=lambda _: True,
            emit=lambda _: None,
            settings=Settings(heartbeat=False),
        )
        eof = engine.run(Limits(max_rows=most))
        assert eof.exit_code == 0
        return store.state("out", "orders").rows, eof.has_more

    assert [run(33), run(33), run(33), run(33)] == [(33, True), (66, True), (99, True), (100, False)]
    lines = [line for path in (lake.folder / "out/orders").iterdir() for line in path.read_text().splitlines()]
    assert len(set(lines)) == len(lines) == 100


def test_parts_are_ranges_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SMALL_PART_BYTES", 1000)
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 400), orders(401, 700), orders(701, 1000))
    reader = lake.reader()
    slice_ = reader.intend(Budget(bytes=1 << 30, workers=4))
    assert slice_
    with reader.source().reading(slice_) as reading:
        parts = [reading.reader.open(part).read_all().column("id").to_pylist() for part in reading.parts]
    assert len(parts) > 1
    assert [id_ for part in parts for id_ in part] == list(range(1, 1001))


# ---------------------------------------------------------------- changes


def test_deletes_leave_as_deletes(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    rows = orders(1, 3).append_column("_change", pa.array(["upsert", "delete", "upsert"]))
    lake.land(rows, changes=True)
    source = lake.source()
    assert source.content("orders").changes is True
    (read,) = lake.reader().run()
    assert read.schema.names == ["id", "note", "_change"]
    assert read.select(["id", "_change"]).to_pylist() == [
        {"id": 1, "_change": "upsert"},
        {"id": 2, "_change": "delete"},
        {"id": 3, "_change": "upsert"},
    ]


def test_a_filter_holds_back_no_delete(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    rows = orders(1, 3).append_column("_change", pa.array(["upsert", "delete", "upsert"]))
    lake.land(rows, changes=True)
    (read,) = lake.reader(where="id = 3").run()
    assert read.column("id").to_pylist() == [2, 3]


# ---------------------------------------------------------------- a schema that changes


def test_a_new_column_is_in_the_next_slice(lake: LakeWorld) -> None:
    reader = lake.reader()
    before = reader.run()
    assert all(rows.schema.names == ["id", "note"] for rows in before)
    lake.land(orders(101, 103, colour=["red", None, "blue"]))
    (rows,) = reader.run()
    assert rows.schema.names == ["id", "note", "colour"]
    assert rows.column("colour").to_pylist() == ["red", None, "blue"]
    assert reader.slices[0].fingerprint != reader.slices[-1].fingerprint


def test_a_new_column_does_not_enter_a_slice_that_is_open(lake: LakeWorld) -> None:
    reader = lake.reader()
    slice_ = reader.intend(Budget(bytes=1 << 30, rows=5))
    assert slice_
    before = reader.read(slice_)
    lake.land(orders(101, 101, colour=["red"]))
    assert reader.read(slice_).equals(before)
    reader.last = slice_.position
    assert {tuple(rows.schema.names) for rows in reader.run()} == {("id", "note", "colour")}


def test_rows_from_before_a_column_have_none(lake: LakeWorld) -> None:
    lake.land(orders(101, 101, colour=["red"]))
    (rows,) = lake.reader().run()
    assert rows.column("colour").to_pylist() == [None] * 100 + ["red"]


def test_a_dropped_column_is_not_in_the_next_slice(lake: LakeWorld) -> None:
    reader = lake.reader()
    reader.run()
    with lake.table().update_schema() as update:
        update.delete_column("note")
    lake.land(pa.table({"id": [101]}))
    (rows,) = reader.run()
    assert rows.to_pydict() == {"id": [101]}


def test_a_column_dropped_and_added_again_does_not_get_its_old_values_back(lake: LakeWorld) -> None:
    with lake.table().update_schema() as update:
        update.delete_column("note")
    with lake.table().update_schema() as update:
        update.add_column("note", StringType())
    (rows,) = lake.reader().run()
    assert rows.column("note").null_count == 100


def test_a_chosen_column_that_is_dropped_is_named(lake: LakeWorld) -> None:
    reader = lake.reader(columns=["id", "note"])
    reader.run()
    with lake.table().update_schema() as update:
        update.delete_column("note")
    with pytest.raises(StreamRefused, match="there is no column 'note' in the table"):
        reader.run()


def test_what_goes_to_workers_is_small(lake: LakeWorld) -> None:
    reader = lake.reader()
    slice_ = reader.intend()
    assert slice_
    with reader.source().reading(slice_) as reading:
        assert len(pickle.dumps(reading)) < 20_000

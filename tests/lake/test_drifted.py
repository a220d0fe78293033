"""Streams that have lost columns, or put some aside: what a table of the lake takes and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType
from tests.harness.contents import content
from tests.sources.lake.lakes import LakeWorld, orders

from penstock.core.content import Content
from penstock.core.drift import follow_drift
from penstock.core.slices import Kind
from penstock.errors import StreamFailed, StreamRefused
from penstock.lake.fitting import make_fitting
from penstock.ports import StreamInfo
from penstock.sinks import lake as lake_sink

BEFORE = content(id="int64", note="string", n="int32")


def given(*columns: tuple[str, str]) -> Content:
    return content(**dict(columns))


def check(folder: Path, now: Content, policy: str = "evolve", **options: Any) -> None:
    lake = LakeWorld(folder)
    streams = {"orders": lake_sink.StreamOptions.model_validate(options)}
    sink = lake_sink.build(lake_sink.Options(namespace=lake.namespace), streams, lake.context("in"))
    sink.check(StreamInfo("orders", Kind.ROWS, ("id",)), follow_drift(BEFORE, now, policy))


def refused(folder: Path, now: Content, policy: str = "evolve", **options: Any) -> str:
    with pytest.raises(StreamRefused) as caught:
        check(folder, now, policy, **options)
    assert caught.value.next_step
    return caught.value.what


def test_a_key_that_is_gone_or_has_another_type_is_refused(tmp_path: Path) -> None:
    gone = given(("note", "string"), ("n", "int32"))
    check(tmp_path, gone)
    assert refused(tmp_path, gone, mode="merge", key=("id",)) == (
        "the table is keyed by the column 'id', which the stream no longer has"
    )
    other = given(("id", "string"), ("note", "string"), ("n", "int32"))
    check(tmp_path, other, "quarantine")
    assert refused(tmp_path, other, "quarantine", mode="merge", key=("id",)) == (
        "the table is keyed by the column 'id', which has another type now"
    )


def test_a_column_that_the_table_requires_cannot_go(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 1, n=pa.array([1], pa.int32())))
    with lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.update_column("note", required=True)
    without = given(("id", "int64"), ("n", "int32"))
    assert "column 'note' of the table is required" in refused(tmp_path, without)


def test_a_widening_that_iceberg_does_not_know_is_refused_with_the_way_out(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 1, n=pa.array([1], pa.int32())))
    for type_ in ("float64", "decimal(12,0)"):
        now = given(("id", "int64"), ("note", "string"), ("n", type_))
        with pytest.raises(StreamRefused, match="column 'n' is int in the table") as caught:
            check(tmp_path, now)
        assert "shape: {cast" in caught.value.next_step


def test_a_column_without_values_needs_no_place(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 1))
    schema = lake.table().schema()
    incoming = pa.schema([("id", pa.int64()), ("note", pa.string()), ("gone", pa.string())])
    with pytest.raises(StreamFailed, match="a batch has a column 'gone'"):
        make_fitting(incoming, schema)
    fit = make_fitting(incoming, schema, empty=("gone",))
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"]), pa.nulls(1, pa.string())], schema=incoming)
    assert names(fit(batch, 1).schema.names) == ["id", "note"]


def names(found: Sequence[str]) -> list[str]:
    return [name for name in found if not name.startswith("_")]


def test_the_ids_of_a_column_that_came_again_are_new(tmp_path: Path) -> None:
    """So that no reader meets the old values under it."""
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 1))
    first = lake.table().schema().find_field("note").field_id
    with lake.table().update_schema() as update:
        update.delete_column("note")
    lake.land(orders(2, 2).set_column(1, "note", pa.array([7])))
    field = lake.table().schema().find_field("note")
    assert (field.field_type, field.field_id > first) == (LongType(), True)
    found = lake.table().scan().to_arrow().sort_by("id").column("note").to_pylist()
    assert found == [None, 7]

"""A lake table that changes while a slice of it is open: what is gone is NULL, casts are exact, the rest is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import DoubleType, LongType, StringType
from tests.sources.lake.lakes import LakeWorld, Reader, orders

from penstock.core.slices import Slice
from penstock.errors import StreamFailed, StreamRefused

Update = Callable[[Any], Any]


@pytest.fixture
def lake(tmp_path: Path) -> LakeWorld:
    made = LakeWorld(tmp_path)
    made.land(orders(1, 5, small=pa.array(range(5), pa.int32()), real=pa.array([0.5] * 5, pa.float32())))
    return made


@pytest.fixture
def reader(lake: LakeWorld) -> Reader:
    return lake.reader()


@pytest.fixture
def slice_(reader: Reader) -> Slice:
    planned = reader.intend()
    assert planned
    return planned


def altered(lake: LakeWorld, *changes: Update) -> None:
    for change in changes:
        with lake.table().update_schema() as update:
            change(update)


def said(reader: Reader, slice_: Slice) -> list[str]:
    with reader.source().reading(slice_) as reading:
        return list(reading.changed)


def test_a_dropped_column_is_null_in_its_type(lake: LakeWorld, reader: Reader, slice_: Slice) -> None:
    before = reader.read(slice_)
    altered(lake, lambda update: update.delete_column("note"))
    after = reader.read(slice_)
    assert after.schema == before.schema
    assert after.column("note").null_count == 5
    assert after.drop_columns(["note"]).equals(before.drop_columns(["note"]))
    assert said(reader, slice_) == ["column note (string) is gone: it is NULL in this slice"]


def test_a_wider_column_is_cast_back_exactly(lake: LakeWorld, reader: Reader, slice_: Slice) -> None:
    before = reader.read(slice_)
    altered(
        lake,
        lambda update: update.update_column("small", field_type=LongType()),
        lambda update: update.update_column("real", field_type=DoubleType()),
    )
    assert reader.read(slice_).equals(before)
    assert said(reader, slice_) == [
        "column small was int and is long now: it is int in this slice",
        "column real was float and is double now: it is float in this slice",
    ]


def test_a_value_that_does_not_fit_any_more_fails(lake: LakeWorld, reader: Reader, slice_: Slice) -> None:
    altered(lake, lambda update: update.update_column("small", field_type=LongType()))
    lake.land(orders(6, 6, small=[2**40]))
    wide = reader.intend()
    assert wide
    with pytest.raises(StreamFailed, match="1 of its values do not fit, such as 1099511627776"):
        reader.read(replace(wide, content=slice_.content))


def test_a_renamed_column_is_refused_because_its_values_are_there(
    lake: LakeWorld, reader: Reader, slice_: Slice
) -> None:
    altered(lake, lambda update: update.rename_column("note", "remark"))
    with pytest.raises(StreamRefused) as caught:
        reader.read(slice_)
    assert caught.value.what == (
        "the open slice reads the column 'note', which the table no longer has; perhaps it was renamed to 'remark'"
    )
    assert "penstock state recover FILE --stream orders" in caught.value.next_step


def test_a_column_of_another_type_is_refused(lake: LakeWorld, reader: Reader, slice_: Slice) -> None:
    altered(
        lake,
        lambda update: update.delete_column("small"),
        lambda update: update.add_column("small", StringType()),
    )
    with pytest.raises(StreamRefused, match="reads the column 'small' as int, and it is string now"):
        reader.read(slice_)


def test_a_slice_that_would_have_no_column_left_is_refused(lake: LakeWorld) -> None:
    reader = lake.reader(columns=["note"])
    planned = reader.intend()
    assert planned
    altered(lake, lambda update: update.delete_column("note"), lambda update: update.add_column("n", LongType()))
    with pytest.raises(StreamRefused, match="of which the table no longer has any"):
        reader.read(planned)


def test_a_column_that_is_added_does_no_harm(lake: LakeWorld, reader: Reader, slice_: Slice) -> None:
    before = reader.read(slice_)
    altered(lake, lambda update: update.add_column("more", StringType()))
    assert reader.read(slice_).equals(before)
    assert said(reader, slice_) == []

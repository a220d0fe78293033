"""What would be read of a table: columns and their types, the filter, and what is refused before anything is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from tests.harness.contents import columns_of as columns_in
from tests.sources.lake.lakes import LakeWorld, orders

from penstock.errors import PenstockError, StreamRefused
from penstock.lake import names
from penstock.lake.projection import arrow_type
from penstock.lake.table_state import TableState
from penstock.links import arrow_types
from penstock.sources.lake import StreamOptions
from penstock.sources.lake.content import TableContent, read_columns


@pytest.fixture
def lake(tmp_path: Path) -> LakeWorld:
    made = LakeWorld(tmp_path)
    made.land(orders(1, 5))
    return made


def refused(lake: LakeWorld, **options: Any) -> StreamRefused:
    with pytest.raises(StreamRefused) as caught:
        lake.reader(**options).run()
    assert caught.value.next_step
    return caught.value


# ---------------------------------------------------------------- columns


def test_all_columns_but_the_lakes_own(lake: LakeWorld) -> None:
    (rows,) = lake.reader().run()
    assert rows.schema == pa.schema([("id", pa.int64()), ("note", pa.string())])
    assert rows.to_pydict() == orders(1, 5).to_pydict()


def test_chosen_columns_come_in_the_order_they_are_named(lake: LakeWorld) -> None:
    (rows,) = lake.reader(columns=["note", "id"]).run()
    assert rows.schema.names == ["note", "id"]
    (rows,) = lake.reader("other", columns=["note"]).run()
    assert rows.to_pydict() == {"note": [f"note {n}" for n in range(1, 6)]}


@pytest.mark.parametrize("name", names.INTERNAL)
def test_the_lakes_own_columns_cannot_be_asked_for(lake: LakeWorld, name: str) -> None:
    error = refused(lake, columns=["id", name])
    assert error.what == f"the column {name!r} is internal and cannot be read"


def test_a_column_that_is_not_there_is_named_with_the_near_one(lake: LakeWorld) -> None:
    error = refused(lake, columns=["id", "note_"])
    assert error.what == "there is no column 'note_' in the table; did you mean 'note'?"
    assert error.next_step == "it has: id, note"


def test_all_that_is_wrong_is_listed_at_once(lake: LakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.make(orders(1, 1), "theirs")
    late = {"id": 9, "name": "moment", "type": "timestamp_ns", "required": False}
    monkeypatch.setattr(TableState, "columns", [*lake.state("theirs").columns, late])
    error = refused(lake, stream="theirs", columns=["notes", "moment", names.SEQ], **{"from": 7})
    assert isinstance(error, StreamRefused)
    said = [each.what for each in (error, *error.others)]
    wrong = (
        "was not created by penstock",
        "there is no column 'notes'",
        f"the column {names.SEQ!r} is internal and cannot be read",
        "from: 7 is in the future",
        "the column 'moment' has the type",
    )
    assert len(said) == len(wrong)
    assert [each for each, text in zip(said, wrong, strict=True) if text not in each] == []


def test_a_table_that_is_not_there_is_named_with_the_near_one(lake: LakeWorld) -> None:
    error = refused(lake, stream="order")
    assert error.what == "there is no table shop.order; did you mean 'orders'?"
    assert error.next_step == "name a table with `table` on the stream; the namespace shop has: orders"


def test_an_empty_lake(tmp_path: Path) -> None:
    error = refused(LakeWorld(tmp_path))
    assert error.what == "there is no table shop.orders"
    assert "correct `namespace` or `warehouse`: the namespace shop has no tables" in error.next_step
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"


def test_the_catalog_lists_every_table_unless_some_are_named(lake: LakeWorld) -> None:
    lake.land(orders(1, 1), table="items", key=["id"])
    found = lake.source().catalog()
    assert [info.name for info in found] == ["orders"]
    everything = lake.source()
    everything.streams = {}
    assert [(info.name, info.primary_key) for info in everything.catalog()] == [("items", ("id",)), ("orders", ())]


def test_another_name_for_the_table(lake: LakeWorld) -> None:
    reader = lake.reader(stream="sales", table="orders")
    assert reader.ids() == [1, 2, 3, 4, 5]
    assert lake.state().reader("out", "sales") is not None


# ---------------------------------------------------------------- filters


def test_a_filter_may_name_columns_that_are_not_shipped(lake: LakeWorld) -> None:
    (rows,) = lake.reader(columns=["id"], where="note = 'note 2' or id > 4").run()
    assert rows.to_pydict() == {"id": [2, 5]}


def test_rows_that_a_filter_leaves_out_are_passed_once_and_for_all(lake: LakeWorld) -> None:
    reader = lake.reader(where="id > 100")
    assert reader.ids() == []
    assert reader.seq == lake.state().head
    assert reader.run() == []


@pytest.mark.parametrize("where", ["colour = 'red'", "id >", "id = 'many'", "_ingest_seq > 3"])
def test_a_filter_that_does_not_fit_is_refused(lake: LakeWorld, where: str) -> None:
    refused(lake, where=where)
    assert lake.state().readers() == [], "nothing is registered before"


def test_a_changed_filter_is_other_content(lake: LakeWorld) -> None:
    one, two = (lake.source(where=where).content("orders") for where in ("id > 1", "id > 2"))
    assert one != two


# ---------------------------------------------------------------- types

TYPES: list[IcebergType] = [
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(12, 2),
    DecimalType(38, 0),
    DateType(),
    TimeType(),
    TimestampType(),
    TimestamptzType(),
    StringType(),
    UUIDType(),
    FixedType(16),
    BinaryType(),
    ListType(2, StringType()),
    ListType(2, ListType(3, UUIDType(), element_required=False), element_required=True),
    MapType(2, StringType(), 3, IntegerType()),
    MapType(2, LongType(), 3, StructType(NestedField(4, "a", TimestamptzType(), required=False))),
    StructType(NestedField(2, "a b", IntegerType(), required=False), NestedField(3, "c", ListType(4, DateType()))),
]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_the_content_names_the_type_that_the_reader_gives(type_: IcebergType) -> None:
    schema = Schema(NestedField(1, "value", type_, required=False))
    fields = json.loads(schema.model_dump_json())["fields"]
    (column,) = read_columns(fields)
    assert arrow_types.arrow_type(column.type) == arrow_type(type_)


def test_every_type_leaves_as_the_content_says(tmp_path: Path) -> None:
    """On a real table: what the parts give has the schema that the content names."""
    lake = LakeWorld(tmp_path)
    fields = [NestedField(100 + 10 * i, f"c{i}", type_, required=False) for i, type_ in enumerate(TYPES)]
    (tmp_path / "lake").mkdir()
    table = lake.catalog().create_table("shop.orders", Schema(*fields), properties={"format-version": "2"})
    arrow = table.schema().as_arrow()
    table.append(pa.table([pa.nulls(3, field.type) for field in arrow], schema=arrow))
    reader = lake.reader(adopt=True)
    (rows,) = reader.run()
    said = TableContent.parse(reader.slices[0].content).columns
    assert columns_in(rows.schema) == tuple(replace(column, origin=None) for column in said)
    assert rows.num_rows == 3


def test_a_type_that_cannot_be_read_is_refused_unless_it_is_left_out(lake: LakeWorld, monkeypatch: Any) -> None:
    """Types of later format versions."""
    source = lake.source()
    state = lake.state()
    late = {"id": 9, "name": "moment", "type": "timestamp_ns", "required": False}
    monkeypatch.setattr(type(state), "columns", [*state.columns, late])
    with pytest.raises(StreamRefused) as caught:
        source.content("orders")
    assert caught.value.what == "the column 'moment' has the type timestamp_ns, which the lake source cannot read"
    assert lake.source(columns=["id"]).content("orders").names == ("id",)


# ---------------------------------------------------------------- tables of others


def test_a_table_of_others_needs_the_users_word(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.make(orders(1, 1))
    lake.append(orders(1, 3))
    before = lake.table().metadata_location
    error = refused(lake)
    assert error.what == "the table shop.orders was not created by penstock, so its rows have no order yet"
    assert "`adopt: true`" in error.next_step
    assert lake.table().metadata_location == before
    assert sorted(lake.reader(adopt=True).ids()) == [1, 2, 3]


# ---------------------------------------------------------------- options


@pytest.mark.parametrize("start", [-1, "soon", "-1", 1.5, True, None])
def test_a_start_that_is_none_is_refused_by_the_options(start: Any) -> None:
    with pytest.raises(ValidationError):
        StreamOptions.model_validate({"from": start})


@pytest.mark.parametrize("columns", [[], ["id", "id"]])
def test_columns_are_named_once(columns: list[str]) -> None:
    with pytest.raises(ValidationError):
        StreamOptions.model_validate({"columns": columns})


# ---------------------------------------------------------------- whose table it is


def test_a_table_that_was_dropped_and_made_again_is_refused(lake: LakeWorld) -> None:
    reader = lake.reader()
    assert reader.ids() == [1, 2, 3, 4, 5]
    lake.catalog().drop_table("shop.orders")
    lake._last.clear()
    lake.land(orders(1, 9))
    with pytest.raises(StreamRefused) as caught:
        reader.run()
    assert "is not the one that was read before: it was dropped and created again" in caught.value.what
    assert "penstock state reset FILE --stream orders" in caught.value.next_step


def test_an_open_slice_of_a_table_that_was_made_again_is_refused(lake: LakeWorld) -> None:
    reader = lake.reader()
    slice_ = reader.intend()
    assert slice_
    lake.catalog().drop_table("shop.orders")
    lake._last.clear()
    lake.land(orders(1, 9))
    with pytest.raises(StreamRefused, match="dropped and created again"):
        reader.read(slice_)


def restore(catalog: SqlCatalog, location: str) -> None:
    """The catalog's row as an older copy of the catalog has it."""
    from sqlalchemy import text

    with catalog.engine.begin() as db:
        db.execute(text("update iceberg_tables set metadata_location = :at"), {"at": location})


def test_a_catalog_restored_from_an_older_copy_stops_the_reader(lake: LakeWorld) -> None:
    older = lake.table().metadata_location
    lake.land(orders(6, 9))
    reader = lake.reader()
    assert reader.ids() == list(range(1, 10))
    restore(lake.catalog(), older)
    with pytest.raises(PenstockError) as caught:
        reader.run()
    assert "is behind this reader: its highest number is 5, and 9 was read" in caught.value.what
    assert caught.value.next_step.startswith("restore the catalog as it was; or go on from what the table holds: ")
    assert "`penstock rewind FILE --to 5 --stream orders`" in caught.value.next_step

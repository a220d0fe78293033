"""Tables made for streams and grown with them: every type has its form, every loss is refused in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)
from tests.core.types import types
from tests.harness.contents import types_of
from tests.lake.writing_tables import EVERYTHING, catalog, landed, read, table_for, writer_for, written

from penstock.core.retry import Retry
from penstock.core.types import Type, parse_type
from penstock.errors import StreamFailed, StreamRefused
from penstock.lake import schema as lake_schema
from penstock.lake import tables
from penstock.lake.iceberg_types import NoForm, describe_type, fits, iceberg_type, is_same, widens
from penstock.lake.partitions import make_partition_spec, make_sort_order
from penstock.lake.schema import Changes, evolve, find_changes
from penstock.links.postgres.types import FORMS, choose_form


def make_iceberg_schema(columns: pa.Schema, *, key: Sequence[str] = (), deletes: bool = False) -> Schema:
    return lake_schema.make_iceberg_schema(types_of(columns), key=key, deletes=deletes)


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize("type_", [*FORMS, "numeric(12,2)", "integer[]", "numeric(12,2)[]"])
def test_every_type_of_a_postgres_column_has_a_form(type_: str) -> None:
    iceberg_type(choose_form(type_).type)


@pytest.mark.parametrize(
    ("type_", "iceberg"),
    [
        *((text, "int") for text in ("int8", "int16", "int32", "uint8", "uint16")),
        *((text, "long") for text in ("int64", "uint32")),
        ("uint64", "decimal(20, 0)"),
        ("float16", "float"),
        ("decimal(38,3)", "decimal(38, 3)"),
        ("decimal(2,5)", "decimal(5, 5)"),
        ("null", "string"),
        ("json", "string"),
        ("timestamp", "timestamp"),
        ("timestamptz", "timestamptz"),
        ("time", "string"),
        ("time_ns", "string"),
        ("date", "date"),
        ("fixed(3)", "fixed[3]"),
        ("uuid", "uuid"),
        ("list<struct<a: map<string, int8>>>", "list<struct<a: map<string, int>>>"),
    ],
)
def test_the_form_of_a_type(type_: str, iceberg: str) -> None:
    assert describe_type(iceberg_type(parse_type(type_))) == iceberg


@pytest.mark.parametrize(
    ("type_", "choice"),
    [
        ("timestamp_ns", "microseconds"),
        ("timestamptz_ns", "microseconds"),
        ("decimal(39,0)", "38 digits"),
        ("decimal(3,-2)", "38 digits"),
        ("struct<>", "text"),
        ("list<timestamp_ns>", "microseconds"),
    ],
)
def test_a_type_without_an_exact_form_is_refused_with_the_choice(type_: str, choice: str) -> None:
    with pytest.raises(StreamRefused, match=r"column 'x': .* has no exact form") as caught:
        lake_schema.make_iceberg_schema([("x", parse_type(type_))])
    assert choice in caught.value.next_step


def test_a_form_never_depends_on_ids() -> None:
    one, two = (
        ListType(i, StructType(NestedField(i + 1, "a", MapType(i + 2, StringType(), i + 3, LongType()))))
        for i in (1, 50)
    )
    assert one != two
    assert is_same(one, two)
    assert not is_same(one, ListType(1, StringType()))


# ---------------------------------------------------------------- new tables


def test_a_plain_table() -> None:
    schema = make_iceberg_schema(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    assert [(f.field_id, f.name, str(f.field_type), f.required) for f in schema.fields] == [
        (1, "id", "long", False),
        (2, "name", "string", False),
        (3, "_ingest_seq", "long", True),
    ]
    assert schema.identifier_field_ids == []


def test_a_keyed_table() -> None:
    schema = make_iceberg_schema(
        pa.schema([("a", pa.int64()), ("tags", pa.list_(pa.string())), ("b", pa.string())]), key=["a", "b"]
    )
    assert [f.name for f in schema.fields] == ["a", "tags", "b", "_tombstone", "_ingest_seq"]
    assert {f.name for f in schema.fields if f.required} == {"a", "b", "_ingest_seq"}
    assert {schema.find_column_name(i) for i in schema.identifier_field_ids} == {"a", "b"}


def test_a_table_for_a_stream_with_deletes() -> None:
    schema = make_iceberg_schema(pa.schema([("id", pa.int64())]), deletes=True)
    assert [(f.name, f.required) for f in schema.fields] == [
        ("id", False),
        ("_tombstone", False),
        ("_ingest_seq", True),
    ]


def test_a_catalog_keeps_the_ids(tmp_path: Path) -> None:
    schema = make_iceberg_schema(EVERYTHING.schema, key=["id"])
    table = table_for(catalog(tmp_path), EVERYTHING.schema, key=["id"], partitions=["bucket(4, id)", "month(day)"])
    assert table.schema().fields == schema.fields
    assert table.schema().identifier_field_ids == schema.identifier_field_ids
    assert table.spec().fields == make_partition_spec(["bucket(4, id)", "month(day)"], schema).fields


@pytest.mark.parametrize(
    ("columns", "key", "has"),
    [
        (["id", "_ingest_seq"], [], "'_ingest_seq' has a name that is reserved by the lake"),
        (["id", "_Tombstone"], [], "'_Tombstone' has a name that is reserved by the lake"),
        (["id", "_change"], [], "'_change' has a name that is reserved by the lake"),
        (["id", "_deleted"], [], "'_deleted' has a name that is reserved by the lake"),
        (["id", "Id"], [], "'id' and 'Id' differ in upper and lower case only"),
        (["id"], ["nr"], "the key column 'nr' is not among the columns"),
    ],
)
def test_names_that_cannot_be(columns: list[str], key: list[str], has: str) -> None:
    with pytest.raises(StreamRefused, match=has):
        make_iceberg_schema(pa.schema([(name, pa.int64()) for name in columns]), key=key)


# ---------------------------------------------------------------- growing


def columns(**types: IcebergType) -> Schema:
    return Schema(*(NestedField(i, name, type_, required=False) for i, (name, type_) in enumerate(types.items(), 1)))


def test_what_fits_changes_nothing() -> None:
    wanted = make_iceberg_schema(EVERYTHING.schema)
    assert not find_changes(wanted, wanted)
    assert not find_changes(columns(a=LongType(), b=DecimalType(9, 2)), columns(a=IntegerType(), b=DecimalType(4, 2)))


def test_new_columns_and_wider_types() -> None:
    table = columns(a=IntegerType(), b=FloatType(), c=DecimalType(9, 2), gone=StringType())
    wanted = columns(a=LongType(), b=DoubleType(), c=DecimalType(12, 2), d=BooleanType())
    assert find_changes(table, wanted) == Changes(
        added=(("d", BooleanType()),),
        widened=(("a", LongType()), ("b", DoubleType()), ("c", DecimalType(12, 2))),
    )


@pytest.mark.parametrize(
    ("now", "given_"),
    [
        (IntegerType(), StringType()),
        (StringType(), IntegerType()),
        (DecimalType(9, 2), DecimalType(9, 3)),
        (DecimalType(9, 2), DecimalType(12, 3)),
        (IntegerType(), DecimalType(20, 0)),
        (ListType(2, IntegerType()), ListType(2, LongType())),
        (StructType(NestedField(2, "a", LongType())), StructType(NestedField(2, "b", LongType()))),
    ],
    ids=str,
)
def test_any_other_change_is_refused(now: IcebergType, given_: IcebergType) -> None:
    with pytest.raises(StreamRefused) as caught:
        find_changes(columns(x=now), columns(x=given_))
    assert f"'x' is {describe_type(now)} in the table and {describe_type(given_)} in the stream" in str(caught.value)
    for choice in ("rename", "cast", "another table", "drop the column"):
        assert choice in caught.value.next_step


def test_a_required_column_that_the_stream_lacks_is_refused() -> None:
    table = Schema(NestedField(1, "a", LongType(), required=True), NestedField(2, "b", LongType(), required=False))
    with pytest.raises(StreamRefused, match="'a' of the table is required"):
        find_changes(table, columns(b=LongType()))


def test_a_name_that_differs_in_case_only_is_refused() -> None:
    with pytest.raises(StreamRefused, match="has a column 'Name', the stream has 'name'"):
        find_changes(columns(Name=StringType()), columns(name=StringType()))


def test_an_adopted_table_gets_its_internal_columns_as_optional_ones(tmp_path: Path) -> None:
    lake = catalog(tmp_path)
    table = lake.create_table("shop.adopted", pa.schema([("id", pa.int32())]))
    table.append(pa.table({"id": pa.array([1], pa.int32())}))
    assert evolve(table, make_iceberg_schema(pa.schema([("id", pa.int64()), ("new", pa.string())]), deletes=True))
    fields = {f.name: (str(f.field_type), f.required) for f in lake.load_table("shop.adopted").schema().fields}
    assert fields == {
        "id": ("long", False),
        "new": ("string", False),
        "_tombstone": ("boolean", False),
        "_ingest_seq": ("long", False),
    }
    landed(table, [written(writer_for(table), pa.table({"id": [2], "new": ["x"]}))])
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_growing_keeps_keys_and_rows(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "a": ["x", "y"]})
    table = table_for(catalog(tmp_path), rows.schema, key=["id"])
    landed(table, [written(writer_for(table), rows)])
    wider = pa.table({"id": pa.array([3], pa.int64()), "b": pa.array([[{"c": 1}]])})
    wanted = make_iceberg_schema(wider.schema, key=["id"])
    assert evolve(table, wanted)
    assert not evolve(table, wanted)
    assert table.schema().find_field("id").required
    assert table.schema().identifier_field_ids == [1]
    landed(table, [written(writer_for(table, start=3), wider)])
    found = read(table)
    assert found.select(["id", "a", "b"]).to_pydict() == {
        "id": [1, 2, 3],
        "a": ["x", "y", None],
        "b": [None, None, [{"c": 1}]],
    }


def test_a_lost_race_is_looked_at_again(tmp_path: Path) -> None:
    lake = catalog(tmp_path)
    table = table_for(lake, pa.schema([("id", pa.int32())]))
    wanted = make_iceberg_schema(pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())]))
    other = lake.load_table("shop.orders")
    with other.update_schema() as update:
        update.add_column(("a",), StringType())
    assert evolve(table, wanted)
    assert [f.name for f in lake.load_table("shop.orders").schema().fields] == ["id", "_ingest_seq", "a", "b"]
    assert str(table.schema().find_type("id")) == "long"


def test_a_race_that_is_always_lost_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_for(catalog(tmp_path), pa.schema([("id", pa.int32())]))

    def lost(*_: Any, **__: Any) -> None:
        raise CommitFailedException("someone else was first")

    monkeypatch.setattr(Table, "_do_commit", lost)
    monkeypatch.setattr(tables, "LOST_RACES", Retry(10))
    with pytest.raises(StreamFailed, match=r"schema of shop\.orders: other writers committed first 10 times"):
        evolve(table, make_iceberg_schema(pa.schema([("id", pa.int64())])))


PLAIN_TYPES: list[IcebergType] = [
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), StringType()),
    *(DecimalType(p, s) for p in (4, 9, 20) for s in (0, 2)),
]
schemas = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(PLAIN_TYPES), min_size=1).map(
    lambda types: columns(**types)
)


@given(schemas, schemas)
def test_growing_ends_where_the_stream_fits_and_loses_nothing(table: Schema, wanted: Schema) -> None:
    now = {f.name: f.field_type for f in table.fields}
    stream = {f.name: f.field_type for f in wanted.fields}
    possible = all(fits(type_, now[name]) or widens(now[name], type_) for name, type_ in stream.items() if name in now)
    try:
        changes = find_changes(table, wanted)
    except StreamRefused:
        assert not possible
        return
    assert possible
    grown = now | dict(changes.added) | dict(changes.widened)
    assert all(fits(type_, grown[name]) for name, type_ in stream.items())
    assert all(fits(type_, grown[name]) for name, type_ in now.items())
    assert not find_changes(columns(**grown), wanted)


@given(st.sampled_from(PLAIN_TYPES), st.sampled_from(PLAIN_TYPES), st.sampled_from(PLAIN_TYPES))
def test_widening_goes_one_way(one: IcebergType, two: IcebergType, three: IcebergType) -> None:
    assert not (widens(one, two) and widens(two, one))
    assert not (widens(one, two) and widens(two, three)) or widens(one, three)


@given(types)
def test_every_type_has_a_form_or_a_choice(type_: Type) -> None:
    try:
        found = iceberg_type(type_)
    except NoForm as none:
        choice = none.choice
    else:
        choice = describe_type(found)
        assert fits(found, found)
    assert choice


# ---------------------------------------------------------------- partitions and sort orders

SHOP = make_iceberg_schema(
    pa.schema(
        [
            ("id", pa.int64()),
            ("code", pa.string()),
            ("status", pa.string()),
            ("created_at", pa.timestamp("us", "UTC")),
            ("ratio", pa.float64()),
            ("tags", pa.list_(pa.string())),
            ("day(s)", pa.int32()),
            ("id_bucket", pa.int32()),
        ]
    )
)


def test_partitions_as_users_write_them() -> None:
    spec = make_partition_spec(["day(created_at)", " bucket( 16 , id )", "truncate(4, code)", "status", "day(s)"], SHOP)
    assert [(f.source_id, f.field_id, f.name, str(f.transform)) for f in spec.fields] == [
        (4, 1000, "created_at_day", "day"),
        (1, 1001, "id_bucket_part", "bucket[16]"),  # a column has the usual name already
        (2, 1002, "code_trunc", "truncate[4]"),
        (3, 1003, "status", "identity"),
        (7, 1004, "day(s)", "identity"),
    ]
    assert make_partition_spec([], SHOP).is_unpartitioned()


@pytest.mark.parametrize(
    ("texts", "has"),
    [
        (["stauts"], "partition 'stauts': the table has no column 'stauts'; did you mean 'status'?"),
        (["day(create_at)"], "no column 'create_at'; did you mean 'created_at'?"),
        (["days(created_at)"], "there is no transform 'days'; did you mean 'day'?"),
        (["bucket(id, 16)"], "bucket takes a number above 0 and a column, in this order"),
        (["bucket(0, id)"], "bucket takes a number above 0"),
        (["truncate(code)"], "truncate takes a number above 0"),
        (["day(status)"], "column 'status' is string, which day cannot take"),
        (["bucket(4, ratio)"], "column 'ratio' is double, which bucket cannot take"),
        (["tags"], "column 'tags' is list<string>, which identity cannot take"),
        (["_ingest_seq"], "_ingest_seq is a column that the lake itself keeps"),
        (["day(created_at)", "hour(created_at)"], "already partitioned by day of 'created_at'"),
        (["status", "status"], "already partitioned by identity of 'status'"),
    ],
)
def test_partitions_that_cannot_be(texts: list[str], has: str) -> None:
    with pytest.raises(StreamRefused) as caught:
        make_partition_spec(texts, SHOP)
    assert has in str(caught.value)
    assert caught.value.next_step


def test_sort_orders_as_users_write_them() -> None:
    order = make_sort_order(["status", "created_at DESC", "id asc"], SHOP)
    assert [(f.source_id, f.direction, f.null_order) for f in order.fields] == [
        (3, SortDirection.ASC, NullOrder.NULLS_FIRST),
        (4, SortDirection.DESC, NullOrder.NULLS_LAST),
        (1, SortDirection.ASC, NullOrder.NULLS_FIRST),
    ]
    assert make_sort_order([], SHOP).is_unsorted


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("stauts desc", "the table has no column 'stauts'; did you mean 'status'?"),
        ("tags", "column 'tags' is list<string>, which has no order"),
        ("_tombstone", "_tombstone is a column that the lake itself keeps"),
        ("id down", "the table has no column 'id down'"),
    ],
)
def test_sort_orders_that_cannot_be(text: str, has: str) -> None:
    with pytest.raises(StreamRefused) as caught:
        make_sort_order([text], SHOP)
    assert f"sort_by {text!r}: {has}" in str(caught.value)


def test_a_table_is_made_with_both(tmp_path: Path) -> None:
    lake: SqlCatalog = catalog(tmp_path)
    spec, order = make_partition_spec(["day(created_at)"], SHOP), make_sort_order(["id desc"], SHOP)
    made = lake.create_table("shop.both", SHOP, partition_spec=spec, sort_order=order)
    assert (made.spec().fields, made.sort_order().fields) == (spec.fields, order.fields)

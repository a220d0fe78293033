"""Reading a range of the lake's order: each row once, in order, under the table's current schema, and nothing more."""

from __future__ import annotations

import datetime as dt
import pickle
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
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
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from tests.lake.reading_tables import (
    PLAIN,
    CountingIO,
    catalog_at,
    read,
    reader_of,
    rows_of,
    table_of,
    write,
    write_deletes,
)

from penstock.errors import StreamFailed, StreamRefused
from penstock.lake import names, reading
from penstock.lake.data_files import NumberRange, ScanFile
from penstock.lake.reading import LakeReader


def ids(table: pa.Table) -> list[int]:
    found: list[int] = table.column("id").to_pylist()
    return found


# ---------------------------------------------------------------- order


def test_rows_come_in_the_order_of_their_numbers_whatever_the_files(tmp_path: Path) -> None:
    even = write(tmp_path / "even.parquet", rows_of(range(2, 2001, 2)), group=100)
    odd = write(tmp_path / "odd.parquet", rows_of(range(1999, 0, -2)), group=100)
    late = write(tmp_path / "late.parquet", rows_of([2005, 2003, 2004]))
    assert ids(read(reader_of(), 10, 2004, late, even, odd)) == [*range(11, 2001), 2003, 2004]


def test_a_file_that_spans_all_others_is_read_together_with_them(tmp_path: Path) -> None:
    wide = write(tmp_path / "wide.parquet", rows_of([1, 50, 100]))
    inside = [write(tmp_path / f"{low}.parquet", rows_of([low, low + 9])) for low in (10, 30, 60)]
    assert ids(read(reader_of(), 0, 100, *inside, wide)) == [1, 10, 19, 30, 39, 50, 60, 69, 100]


def test_batches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_BYTES", 4096)
    wide = {"note": ["x" * 100] * 1000}
    alone = write(tmp_path / "alone.parquet", rows_of(range(1, 1001), **wide))
    pair = [write(tmp_path / f"{first}.parquet", rows_of(range(2000 + first, 4000, 2), **wide)) for first in range(2)]
    reader = reader_of()
    with reader.open(NumberRange(0, 9999, (alone, *pair)).part(0)) as batches:
        sizes = [(batch.num_rows, batch.nbytes) for batch in batches]
    assert sum(rows for rows, _ in sizes) == 3000
    assert max(bytes_ for _, bytes_ in sizes) < 2 * 4096


def test_rows_without_a_number_are_not_read(tmp_path: Path) -> None:
    some = write(tmp_path / "some.parquet", rows_of([3, None, 1, None]))
    none = write(tmp_path / "none.parquet", rows_of([None, None]))
    before = {name: rows for name, rows in rows_of([7, 8]).items() if name != "_ingest_seq"}
    adopted = write(tmp_path / "adopted.parquet", before)
    assert ids(read(reader_of(), -1, 99, some, none, adopted)) == [1, 3]


def test_files_without_statistics_or_bounds_are_read_all_the_same(tmp_path: Path) -> None:
    bare = write(tmp_path / "bare.parquet", rows_of([5, 1, None, 3]), bounds=False, write_statistics=False, group=2)
    assert ids(read(reader_of(), 0, 4, bare)) == [1, 3]


def test_large_numbers_stay_exact(tmp_path: Path) -> None:
    top = 2**53 + 1
    piece = write(tmp_path / "top.parquet", rows_of([None, top, top + 1, top + 2]))
    assert ids(read(reader_of(), top, top + 1, piece)) == [top + 1]


def test_an_empty_part_has_the_same_schema(tmp_path: Path) -> None:
    piece = write(tmp_path / "a.parquet", rows_of(range(1, 10)))
    reader = reader_of(changes=True)
    full, nothing, outside = read(reader, 0, 9, piece), read(reader, 0, 9), read(reader, 50, 60, piece)
    assert full.num_rows == 9
    assert nothing.num_rows == outside.num_rows == 0
    assert full.schema.equals(nothing.schema, check_metadata=True)
    assert full.schema == outside.schema


# ---------------------------------------------------------------- what is not read


def test_the_last_rows_of_a_large_file_are_read_without_the_rest(tmp_path: Path) -> None:
    count = 1_000_000
    piece = write(tmp_path / "large.parquet", rows_of(range(1, count + 1)), group=10_000, compression="zstd")
    counts = CountingIO()
    reader = LakeReader(counts, PLAIN, ("id", "note"))
    assert ids(table_of(reader, NumberRange(count - 1000, count, (piece,)).part(0))) == list(
        range(count - 999, count + 1)
    )
    last_group = counts.bytes
    assert 0 < last_group < piece.size / 10
    assert ids(table_of(reader, NumberRange(0, count, (piece,)).part(0))) == list(range(1, count + 1))
    assert counts.bytes - last_group > piece.size / 2


def test_files_outside_the_range_are_not_opened_and_all_are_closed(tmp_path: Path) -> None:
    counts = CountingIO()
    low, high = (write(tmp_path / f"{first}.parquet", rows_of(range(first, first + 10))) for first in (1, 11))
    delete = write_deletes(tmp_path / "delete.parquet", {low.path: [0]})
    low = ScanFile(low.path, low.size, low.rows, low.low, low.high, (str(delete),))
    reader = LakeReader(counts, PLAIN, ("id",))
    assert ids(table_of(reader, NumberRange(0, 10, (low, high)).part(0))) == list(range(2, 11))
    assert {file.name for file in counts.opened} == {low.path, str(delete)}
    batches = reader.open(NumberRange(0, 20, (low, high)).part(0))
    batches.read_next_batch()
    del batches
    assert all(file.closed for file in counts.opened)


def test_more_files_than_may_be_open_at_once(tmp_path: Path) -> None:
    pieces = [write(tmp_path / f"{n}.parquet", rows_of(range(n, 200, 50)), group=2) for n in range(1, 51)]
    counts = CountingIO()
    assert ids(table_of(LakeReader(counts, PLAIN, ("id",)), NumberRange(0, 200, tuple(pieces)).part(0))) == list(
        range(1, 200)
    )
    assert all(file.closed for file in counts.opened)


def test_columns_that_nobody_needs_are_not_read(tmp_path: Path) -> None:
    noise = [uuid.uuid4().hex * 20 for _ in range(20_000)]
    piece = write(tmp_path / "a.parquet", rows_of(range(1, 20_001), note=noise))
    counts = CountingIO()
    assert table_of(LakeReader(counts, PLAIN, ("id",)), NumberRange(0, 20_000, (piece,)).part(0)).num_rows == 20_000
    assert counts.bytes < piece.size / 4


# ---------------------------------------------------------------- deletes


def test_deleted_places_are_left_out(tmp_path: Path) -> None:
    numbers = list(range(1, 101))
    path, other = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    one = write_deletes(tmp_path / "d1.parquet", {path: [0, 10, 99], other: [1]}, group=1)
    two = write_deletes(tmp_path / "d2.parquet", {path: [10, 11, 55]})
    pieces = [
        write(tmp_path / "a.parquet", rows_of(numbers), group=8, deletes=[one, two]),
        write(tmp_path / "b.parquet", rows_of([201, 202]), deletes=[one]),
    ]
    gone = {0, 10, 11, 55, 99}
    wanted = [number for place, number in enumerate(numbers) if place not in gone]
    assert ids(read(reader_of(), 0, 300, *pieces)) == [*wanted, 201]
    assert ids(read(reader_of(), 10, 57, *pieces)) == [number for number in wanted if 10 < number <= 57]


def test_a_file_that_vanished_says_to_run_again(tmp_path: Path) -> None:
    piece = write(tmp_path / "a.parquet", rows_of([1, 2]), deletes=[tmp_path / "none.parquet"])
    for missing in (ScanFile(str(tmp_path / "no.parquet"), 1, 1, 1, 2), piece):
        with pytest.raises(StreamFailed, match="no longer exists") as failed:
            read(reader_of(), 0, 9, missing)
        assert failed.value.next_step.startswith("run again")


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"not a Parquet file at all")
    with pytest.raises(StreamFailed, match=r"bad\.parquet cannot be read"):
        read(reader_of(), 0, 9, ScanFile(str(tmp_path / "bad.parquet"), 25, 1, 1, 2))


# ---------------------------------------------------------------- changes and filters


def test_tombstones_are_deletes_and_pass_every_filter(tmp_path: Path) -> None:
    rows = rows_of([1, 2, 3, 4], note=["keep", None, "drop", "keep"], **{names.DELETED: [None, True, False, True]})
    piece = write(tmp_path / "a.parquet", rows)
    found = read(reader_of(changes=True, where="note = 'keep'"), 0, 9, piece)
    assert found.column_names == ["id", "note", "_change"]
    assert list(zip(ids(found), found.column("_change").to_pylist(), strict=True)) == [
        (1, "upsert"),
        (2, "delete"),
        (4, "delete"),
    ]
    assert ids(read(reader_of(), 0, 9, piece)) == [1, 3]
    assert ids(read(reader_of(where="note = 'keep'"), 0, 9, piece)) == [1]


def test_a_row_of_a_keyed_table_that_does_not_match_is_a_delete_of_its_key(tmp_path: Path) -> None:
    rows = rows_of([1, 2, 3, 4], note=["keep", None, "drop", "keep"], **{names.DELETED: [None, True, False, False]})
    piece = write(tmp_path / "a.parquet", rows)
    found = read(reader_of(changes=True, where="note = 'keep'", key=("id",)), 0, 9, piece)
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (1, "keep", "upsert"),
        (2, None, "delete"),
        (3, None, "delete"),
        (4, "keep", "upsert"),
    ]


def test_without_the_column_every_row_is_an_upsert(tmp_path: Path) -> None:
    schema = Schema(*(field for field in PLAIN.fields if field.name != names.DELETED))
    piece = write(tmp_path / "a.parquet", rows_of([1, 2]), schema)
    found = read(reader_of(schema, changes=True, where="id > 1"), 0, 9, piece)
    assert found.to_pylist() == [{"id": 2, "note": "note 2", "_change": "upsert"}]


FILTERS = [
    ("n > 1", [2, 3]),
    ("n != 2", [1, 3]),
    ("not n = 2", [1, 3]),
    ("n in (1, 3)", [1, 3]),
    ("n not in (1, 3)", [2]),
    ("not (n in (1, 2))", [3]),
    ("n is null", [4]),
    ("n is not null", [1, 2, 3]),
    ("n < 99999999999", [1, 2, 3]),
    ("n != 99999999999", [1, 2, 3]),
    ("n > 99999999999", []),
    ("n = 1 or t is null", [1, 4]),
    ("not (n = 1 or n = 2)", [3]),
    ("n > 0 and t like 'b%'", [2, 3]),
    ("t not like 'b%'", [1]),
    ("n between 2 and 3", [2, 3]),
    ("f is nan", [2]),
    ("f is not nan", [1, 3]),
    ("s.inner = 20", [2]),
    ("s.inner is null", [3, 4]),
    ("d >= '2024-01-02'", [2, 3]),
    ("at < '2024-01-02T00:00:00+00:00'", [1]),
    ("amount = 2.50", [2]),
    ("who = '00000000-0000-0000-0000-0000000000AB'", [2]),
    ("who in ('00000000-0000-0000-0000-0000000000ab')", [2]),
    ("true", [1, 2, 3, 4]),
    ("false", []),
]


@pytest.mark.parametrize(("where", "wanted"), FILTERS, ids=[where for where, _ in FILTERS])
def test_a_filter_follows_the_logic_of_sql(where: str, wanted: list[int], tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "n", IntegerType()),
        NestedField(3, "t", StringType()),
        NestedField(4, "f", DoubleType()),
        NestedField(5, "s", StructType(NestedField(6, "inner", LongType()))),
        NestedField(7, "d", DateType()),
        NestedField(8, "at", TimestamptzType()),
        NestedField(9, "amount", DecimalType(9, 2)),
        NestedField(10, "who", UUIDType()),
        NestedField(11, "_ingest_seq", LongType()),
    )
    days = [dt.date(2024, 1, day) for day in (1, 2, 3)]
    rows: dict[str, list[Any]] = {
        "id": [1, 2, 3, 4],
        "n": [1, 2, 3, None],
        "t": ["a", "b", "bb", None],
        "f": [1.0, float("nan"), 3.0, None],
        "s": [{"inner": 10}, {"inner": 20}, {"inner": None}, None],
        "d": [*days, None],
        "at": [*(dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC) for day in days), None],
        "amount": [Decimal("1.00"), Decimal("2.50"), Decimal("3.00"), None],
        "who": [uuid.UUID(int=1).bytes, uuid.UUID(int=0xAB).bytes, uuid.UUID(int=3).bytes, None],
        "_ingest_seq": [1, 2, 3, 4],
    }
    piece = write(tmp_path / "a.parquet", rows, schema)
    assert ids(read(reader_of(schema, ("id",), where=where), 0, 9, piece)) == wanted


@pytest.mark.parametrize(
    "where", ["id =", "", "nobody = 1", "_ingest_seq > 3", f"{names.DELETED} = true", "id = 'x'", "id > id"]
)
def test_a_filter_that_makes_no_sense_is_refused(where: str) -> None:
    with pytest.raises(StreamRefused, match="filter") as refused:
        reader_of(where=where).open(NumberRange(0, 1, ()).part(0))
    assert refused.value.next_step


@pytest.mark.parametrize("column", ["nobody", "_ingest_seq", names.DELETED])
def test_a_column_that_is_not_there_or_internal_is_refused(column: str) -> None:
    with pytest.raises(StreamRefused, match=column):
        reader_of(columns=("id", column)).open(NumberRange(0, 1, ()).part(0))


# ---------------------------------------------------------------- evolution


def test_columns_follow_their_ids_through_every_change(tmp_path: Path) -> None:
    """The table itself is changed by PyIceberg; files from before and after are read under the last schema."""
    catalog = catalog_at(tmp_path)
    table = catalog.create_table(
        "db.t",
        Schema(
            NestedField(1, "id", IntegerType(), required=True),
            NestedField(2, "kept", StringType()),
            NestedField(3, "again", StringType()),
            NestedField(4, "ratio", FloatType()),
            NestedField(5, "amount", DecimalType(5, 2)),
            NestedField(6, "_ingest_seq", LongType()),
        ),
    )
    old: dict[str, list[Any]] = {
        "id": [1, 2],
        "kept": ["a", None],
        "again": ["old", "old"],
        "ratio": [0.5, None],
        "amount": [Decimal("1.25"), None],
        "_ingest_seq": [1, 2],
    }
    before = write(tmp_path / "before.parquet", old, table.schema())
    with table.update_schema() as update:
        update.delete_column("again")
    with table.update_schema() as update:
        update.add_column("again", StringType())
        update.add_column("fresh", BooleanType())
        update.rename_column("kept", "renamed")
        update.update_column("id", LongType())
        update.update_column("ratio", DoubleType())
        update.update_column("amount", DecimalType(20, 2))
        update.move_first("amount")
    new: dict[str, list[Any]] = {
        "amount": [Decimal("9.99")],
        "id": [3],
        "renamed": ["c"],
        "ratio": [1.5],
        "_ingest_seq": [3],
        "again": ["new"],
        "fresh": [True],
    }
    after = write(tmp_path / "after.parquet", new, table.schema())
    shipped = ["id", "renamed", "again", "ratio", "amount", "fresh"]
    found = read(reader_of(table.schema(), shipped), 0, 9, before, after)
    first = [1, "a", None, 0.5, Decimal("1.25"), None]
    assert [list(row.values()) for row in found.to_pylist()] == [
        first,
        [2, None, None, None, None, None],
        [3, "c", "new", 1.5, Decimal("9.99"), True],
    ]
    assert [str(type_) for type_ in found.schema.types] == [
        *("int64", "string", "string", "double", "decimal128(20, 2)", "bool"),
    ]
    only_new = read(reader_of(table.schema(), ["fresh"], where="again is null"), 0, 9, before, after)
    assert only_new.to_pylist() == [{"fresh": None}] * 2


INNER = [NestedField(11, "x", IntegerType()), NestedField(12, "dropped", StringType())]
INNER_NOW = [NestedField(13, "added", StringType()), NestedField(11, "y", LongType())]


def nested(inner: list[NestedField]) -> Schema:
    return Schema(
        NestedField(1, "s", StructType(*inner)),
        NestedField(2, "l", ListType(3, StructType(*inner), element_required=False)),
        NestedField(4, "m", MapType(5, StringType(), 6, StructType(*inner), value_required=False)),
        NestedField(7, "n", ListType(8, ListType(9, IntegerType(), element_required=False), element_required=False)),
        NestedField(10, "_ingest_seq", LongType()),
    )


def with_new_ids(schema: Schema) -> Schema:
    """The struct stands three times in the schema, so its fields need ids of their own each time."""

    def again(fields: tuple[NestedField, ...], add: int) -> StructType:
        return StructType(*(NestedField(f.field_id + add, f.name, f.field_type) for f in fields))

    s, _, _, n, seq = schema.fields
    assert isinstance(s.field_type, StructType)
    inner = s.field_type.fields
    return Schema(
        s,
        NestedField(2, "l", ListType(3, again(inner, 100), element_required=False)),
        NestedField(4, "m", MapType(5, StringType(), 6, again(inner, 200), value_required=False)),
        n,
        seq,
    )


def test_nested_columns_follow_their_ids_and_null_stays_null(tmp_path: Path) -> None:
    old, now = with_new_ids(nested(INNER)), with_new_ids(nested(INNER_NOW))
    one: dict[str, Any] = {"x": 1, "dropped": "d"}
    rows: dict[str, list[Any]] = {
        "s": [one, None, {"x": None, "dropped": None}, one],
        "l": [[one, None], None, [], [one]],
        "m": [[("k", one), ("z", None)], None, [], [("k", one)]],
        "n": [[[1], None, []], None, [], [[1, 2]]],
        "_ingest_seq": [4, 3, 2, 1],
    }
    piece = write(tmp_path / "a.parquet", rows, old)
    found = read(reader_of(now, ["s", "l", "m", "n"]), 1, 9, piece)
    then = {"added": None, "y": 1}
    assert found.to_pylist() == [
        {"s": {"added": None, "y": None}, "l": [], "m": [], "n": []},
        {"s": None, "l": None, "m": None, "n": None},
        {"s": then, "l": [then, None], "m": [("k", then), ("z", None)], "n": [[1], None, []]},
    ]
    assert str(found.schema.field("l").type) == "list<item: struct<added: string, y: int64>>"
    assert read(reader_of(now, ["s", "l", "m", "n"]), 5, 9, piece).schema == found.schema


def test_files_without_ids_go_by_the_name_mapping_or_else_by_name(tmp_path: Path) -> None:
    rows: dict[str, list[Any]] = {"id": [1], "note": ["n"], "_ingest_seq": [1]}
    piece = write(tmp_path / "a.parquet", rows, ids=False)
    renamed = Schema(
        NestedField(1, "key", LongType()),
        NestedField(2, "note", StringType()),
        NestedField(9, "other", StringType()),
        NestedField(4, "_ingest_seq", LongType()),
    )
    mapping = """[{"field-id": 1, "names": ["key", "id"]}, {"field-id": 9, "names": ["note"]},
        {"field-id": 4, "names": ["_ingest_seq"]}]"""
    columns = ("key", "note", "other")
    assert read(reader_of(renamed, columns), 0, 9, piece).to_pylist() == [{"key": None, "note": "n", "other": None}]
    mapped = reader_of(renamed, columns, name_mapping=mapping)
    assert read(mapped, 0, 9, piece).to_pylist() == [{"key": 1, "note": None, "other": "n"}]


def test_a_partitions_value_stands_in_for_a_column_that_the_file_leaves_out(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "day", DateType(), required=True),
        NestedField(3, "_ingest_seq", LongType()),
    )
    piece = write(tmp_path / "a.parquet", {"id": [1], "_ingest_seq": [1]}, schema, constants=((2, '"2024-05-06"'),))
    wanted = [{"id": 1, "day": dt.date(2024, 5, 6)}]
    assert read(reader_of(schema, ("id", "day")), 0, 9, piece).to_pylist() == wanted
    lacking = write(tmp_path / "b.parquet", {"id": [1], "_ingest_seq": [1]}, schema)
    with pytest.raises(StreamFailed, match="does not have column day"):
        read(reader_of(schema, ("id", "day")), 0, 9, lacking)


TYPES: list[tuple[IcebergType, Any, str, Any]] = [
    (BooleanType(), True, "bool", True),
    (IntegerType(), 7, "int32", 7),
    (LongType(), 1 << 60, "int64", 1 << 60),
    (FloatType(), 0.5, "float", 0.5),
    (DoubleType(), 0.1, "double", 0.1),
    (DecimalType(38, 10), Decimal("1.5"), "decimal128(38, 10)", Decimal("1.5000000000")),
    (DateType(), dt.date(1, 1, 1), "date32[day]", dt.date(1, 1, 1)),
    (TimeType(), dt.time(23, 59, 59, 999999), "time64[us]", dt.time(23, 59, 59, 999999)),
    (TimestampType(), dt.datetime(1, 1, 1), "timestamp[us]", dt.datetime(1, 1, 1)),  # noqa: DTZ001 (it has no zone)
    (
        TimestamptzType(),
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        "timestamp[us, tz=UTC]",
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    ),
    (StringType(), "ü", "string", "ü"),
    (BinaryType(), b"\x00", "binary", b"\x00"),
    (FixedType(3), b"abc", "binary", b"abc"),
    (
        UUIDType(),
        uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes,
        "string",
        "f79c3e09-677c-4bbd-a479-3f349cb785e7",
    ),
]


@pytest.mark.parametrize(("type_", "value", "arrow", "wanted"), TYPES, ids=[str(row[0]) for row in TYPES])
def test_every_type_travels_in_one_form(
    type_: IcebergType, value: Any, arrow: str, wanted: Any, tmp_path: Path
) -> None:
    schema = Schema(NestedField(1, "v", type_), NestedField(2, "_ingest_seq", LongType()))
    piece = write(tmp_path / "a.parquet", {"v": [None, value, None, value], "_ingest_seq": [1, 2, 3, 4]}, schema)
    reader = reader_of(schema, ("v",))
    found = read(reader, 1, 9, piece)
    assert found.column("v").to_pylist() == [wanted, None, wanted]
    assert str(found.schema.field("v").type) == arrow
    assert read(reader, 4, 9, piece).schema == found.schema


def test_a_type_without_an_exact_form_is_refused() -> None:
    schema = Schema(NestedField(1, "v", TimestampNanoType()), NestedField(2, "_ingest_seq", LongType()))
    with pytest.raises(StreamRefused, match="timestamp_ns"):
        reader_of(schema, ("v",)).open(NumberRange(0, 1, ()).part(0))


def test_a_value_that_does_not_fit_is_never_cut(tmp_path: Path) -> None:
    wide = Schema(NestedField(1, "v", DoubleType()), NestedField(2, "_ingest_seq", LongType()))
    piece = write(tmp_path / "a.parquet", {"v": [0.1], "_ingest_seq": [1]}, wide, ids=False)
    narrow = Schema(NestedField(1, "v", FloatType()), NestedField(2, "_ingest_seq", LongType()))
    with pytest.raises(StreamFailed, match=r"v in .*a\.parquet is double"):
        read(reader_of(narrow, ("v",)), 0, 9, piece)


def test_a_reader_is_small_and_shows_no_secret() -> None:
    secret = PyArrowFileIO({"s3.secret-access-key": "hush"})
    reader = LakeReader(secret, PLAIN, ("id",))
    assert len(pickle.dumps(reader)) < 10_000
    assert "hush" not in repr(reader)


def test_a_piece_survives_the_way_through_a_document(tmp_path: Path) -> None:
    piece = ScanFile("a", 1, 2, None, 4, ("d", "e"), ((1, '"x"'), (2, "0.1")))
    assert NumberRange.of(NumberRange(1, 2, (piece, piece)).part(3)) == NumberRange(1, 2, (piece, piece))

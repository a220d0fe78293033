"""Parts on their way into real tables: what is written is what PyIceberg reads, numbered, bounded and in order."""

from __future__ import annotations

import errno
import pickle
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from tests.lake.writing_tables import (
    EVERYTHING,
    LANDED,
    STAMP,
    append,
    catalog,
    far,
    files_in,
    landed,
    read,
    table_for,
    writer_for,
    written,
)

from penstock.core.documents import parse
from penstock.core.slices import Part, faults_of
from penstock.core.types import Plain
from penstock.errors import StreamFailed
from penstock.lake import parquet, writing
from penstock.lake.names import parse_file_name
from penstock.lake.parquet import FileLayout
from penstock.lake.partitions import make_partition_spec, make_splitter
from penstock.lake.schema import make_iceberg_schema
from penstock.lake.stamping import restamp
from penstock.lake.writing import NUMBERS_PER_PART, LakeWriter, decode_files, read_last_number
from penstock.links import durable
from penstock.links.arrow_types import type_of


@pytest.fixture
def lake(tmp_path: Path) -> SqlCatalog:
    return catalog(tmp_path)


def numbered(rows: int, start: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + rows), pa.int64()), "text": [f"row {i}" for i in range(rows)]})


def local(file: DataFile) -> Path:
    return Path(file.file_path.removeprefix("file://"))


def reshaped(table: Table, **changes: Any) -> LakeWriter:
    """A writer into files of another size."""
    return LakeWriter("shop", "orders", replace(FileLayout.of(table), **changes), "ps-x-1-a", "a", 1)


# ---------------------------------------------------------------- rows


def test_every_type_comes_back_as_it_went_in(lake: SqlCatalog) -> None:
    table = table_for(lake, EVERYTHING.schema)
    receipt = written(pickle.loads(pickle.dumps(writer_for(table, start=7))), EVERYTHING)
    landed(table, [receipt])
    found = read(table)
    assert {name: found[name].to_pylist() for name in LANDED.column_names} == LANDED.to_pydict()
    assert found[STAMP].to_pylist() == [7, 8, 9, 10]
    assert (receipt.read, receipt.rows, read_last_number(receipt)) == (4, 4, 10)


def test_the_bounds_are_those_of_pyicebergs_own_writer(lake: SqlCatalog) -> None:
    table = table_for(lake, EVERYTHING.schema)
    ours = decode_files(written(writer_for(table), EVERYTHING))
    append(table, ours)
    [theirs] = _dataframe_to_data_files(table.metadata, read(table), table.io)
    for what in (
        "record_count",
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
    ):
        assert getattr(ours[0], what) == getattr(theirs, what), what
    assert ours[0].column_sizes.keys() == theirs.column_sizes.keys()
    assert ours[0].file_size_in_bytes == local(ours[0]).stat().st_size
    assert ours[0].split_offsets == [4]


def test_each_part_has_its_own_block_of_numbers(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    writer = writer_for(table, start=101)
    receipts = [written(writer, numbered(3, 3 * part), part=part, batch_rows=2) for part in (0, 1, 2)]
    landed(table, receipts)
    assert read(table).select(["id", STAMP]).to_pydict() == {
        "id": list(range(9)),
        STAMP: [101 + part * NUMBERS_PER_PART + i for part in range(3) for i in range(3)],
    }
    assert [read_last_number(receipt) for receipt in receipts] == [103 + part * NUMBERS_PER_PART for part in range(3)]
    assert faults_of([Part(i, "{}") for i in range(3)], receipts) is None


def test_names_tell_the_stream_slice_and_attempt_and_two_attempts_differ(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    one, two = (written(writer_for(table), numbered(3)) for _ in range(2))
    names = [path.name for path in files_in(table)]
    assert len(names) == 2
    assert {parse_file_name(name) for name in names} == {parse_file_name(writer_for(table).name + "-")}
    assert one.attempt != two.attempt
    assert one.schema == two.schema


def test_a_part_without_rows_writes_nothing(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    receipt = written(writer_for(table), numbered(0))
    assert decode_files(receipt) == []
    assert parse(receipt.pieces) == {"files": [], "last": None}
    assert files_in(table) == []


def test_deletes_become_tombstones(lake: SqlCatalog) -> None:
    rows = pa.table({"id": [1, 2, 3], "_change": ["upsert", "delete", "upsert"]})
    table = table_for(lake, rows.schema.remove(1), key=["id"])
    landed(table, [written(writer_for(table, key=("id",)), rows)])
    assert read(table).to_pydict() == {"id": [1, 2, 3], "_tombstone": [False, True, False], STAMP: [1, 2, 3]}


def test_rows_without_a_change_are_live(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema, deletes=True)
    landed(table, [written(writer_for(table), numbered(2))])
    assert read(table)["_tombstone"].to_pylist() == [False, False]


def test_a_column_that_the_stream_lacks_is_null(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    landed(table, [written(writer_for(table), numbered(2).select(["id"]))])
    assert read(table)["text"].to_pylist() == [None, None]


def test_narrower_types_widen(lake: SqlCatalog) -> None:
    wide = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.decimal128(20, 2))])
    table = table_for(lake, wide)
    rows = pa.table(
        {
            "a": pa.array([-5], pa.int8()),
            "b": pa.array([0.1], pa.float32()),
            "c": pa.array([Decimal("1.25")], pa.decimal128(4, 2)),
        }
    )
    landed(table, [written(writer_for(table), rows)])
    assert read(table).drop_columns([STAMP]).to_pydict() == rows.to_pydict()


# ---------------------------------------------------------------- files


def test_row_groups_are_small_and_files_end_at_their_target(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    receipt = written(reshaped(table, row_group=20_000, target=100_000), numbered(60_000), batch_rows=500)
    files = decode_files(receipt)
    assert len(files) > 1
    metadata = [pq.read_metadata(local(file)) for file in files]
    groups = [m.row_group(g) for m in metadata for g in range(m.num_row_groups)]
    assert sum(group.num_rows for group in groups) == 60_000
    assert {group.num_rows for group in groups[:-1]} == {1_000}  # two batches pass 20,000 bytes
    sizes = [file.file_size_in_bytes for file in files]
    assert all(100_000 <= size < 140_000 for size in sizes[:-1])
    landed(table, [receipt])
    assert read(table)["id"].to_pylist() == list(range(60_000))


def test_a_large_batch_is_cut_into_row_groups_alike(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    [file] = decode_files(written(reshaped(table, row_group=100_000), numbered(50_000)))
    metadata = pq.read_metadata(local(file))
    sizes = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
    assert len(sizes) > 5
    assert max(sizes) - min(sizes) < len(sizes)
    assert len(file.split_offsets or []) == len(sizes)


def test_a_reader_of_the_newest_rows_finds_one_file_of_many(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    for landing in range(8):
        landed(table, [written(writer_for(table, start=1 + 10 * landing), numbered(10, 10 * landing))])
    assert len(list(table.scan().plan_files())) == 8
    [task] = table.scan(row_filter=f"{STAMP} > 70").plan_files()
    assert task.file.record_count == 10


def test_numbers_keep_their_bounds_where_the_table_wants_none(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    with table.transaction() as tx:
        tx.set_properties({"write.metadata.metrics.default": "none", f"write.metadata.metrics.column.{STAMP}": "none"})
    [file] = decode_files(written(writer_for(table), numbered(3)))
    assert file.lower_bounds == {table.schema().find_field(STAMP).field_id: (1).to_bytes(8, "little")}


def test_long_texts_do_not_hide_rows(lake: SqlCatalog) -> None:
    # PyIceberg's own sum of bounds skips row groups that have none.
    table = table_for(lake, numbered(0).schema)
    rows = pa.table({"id": [1, 2], "text": ["m", "z" * 6_000]})
    receipt = written(reshaped(table, row_group=1), rows, batch_rows=1)
    assert pq.read_metadata(local(decode_files(receipt)[0])).num_row_groups == 2
    landed(table, [receipt])
    assert table.scan(row_filter=f"text = '{'z' * 6_000}'").to_arrow()["id"].to_pylist() == [2]


def test_times_beyond_pythons_years_are_written(lake: SqlCatalog) -> None:
    rows = pa.table({"id": [1], "at": pa.array([10**18], pa.timestamp("us")), "day": pa.array([10**8], pa.date32())})
    table = table_for(lake, rows.schema)
    [file] = decode_files(written(writer_for(table), rows))
    ids = {field.name: field.field_id for field in table.schema().fields}
    assert set(file.lower_bounds) == {ids["id"], ids[STAMP]}
    assert pq.read_table(local(file))["at"].cast(pa.int64()).to_pylist() == [10**18]


def test_files_are_on_the_disk_before_the_receipt(lake: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(parquet, "sync", synced.append)
    monkeypatch.setattr(writing, "sync", synced.append)
    monkeypatch.setattr(durable, "sync", synced.append)
    table = table_for(lake, numbered(0).schema)
    [file] = decode_files(written(writer_for(table), numbered(3)))
    folder = FileLayout.of(table).location.removeprefix("file://")
    assert synced[-2:] == [str(local(file)), folder]
    assert str(Path(folder).parent) in synced  # the folder itself is new


def test_data_that_is_far_away_goes_through_its_file_io(lake: SqlCatalog, tmp_path: Path) -> None:
    table = table_for(lake, numbered(0).schema)
    writer = replace(writer_for(table), layout=far(FileLayout.of(table), tmp_path / "away"))
    [old] = decode_files(written(writer, numbered(3)))
    [new] = restamp([old], writer.layout, old_start=1, new_start=11, name=writer.name)
    assert old.file_path.startswith("far://data/ps-")
    found = [tmp_path / "away" / "data" / file.file_path.rpartition("/")[2] for file in (old, new)]
    assert [pq.read_table(path)[STAMP].to_pylist() for path in found] == [[1, 2, 3], [11, 12, 13]]
    assert [file.file_size_in_bytes for file in (old, new)] == [path.stat().st_size for path in found]
    failing = replace(writer, block=2, layout=replace(writer.layout, row_group=1))
    with pytest.raises(StreamFailed, match="more than 2 rows"):
        written(failing, numbered(3), batch_rows=1)
    assert sorted((tmp_path / "away" / "data").iterdir()) == sorted(found)


def test_a_table_says_how_its_files_are_compressed(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    with table.transaction() as tx:
        tx.set_properties(
            {
                "write.parquet.compression-codec": "uncompressed",
                "write.target-file-size-bytes": "1",
                "write.data.path": "",
            }
        )
        tx.remove_properties("write.data.path")
    layout = FileLayout.of(table)
    assert (layout.compression, layout.level, layout.target) == ("none", None, 1)
    [file] = decode_files(written(writer_for(table), numbered(3)))
    column = pq.read_metadata(local(file)).row_group(0).column(0)
    assert column.compression == "UNCOMPRESSED"


def test_secrets_are_not_printed() -> None:
    schema = make_iceberg_schema([("id", Plain.INT64)])
    layout = FileLayout(schema, make_partition_spec([], schema), "s3://b/data", {"s3.secret-access-key": "hunter2"})
    assert "hunter2" not in repr(layout)


# ---------------------------------------------------------------- partitions

VALUES: list[tuple[pa.Array, list[Any] | None]] = [
    (pa.array([-1, 0, 34, 2**31 - 1, -(2**31) + 64, None], pa.int32()), None),
    (pa.array([-1, 0, 34, 2**63 - 1, -(2**63) + 64, None], pa.int64()), None),
    (pa.array([Decimal("14.20"), Decimal("-0.01"), Decimal("1.28"), None], pa.decimal128(12, 2)), None),
    (pa.array(["", "iceberg", "aé😀zz", None]), None),
    (pa.array([b"", b"\x00\x01\x02\x03\x04", None]), None),
    (pa.array([b"\x00\x01\x02\x03", None], pa.binary(4)), None),
    (pa.array([0, -1, 17486, -719162, None], pa.date32()), [0, -1, 17486, -719162, None]),
    (pa.array([0, -1, 1510871468000000, None], pa.timestamp("us")), [0, -1, 1510871468000000, None]),
    (pa.array([0, -1, 1510871468000001, None], pa.timestamp("us", "UTC")), [0, -1, 1510871468000001, None]),
    (pa.array([UUID(int=1).bytes, None], pa.uuid()), [UUID(int=1).bytes, None]),
    (pa.array([True, False, None]), None),
]
TRANSFORMS: dict[str, Transform[Any, Any]] = {
    "bucket(7, x)": BucketTransform(7),
    "truncate(3, x)": TruncateTransform(3),
    "x": IdentityTransform(),
    "year(x)": YearTransform(),
    "month(x)": MonthTransform(),
    "day(x)": DayTransform(),
    "hour(x)": HourTransform(),
}


@pytest.mark.parametrize("text", TRANSFORMS)
@pytest.mark.parametrize(("array", "raw"), VALUES, ids=lambda value: str(getattr(value, "type", "")))
def test_partition_values_are_what_pyiceberg_computes_one_by_one(
    text: str, array: pa.Array, raw: list[Any] | None
) -> None:
    schema = make_iceberg_schema([("x", type_of(array.type))])
    kind, transform = schema.fields[0].field_type, TRANSFORMS[text]
    if not transform.can_transform(kind):
        with pytest.raises(Exception, match="cannot take"):
            make_partition_spec([text], schema)
        return
    apply = transform.transform(kind)
    wanted = [apply(value) for value in (raw if raw is not None else array.to_pylist())]
    batch = pa.record_batch([array, pa.array(range(len(array)))], names=["x", STAMP])
    found: dict[int, Any] = {}
    for values, piece in make_splitter(make_partition_spec([text], schema), schema)(batch):
        numbers = piece.column(1).to_pylist()
        assert numbers == sorted(numbers)
        found.update(dict.fromkeys(numbers, values[0]))
    assert [found[number] for number in range(len(array))] == wanted


@pytest.mark.parametrize(
    ("value", "hashed"),
    [
        (pa.array([34], pa.int32()), 2017239379),
        (pa.array([34], pa.int64()), 2017239379),
        (pa.array([Decimal("14.20")], pa.decimal128(9, 2)), -500754589),
        (pa.array([17486], pa.date32()), -653330422),
        (pa.array([1510871468000000], pa.timestamp("us")), -2047944441),
        (pa.array(["iceberg"]), 1210000089),
        (pa.array([UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes], pa.uuid()), 1488055340),
        (pa.array([b"\x00\x01\x02\x03"]), -188683207),
    ],
)
def test_buckets_are_those_of_the_specification(value: pa.Array, hashed: int) -> None:
    schema = make_iceberg_schema([("x", type_of(value.type))])
    split = make_splitter(make_partition_spec(["bucket(1000, x)"], schema), schema)
    [(values, _)] = split(pa.record_batch([value], names=["x"]))
    assert values == ((hashed & 0x7FFFFFFF) % 1000,)


def test_a_partitioned_table_has_one_file_for_each_value_and_reads_back_whole(lake: SqlCatalog) -> None:
    rows = pa.table(
        {
            "id": pa.array(range(1000), pa.int64()),
            "at": pa.array([1_700_000_000_000_000 + i * 600_000_000 for i in range(1000)], pa.timestamp("us", "UTC")),
            "status": pa.array([["new", "paid", None][i % 3] for i in range(1000)]),
        }
    )
    table = table_for(lake, rows.schema, partitions=["day(at)", "status"])
    receipt = written(writer_for(table), rows, batch_rows=100)
    files = decode_files(receipt)
    days = {value.as_py() for value in rows["at"].cast(pa.int64())}
    assert len(files) == len({day // 86_400_000_000 for day in days}) * 3
    assert all(file.spec_id == table.spec().spec_id for file in files)
    landed(table, [receipt])
    found = read(table)
    assert found.drop_columns([STAMP]).to_pydict() == rows.to_pydict()
    assert found[STAMP].to_pylist() == list(range(1, 1001))
    tasks = list(table.scan(row_filter="status = 'paid'").plan_files())
    assert len(tasks) == len(files) // 3
    for file in files:
        numbers = pq.read_table(local(file))[STAMP].to_pylist()
        assert numbers == sorted(numbers)


def test_pyiceberg_partitions_the_same_rows_alike(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema, partitions=["bucket(4, id)", "truncate(5, text)"])
    files = decode_files(written(writer_for(table), numbered(100)))
    append(table, files)
    theirs = list(_dataframe_to_data_files(table.metadata, read(table), table.io))

    def told(found: list[DataFile]) -> list[tuple[str, int]]:
        return sorted((repr(file.partition), file.record_count) for file in found)

    assert told(files) == told(theirs)


def test_many_partitions_keep_to_their_bounds(lake: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_OPEN_FILES", 3)
    monkeypatch.setattr(writing, "MAX_WAITING_BYTES", 2_000)
    table = table_for(lake, numbered(0).schema, partitions=["bucket(10, id)"])
    most = 0
    begin = writing.PartFiles.begin

    def watched(self: writing.PartFiles, values: Any) -> Any:
        nonlocal most
        most = max(most, len(self.open) + 1)
        return begin(self, values)

    monkeypatch.setattr(writing.PartFiles, "begin", watched)
    landed(table, [written(writer_for(table), numbered(1000), batch_rows=50)])
    assert most == 3
    assert read(table)["id"].to_pylist() == list(range(1000))


# ---------------------------------------------------------------- refusals


def refused(writer: LakeWriter, rows: pa.Table) -> StreamFailed:
    with pytest.raises(StreamFailed) as caught:
        written(writer, rows)
    assert (caught.value.pipeline, caught.value.stream) == ("shop", "orders")
    assert caught.value.next_step
    return caught.value


def test_a_null_key_is_refused_with_its_count(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema, key=["id"])
    rows = pa.table({"id": pa.array([1, None, None], pa.int64()), "text": ["a", "b", "c"]})
    assert "key column 'id' is NULL in 2 of 3 rows" in str(refused(writer_for(table, key=("id",)), rows))
    assert files_in(table) == []


def test_more_rows_than_numbers_are_refused(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    written(writer_for(table, block=10), numbered(10))
    before = files_in(table)
    assert "more than 10 rows" in str(refused(writer_for(table, block=10), numbered(11)))
    assert files_in(table) == before


@pytest.mark.parametrize(
    ("given", "has"),
    [
        (pa.array([1], pa.int64()), "comes as int64 and is int in the table"),
        (pa.array([1.0], pa.float64()), "comes as float64 and is int in the table"),
        (pa.array(["1"]), "comes as string and is int in the table"),
        (pa.array([1], pa.uint32()), "comes as uint32 and is int in the table"),
        (pa.array([1], pa.timestamp("ns")), "timestamp_ns has no exact form"),
        (pa.array([1], pa.duration("s")), "no type for Arrow's duration"),
    ],
)
def test_a_lossy_cast_is_refused_by_type_whatever_the_values(lake: SqlCatalog, given: pa.Array, has: str) -> None:
    table = table_for(lake, pa.schema([("a", pa.int32())]))
    error = str(refused(writer_for(table), pa.table({"a": given})))
    assert "column 'a'" in error
    assert has in error


def test_a_value_that_the_wider_unit_cannot_hold_is_refused(lake: SqlCatalog) -> None:
    table = table_for(lake, pa.schema([("at", pa.timestamp("s"))]))
    rows = pa.table({"at": pa.array([2**62], pa.timestamp("s"))})
    assert "column 'at': a value of type timestamp[s] cannot be converted to timestamp" in str(
        refused(writer_for(table), rows)
    )


@pytest.mark.parametrize("name", ["extra", "_ingest_seq", "_tombstone"])
def test_a_column_without_a_place_is_refused(lake: SqlCatalog, name: str) -> None:
    table = table_for(lake, numbered(0).schema, deletes=True)
    assert repr(name) in str(refused(writer_for(table), numbered(1).append_column(name, pa.array([1]))))


def test_a_required_column_must_come_and_must_not_be_null(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema, key=["id"])
    assert "'id' of the table is required" in str(refused(writer_for(table), numbered(1).select(["text"])))
    rows = pa.table({"id": pa.array([None], pa.int64()), "text": ["a"]})
    assert "required column 'id' is NULL in 1 of 1 rows" in str(refused(writer_for(table), rows))


def test_changes_are_upserts_or_deletes(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema, deletes=True)
    for odd in ("insert", None):
        rows = numbered(2).append_column("_change", pa.array(["upsert", odd]))
        assert str([odd]) in str(refused(writer_for(table), rows))


def test_a_delete_needs_a_place(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    landed(table, [written(writer_for(table), numbered(1).append_column("_change", pa.array(["upsert"])))])
    error = refused(writer_for(table), numbered(1).append_column("_change", pa.array(["delete"])))
    assert "deletes rows" in str(error)


def test_a_failure_leaves_no_file(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema, partitions=["bucket(4, id)"])
    writer = reshaped(table, row_group=100)
    rows = numbered(1000)

    def failing() -> Any:
        yield from rows.to_batches(max_chunksize=100)
        assert files_in(table)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        writer.write(pa.RecordBatchReader.from_batches(rows.schema, failing()), Part(0, "{}"))
    assert files_in(table) == []


def test_a_full_disk_is_said_to_be_full(lake: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_for(lake, numbered(0).schema)

    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(parquet, "sync", full)
    Path(FileLayout.of(table).location.removeprefix("file://")).mkdir(parents=True)
    assert "no space left for" in str(refused(writer_for(table), numbered(3)))
    assert files_in(table) == []


def test_a_place_that_cannot_be_written_is_named(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    folder = Path(FileLayout.of(table).location.removeprefix("file://"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("not a folder")
    assert f"cannot write to file://{folder}" in str(refused(writer_for(table), numbered(3)))


# ---------------------------------------------------------------- new numbers


def test_restamped_rows_keep_their_order_and_gaps(lake: SqlCatalog) -> None:
    table = table_for(lake, EVERYTHING.schema, partitions=["bucket(2, id)"])
    writer = writer_for(table, start=1)
    old = [f for part in (0, 1) for f in decode_files(written(writer, EVERYTHING, part=part))]
    new = restamp(old, writer.layout, old_start=1, new_start=1001, name=writer.name)
    append(table, new)
    found = read(table)
    assert found[STAMP].to_pylist() == [1001 + part * NUMBERS_PER_PART + i for part in (0, 1) for i in range(4)]
    wanted = pa.concat_tables([LANDED, LANDED]).to_pydict()
    assert {name: found[name].to_pylist() for name in EVERYTHING.column_names} == wanted
    assert {f.file_path for f in old}.isdisjoint(f.file_path for f in new)
    assert all(local(f).exists() for f in old)
    assert {parse_file_name(Path(f.file_path).name) for f in new} == {parse_file_name(writer.name + "-")}
    seq = table.schema().find_field(STAMP).field_id
    for before, after in zip(old, new, strict=True):
        assert (before.partition, before.spec_id) == (after.partition, after.spec_id)
        assert before.null_value_counts == after.null_value_counts
        assert {k: v for k, v in before.lower_bounds.items() if k != seq} == {
            k: v for k, v in after.lower_bounds.items() if k != seq
        }
        assert (
            int.from_bytes(after.lower_bounds[seq], "little")
            == int.from_bytes(before.lower_bounds[seq], "little") + 1000
        )


def test_restamping_keeps_row_groups(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    writer = reshaped(table, row_group=50_000)
    old = decode_files(written(writer, numbered(10_000)))
    [new] = restamp(old, writer.layout, old_start=1, new_start=5, name="ps-x-1-b")
    one, two = (pq.read_metadata(local(f)) for f in (old[0], new))
    assert one.num_row_groups == two.num_row_groups > 3


def test_a_failed_restamp_leaves_the_old_files_alone(lake: SqlCatalog) -> None:
    table = table_for(lake, numbered(0).schema)
    writer = writer_for(table)
    old = [f for part in range(3) for f in decode_files(written(writer, numbered(10), part=part))]
    broken = local(old[1])
    broken.write_bytes(b"not parquet")
    before = files_in(table)
    with pytest.raises(pa.ArrowInvalid):
        restamp(old, writer.layout, old_start=1, new_start=2, name=writer.name)
    assert files_in(table) == before
    assert restamp([], writer.layout, old_start=1, new_start=2, name=writer.name) == []

"""Planning: the files of a range by their bounds, where a slice ends, and parts that hold each row once, in order."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestamptzType
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

from penstock.errors import StreamRefused
from penstock.lake import names, planning
from penstock.lake.data_files import NumberRange, OpenDataFiles, ScanFile
from penstock.lake.lake import Lake
from penstock.lake.planning import cut_parts, find_end, find_files, make_scan_file, open_data_files
from penstock.lake.reading import LakeReader
from penstock.links.spark.session_provider import SparkSessionProvider

LARGE = 1 << 40


def shelf(io: PyArrowFileIO | None = None) -> OpenDataFiles:
    return OpenDataFiles(io or PyArrowFileIO(), PLAIN)


def append(table: Table, numbers: Any, **more: Any) -> None:
    arrow = table.schema().as_arrow()
    rows = rows_of(numbers, **more)
    table.append(pa.table({name: pa.array(rows[name], arrow.field(name).type) for name in arrow.names}, schema=arrow))


def snapshot(table: Table) -> int | None:
    return table.metadata.current_snapshot_id


# ---------------------------------------------------------------- which files


def test_files_are_found_by_their_bounds_alone(tmp_path: Path) -> None:
    table = catalog_at(tmp_path).create_table("db.t", PLAIN)
    assert find_files(table, snapshot(table), 0, 99) == []
    for first in range(1, 51, 10):
        append(table, range(first, first + 10))
    before = snapshot(table)
    append(table, [None, None])
    append(table, range(51, 61))
    for data in Path(table.location().removeprefix("file://")).rglob("*.parquet"):
        data.rename(data.with_suffix(".hidden"))
    found = find_files(table, snapshot(table), 15, 31)
    assert sorted((piece.low, piece.high, piece.rows) for piece in found) == [(11, 20, 10), (21, 30, 10), (31, 40, 10)]
    assert find_files(table, snapshot(table), 60, 99) == find_files(table, snapshot(table), 30, 30) == []
    assert len(find_files(table, before, 0, 99)) == 5
    assert len(find_files(table, snapshot(table), 0, 99)) == 6
    for data in Path(table.location().removeprefix("file://")).rglob("*.hidden"):
        data.rename(data.with_suffix(".parquet"))
    reader = LakeReader(table.io, table.schema(), ("id",))
    assert read(reader, 15, 31, *found).column("id").to_pylist() == list(range(16, 32))
    assert found[0].size == Path(found[0].path.removeprefix("file://")).stat().st_size


def test_files_from_before_the_column_was_there_hold_nothing(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()))
    table = catalog_at(tmp_path).create_table("db.t", schema)
    table.append(pa.table({"id": [1, 2]}))
    with pytest.raises(StreamRefused, match=r"db\.t has no column _ingest_seq"):
        find_files(table, snapshot(table), 0, 9)
    with table.update_schema() as update:
        update.add_column("_ingest_seq", LongType())
    found = find_files(table, snapshot(table), 0, 9)
    assert [(piece.low, piece.high) for piece in found] == [(None, None)]
    assert read(LakeReader(table.io, table.schema(), ("id",)), 0, 9, *found).num_rows == 0
    with open_data_files(table) as looked:
        assert find_end(looked, found, 0, 9, budget=1) == 9
        assert [span.upto for span in cut_parts(looked, found, 0, 9, most=4)] == [9]


def test_values_of_identity_partitions_come_along(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "day", DateType()),
        NestedField(2, "at", TimestamptzType()),
        NestedField(3, "name", StringType()),
        NestedField(4, "_ingest_seq", LongType()),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, DayTransform(), "at_day"),
        PartitionField(1, 1001, IdentityTransform(), "day"),
        PartitionField(3, 1002, IdentityTransform(), "name"),
    )
    table = catalog_at(tmp_path).create_table("db.t", schema, partition_spec=spec)
    row = {"day": dt.date(2024, 5, 6), "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "name": 'a "b"', "_ingest_seq": 1}
    table.append(pa.Table.from_pylist([row, {**row, "name": None}], schema=schema.as_arrow()))
    found = find_files(table, snapshot(table), 0, 9)
    assert sorted(piece.constants for piece in found) == [
        ((1, '"2024-05-06"'),),
        ((1, '"2024-05-06"'), (3, '"a \\"b\\""')),
    ]
    bare = write(tmp_path / "bare.parquet", {"_ingest_seq": [1]}, schema, constants=max(p.constants for p in found))
    shown = read(reader_of(table.schema(), ("name", "day", "at")), 0, 9, bare).to_pylist()
    assert shown == [{"name": 'a "b"', "day": dt.date(2024, 5, 6), "at": None}]


def test_files_that_are_not_parquet_are_refused_by_name(tmp_path: Path) -> None:
    table = catalog_at(tmp_path).create_table("db.t", PLAIN)
    append(table, [1])
    (task,) = table.scan().plan_files()
    vector = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path="s3://b/d.puffin", file_format=FileFormat.PUFFIN
    )
    with pytest.raises(StreamRefused, match=r"s3://b/d\.puffin is a PUFFIN file"):
        make_scan_file(table, task.file, [vector])


class DeleteManifest(ManifestWriterV2):
    """PyIceberg reads delete manifests and writes none."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_equals(table: Table, path: str) -> None:
    """Commit an equality delete as Flink does."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        before = append._manifests

        def manifests() -> list[ManifestFile]:
            at = table.io.new_output(f"{table.location()}/metadata/equal.avro")
            file = DataFile.from_args(
                content=DataFileContent.EQUALITY_DELETES,
                file_path=path,
                file_format=FileFormat.PARQUET,
                partition=Record(),
                record_count=1,
                file_size_in_bytes=1,
                equality_ids=[1],
                spec_id=0,
            )
            with DeleteManifest(table.spec(), table.schema(), at, append.snapshot_id, "null") as writer:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED, snapshot_id=append.snapshot_id, data_file=file
                    )
                )
            return [*before(), writer.to_manifest_file()]

        # There is no other door for a manifest that PyIceberg did not write.
        append._manifests = manifests  # type: ignore[method-assign]


def test_equality_deletes_are_refused_by_name(tmp_path: Path) -> None:
    table = catalog_at(tmp_path).create_table("db.t", PLAIN)
    append(table, [1])
    delete_equals(table, "s3://b/equal.parquet")
    with pytest.raises(StreamRefused, match=r"s3://b/equal\.parquet is an equality delete file") as refused:
        find_files(table, snapshot(table), 0, 9)
    assert "compact" in refused.value.next_step


# ---------------------------------------------------------------- where a slice ends


def test_a_slice_ends_between_files_without_opening_one(tmp_path: Path) -> None:
    counts = CountingIO()
    found = [ScanFile(f"none-{first}", 1000, 10, first, first + 9) for first in range(1, 101, 10)]
    with shelf(counts) as looked:
        assert find_end(looked, found, 0, 100, budget=3 * planning.ARROW_BYTES_PER_FILE_BYTE * 1000) == 30
        assert find_end(looked, found, 30, 100, budget=3 * planning.ARROW_BYTES_PER_FILE_BYTE * 1000 + 1) == 60
        assert find_end(looked, found, 0, 100, budget=35, row_bytes=1.0) == 30
        assert find_end(looked, found, 0, 45, budget=LARGE) == 45
        assert find_end(looked, found, 0, 500, budget=LARGE) == 500
        # From the middle of a file on, half of it counts.
        assert find_end(looked, found, 5, 100, budget=15, row_bytes=1.0) == 20
        assert [span.upto for span in cut_parts(looked, found, 0, 100, most=4)] == [100]
    assert counts.opened == []


def test_a_first_file_that_is_too_large_is_cut_inside(tmp_path: Path) -> None:
    piece = write(tmp_path / "a.parquet", rows_of(range(1, 1001)), group=100)
    with shelf() as looked:
        assert find_end(looked, [piece], 0, 2000, budget=250, row_bytes=1.0) == 250
        assert find_end(looked, [piece], 250, 2000, budget=250, row_bytes=1.0) == 500
        assert find_end(looked, [piece], 0, 2000, budget=0, row_bytes=1.0) == 1
        assert find_end(looked, [piece], 0, 2000, budget=piece.size * planning.ARROW_BYTES_PER_FILE_BYTE // 2) in range(
            450, 551
        )


def test_rows_are_counted_exactly(tmp_path: Path) -> None:
    # Numbers of two parts of a landing: a gap lies between them, and deletes have thinned the first out.
    path = str(tmp_path / "a.parquet")
    delete = write_deletes(tmp_path / "d.parquet", {path: range(0, 100, 2)})
    gap = 1 << 26
    found = [
        write(tmp_path / "a.parquet", rows_of(range(1, 101)), group=16, deletes=[delete]),
        write(tmp_path / "b.parquet", rows_of(range(gap, gap + 200, 2)), group=16),
        write(tmp_path / "c.parquet", rows_of(range(gap + 1, gap + 200, 2)), group=16),
    ]
    after, counted = 0, []
    with shelf() as looked:
        while after < gap + 200:
            upto = find_end(looked, found, after, gap + 200, budget=LARGE, rows=7)
            assert upto > after
            counted.append(read(reader_of(), after, upto, *found).num_rows)
            after = upto
    assert sum(counted) == 250
    assert max(counted) <= 7
    assert sum(1 for count in counted if count < 7) < 5


def test_counted_rows_end_inside_of_a_later_file(tmp_path: Path) -> None:
    found = [write(tmp_path / f"{low}.parquet", rows_of(range(low, low + 10))) for low in range(1, 41, 10)]
    with shelf() as looked:
        ends = [find_end(looked, found, after, 40, budget=LARGE, rows=7) for after in range(0, 40, 7)]
        assert ends == [7, 14, 21, 28, 35, 40]
        # A byte less than the rest of the first two files: the slice ends between them.
        assert find_end(looked, found, 5, 40, budget=14, row_bytes=1.0) == 10


def test_cutting_does_not_read_files_that_begin_later(tmp_path: Path) -> None:
    first = write(tmp_path / "a.parquet", rows_of([*range(1, 100), 5000]), group=10)
    rest = [ScanFile(str(tmp_path / f"gone-{number}"), 10, 10, number, 6000) for number in (300, 400)]
    with shelf() as looked:
        assert find_end(looked, [*rest, first], 0, 6000, budget=LARGE, rows=20) == 20


def test_large_files_are_planned_by_their_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "LARGE_FILE_BYTES", 1000)
    piece = write(tmp_path / "a.parquet", rows_of(range(1, 10_001)), group=1000)
    counts = CountingIO()
    with shelf(counts) as looked:
        assert find_end(looked, [piece], 0, 10_000, budget=3500, row_bytes=1.0) == 3000
    assert len(counts.opened) == 1
    assert find_end(shelf(), [piece], 0, 10_000, budget=piece.size * planning.ARROW_BYTES_PER_FILE_BYTE // 2) in (
        4000,
        5000,
    )


# ---------------------------------------------------------------- parts


def test_parts_are_few_balanced_and_end_where_files_end(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [ScanFile(f"none-{first}", 1 << 20, 100, first, first + 99) for first in range(1, 1601, 100)]
    with shelf() as looked:
        spans = cut_parts(looked, found, 0, 2000, most=4)
        assert [(span.after, span.upto) for span in spans] == [(0, 400), (400, 800), (800, 1200), (1200, 2000)]
        assert [len(span.scan_files) for span in spans] == [4, 4, 4, 4]
        assert len(cut_parts(looked, found[:3], 0, 2000, most=4)) == 1
        assert len(cut_parts(looked, found, 0, 2000, most=100)) == 8
        # One file alone is cut by its numbers.
        alone = ScanFile("none", 30 << 20, 1000, 1, 1000)
        assert [span.upto for span in cut_parts(looked, [alone], 0, 1000, most=4)] == [250, 500, 750, 1000]


def test_one_heavy_row_makes_no_part_without_numbers() -> None:
    heavy, light = 30 << 20, 1 << 20
    with shelf() as looked:
        first = [ScanFile("none", heavy, 1, 1, 1), ScanFile("none", light, 10, 2, 11)]
        assert [span.upto for span in cut_parts(looked, first, 0, 11, most=4)] == [1, 11]
        last = [ScanFile("none", light, 10, 1, 10), ScanFile("none", heavy, 1, 11, 11)]
        assert [span.upto for span in cut_parts(looked, last, 0, 11, most=4)] == [10, 11]


def test_parts_of_overlapping_files_share_their_numbers() -> None:
    found = [ScanFile(f"none-{n}", 4 << 20, 1000, n, 100_000 + n) for n in range(1, 9)]
    with shelf() as looked:
        spans = cut_parts(looked, found, 0, 200_000, most=4)
    assert [round(span.upto / 25_000) for span in spans[:-1]] == [1, 2, 3]
    assert all(len(span.scan_files) == 8 for span in spans)


# ---------------------------------------------------------------- all of it


@st.composite
def tables(draw: st.DrawFn) -> list[tuple[list[int | None], set[int], int]]:
    """Files: their numbers in file order, the places that are deleted, and rows in a row group."""
    numbers = draw(st.lists(st.integers(1, 400), unique=True, max_size=80))
    files: list[list[int | None]] = [[] for _ in range(draw(st.integers(1, 5)))]
    mixed = draw(st.booleans())
    for index, number in enumerate(numbers if mixed else sorted(numbers)):
        at = draw(st.integers(0, len(files) - 1)) if mixed else index * len(files) // max(len(numbers), 1)
        files[at].append(number)
    if draw(st.booleans()):
        files[0].append(None)
    made = []
    for file in files:
        if file:
            dead = draw(st.sets(st.integers(0, len(file) - 1)))
            made.append((file, dead, draw(st.integers(1, 30))))
    return made


@settings(max_examples=150, deadline=None)
@given(
    files=tables(),
    budget=st.integers(1, 50),
    rows=st.none() | st.integers(1, 20),
    most=st.integers(1, 4),
    large=st.booleans(),
    bounds=st.booleans(),
)
def test_every_row_is_read_once_and_in_order_however_it_is_cut(
    files: list[tuple[list[int | None], set[int], int]],
    budget: int,
    rows: int | None,
    most: int,
    large: bool,
    bounds: bool,
) -> None:
    wanted = sorted(
        number for file, dead, _ in files for place, number in enumerate(file) if number and place not in dead
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.multiple(planning, LARGE_FILE_BYTES=0 if large else 1 << 20, SMALL_PART_BYTES=5),
    ):
        at = [Path(folder, f"{index}.parquet") for index in range(len(files))]
        delete = write_deletes(
            Path(folder, "d.parquet"), {str(path): dead for path, (_, dead, _) in zip(at, files, strict=True)}, group=3
        )
        found = [
            write(path, rows_of(file), group=group, deletes=[delete] if dead else [], bounds=bounds)
            for path, (file, dead, group) in zip(at, files, strict=True)
        ]
        seen: list[int] = []
        after = 0
        while after < 500:
            with shelf() as looked:
                upto = find_end(looked, found, after, 500, budget=budget, rows=rows, row_bytes=1.0)
                spans = cut_parts(looked, found, after, upto, most=most, row_bytes=1.0)
            assert after < upto <= 500
            assert [span.after for span in spans] == [after, *(span.upto for span in spans[:-1])]
            assert spans[-1].upto == upto
            assert all(span.after < span.upto for span in spans)
            assert len(spans) <= most
            slice_ = [number for span in spans for number in ids(span)]
            assert rows is None or len(slice_) <= rows
            seen += slice_
            after = upto
    assert seen == wanted


def ids(span: NumberRange) -> list[int]:
    found: list[int] = table_of(reader_of(columns=("id",)), span.part(0)).column("id").to_pylist()
    return found


# ---------------------------------------------------------------- with Spark


Ask = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def spark_lake(tmp_path: Path, spark_provider: SparkSessionProvider) -> tuple[Lake, Ask]:
    """A lake, and a way to ask Spark about it."""
    place = Lake("sqlite", "lake", f"{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", "db")
    place.catalog().create_namespace("db")
    spark_provider.require(place.spark_settings(), place.spark_packages())
    session = spark_provider.session()
    return place, lambda sql: spark_provider.wait(lambda: [tuple(row) for row in session.sql(sql).collect()])


# py4j leaves the sockets it fetches results through to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_what_spark_deleted_merged_and_compacted_is_read_as_spark_reads_it(spark_lake: tuple[Lake, Ask]) -> None:
    place, ask = spark_lake
    catalog = place.catalog()
    modes = {f"write.{what}.mode": "merge-on-read" for what in ("merge", "delete", "update")}
    table = catalog.create_table("db.t", PLAIN, properties={"format-version": "2", **modes})
    for first in (1, 1001):
        append(table, range(first, first + 1000))
    name = place.spark_table("t")
    ask(f"delete from {name} where id % 10 = 3")
    ask(f"merge into {name} a using (select explode(array(7, 1007)) as id) b on a.id = b.id when matched then delete")
    ask(f"insert into {name} values (5, 'spark', true, 3001), (6, null, null, 3000)")
    table = catalog.load_table("db.t")
    found = find_files(table, snapshot(table), 0, 3001)
    assert {bool(piece.deletes) for piece in found} == {True, False}
    reader = LakeReader(table.io, table.schema(), ("id", "note"), changes=True)

    def shipped(after: int, upto: int, found: list[ScanFile]) -> list[tuple[Any, ...]]:
        shown = read(reader, after, upto, *found)
        return [tuple(row.values()) for row in shown.to_pylist()]

    def by_spark(after: int, upto: int) -> list[tuple[Any, ...]]:
        return ask(
            f"select id, note, if(coalesce({names.DELETED}, false), 'delete', 'upsert') from {name} "
            f"where _ingest_seq > {after} and _ingest_seq <= {upto} order by _ingest_seq"
        )

    for after, upto in ((0, 3001), (990, 1020), (2999, 3000)):
        assert shipped(after, upto, found) == by_spark(after, upto) != []
    with open_data_files(table) as looked:
        assert find_end(looked, found, 0, 3001, budget=LARGE, rows=9) == 11

    before = shipped(0, 3001, found)
    ask(
        f"call {place.name}.system.rewrite_data_files(table => 'db.t', strategy => 'sort', "
        "sort_order => '_ingest_seq', options => map('rewrite-all', 'true'))"
    )
    table = catalog.load_table("db.t")
    compacted = find_files(table, snapshot(table), 0, 3001)
    assert {piece.path for piece in compacted}.isdisjoint(piece.path for piece in found)
    assert shipped(0, 3001, compacted) == before

"""How rows are spread over files: a target size, folders by date, and bounded memory and open files on the way."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.contents import columns_of
from tests.sinks.files.folder import data_files, deliver, open_sink

from penstock.core.content import Content
from penstock.core.slices import Kind, Part
from penstock.errors import StreamRefused
from penstock.ports import StreamInfo
from penstock.sinks.files import FilesSink
from penstock.sinks.files import writer as writer_module
from penstock.sinks.files.options import Options
from penstock.sinks.files.partitions import make_folder_splitter
from penstock.testing.contracts.delivery import after

KIB = 1024
NULL = "__HIVE_DEFAULT_PARTITION__"


def noise(rows: int) -> pa.Table:
    """Rows that do not compress, 64 bytes each, in batches of 100."""
    hexes = random.Random(1).randbytes(rows * 32).hex()
    table = pa.table({"id": list(range(rows)), "text": [hexes[i * 64 : (i + 1) * 64] for i in range(rows)]})
    return pa.Table.from_batches(table.to_batches(max_chunksize=100))


# ---------------------------------------------------------------- the target size


@pytest.mark.parametrize("format_", ["parquet", "csv", "ndjson"])
def test_another_file_begins_once_one_is_large_enough(tmp_path: Path, format_: str) -> None:
    table = noise(10_000)
    deliver(open_sink(tmp_path, format=format_, target_file_size=64 * KIB), table)
    sizes = [path.stat().st_size for path in data_files(tmp_path)]
    assert len(sizes) > 3
    assert min(sizes[:-1]) >= 64 * KIB
    assert max(sizes) < 3 * 64 * KIB
    found = ds.dataset(tmp_path / "out" / "orders", format="json" if format_ == "ndjson" else format_)
    assert sorted(found.to_table().column("id").to_pylist()) == list(range(10_000))


def test_a_large_target_makes_one_file(tmp_path: Path) -> None:
    deliver(open_sink(tmp_path), noise(10_000))
    assert len(data_files(tmp_path)) == 1


def test_a_target_too_small_to_be_meant_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 65536"):
        Options(directory="out", target_file_size=1000)


# ---------------------------------------------------------------- folders by date

MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1900, 2, 28, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1900, 3, 1, tzinfo=UTC),
    datetime(1968, 2, 29, 12, tzinfo=UTC),
    datetime(2024, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]
LENGTHS = {"day": 10, "month": 7, "year": 4}


@pytest.mark.parametrize("by", ["day", "month", "year"])
@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("s"), pa.date32()])
def test_rows_lie_in_the_folder_of_their_date(tmp_path: Path, by: str, kind: pa.DataType) -> None:
    zoned = pa.types.is_timestamp(kind) and kind.tz
    values: list[Any] = [
        (
            m.date()
            if kind == pa.date32()
            else m
            if zoned
            else m.replace(tzinfo=None, microsecond=0)
            if kind == pa.timestamp("s")
            else m.replace(tzinfo=None)
        )
        for m in MOMENTS
    ]
    table = pa.table({"id": list(range(9)), "at": pa.array([*values, None], kind)})
    deliver(open_sink(tmp_path, streams={"orders": {"partition_by": [f"{by}(at)"]}}), table)
    found: dict[int, str] = {}
    for path in data_files(tmp_path):
        assert path.parent.parent.name == "orders"
        ids = ds.dataset(path).to_table().column("id").to_pylist()
        found |= dict.fromkeys(ids, path.parent.name)
    wanted = {i: f"at_{by}={m.date().isoformat()[: LENGTHS[by]]}" for i, m in enumerate(MOMENTS)}
    assert found == wanted | {8: f"at_{by}={NULL}"}


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.none() | st.dates(date(1, 1, 1), date(9999, 12, 31)), min_size=1, max_size=40),
    st.sampled_from(["day", "month", "year"]),
)
def test_every_row_goes_to_one_folder_in_its_order(days: list[date | None], by: Any) -> None:
    batch = pa.record_batch({"n": list(range(len(days))), "d": pa.array(days, pa.date32())})
    split = make_folder_splitter(batch.schema, [f"{by}(d)"])
    seen: list[int] = []
    folders = []
    for folder, piece in split(batch):
        folders.append(folder)
        numbers = piece.column("n").to_pylist()
        assert numbers == sorted(numbers)
        seen += numbers
        for n in numbers:
            day = days[n]
            assert folder == f"d_{by}=" + (day.isoformat()[: LENGTHS[by]] if day else NULL)
    assert sorted(seen) == list(range(len(days)))
    assert len(folders) == len(set(folders))


def test_the_partition_column_stays_in_the_file(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "at": pa.array([date(2024, 5, 1)])})
    deliver(open_sink(tmp_path, streams={"orders": {"partition_by": ["month(at)"]}}), table)
    whole = ds.dataset(tmp_path / "out" / "orders", partitioning="hive").to_table()
    assert whole.to_pylist() == [{"id": 1, "at": date(2024, 5, 1), "at_month": "2024-05"}]


@pytest.mark.parametrize("column", ["../../up", "_hidden", ".dot", "a/b", "größe", "x=y", "a b"])
def test_a_column_of_any_name_stays_in_the_folder(tmp_path: Path, column: str) -> None:
    table = pa.table({"id": [1, 2], column: pa.array([date(2024, 5, 1), date(2023, 1, 1)])})
    deliver(open_sink(tmp_path, streams={"orders": {"partition_by": [f"year({column})"]}}), table)
    assert sorted(os.listdir(tmp_path)) == ["out"]
    assert {path.parent.parent for path in data_files(tmp_path)} == {tmp_path / "out" / "orders"}
    seen = ds.dataset(tmp_path / "out" / "orders").to_table()
    assert sorted(seen.column("id").to_pylist()) == [1, 2]


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (pa.table({"at": ["2024-05-01"]}), "string"),
        (pa.table({"at": [5]}), "long"),
    ],
)
def test_a_column_without_a_date_is_refused(tmp_path: Path, table: pa.Table, kind: str) -> None:
    sink = open_sink(tmp_path, streams={"orders": {"partition_by": ["day(at)"]}})
    with pytest.raises(StreamRefused) as refused:
        deliver(sink, table)
    assert str(refused.value) == (
        f"partition 'day(at)': column 'at' is {kind}, which day cannot take\n"
        "Nothing was lost: the mark has not moved.\n"
        "Next: write for instance: day(created_at), bucket(16, id), truncate(4, code), or a column's name"
    )
    assert data_files(tmp_path) == []


def test_the_lakes_language_of_partitions(tmp_path: Path) -> None:
    """Each partition is a level of folders; what the lake refuses is refused here too, before a slice is planned."""
    at = pa.array([datetime(2024, 5, 1, 10, 30, tzinfo=UTC), datetime(2024, 5, 1, 11, tzinfo=UTC), None])
    table = pa.table({"id": [1, 2, 3], "code": ["ab/c", "abd", None], "at": at})

    def opened(*partitions: str) -> FilesSink:
        return open_sink(tmp_path, streams={"orders": {"partition_by": partitions}})

    deliver(opened("hour(at)", "truncate(3, code)", "bucket(2, id)", "id"), table)
    folders = [os.fspath(path.parent.relative_to(tmp_path / "out" / "orders")) for path in data_files(tmp_path)]
    assert [re.sub(r"id_bucket=[01]", "id_bucket=x", folder) for folder in sorted(folders)] == [
        "at_hour=2024-05-01-10/code_trunc=ab%2F/id_bucket=x/id=1",
        "at_hour=2024-05-01-11/code_trunc=abd/id_bucket=x/id=2",
        f"at_hour={NULL}/code_trunc={NULL}/id_bucket=x/id=3",
    ]
    content = Content(columns_of(table.schema))
    for partition, why in (("day(code)", "is string, which day cannot take"), ("week(at)", "no transform 'week'")):
        with pytest.raises(StreamRefused, match=why):
            opened(partition).check(StreamInfo("orders", Kind.ROWS), content)
    opened("day(at)", "id").check(StreamInfo("orders", Kind.ROWS), content)


# ---------------------------------------------------------------- on the way


def days(rows: int, first: date = date(2000, 1, 1)) -> pa.Table:
    at = [first + timedelta(days=number % 1000) for number in range(rows)]
    return pa.table({"id": list(range(rows)), "at": at})


def test_many_folders_keep_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MAX_WAITING_BYTES", 4 * KIB)
    begin = writer_module._StagedFiles._open
    most = 0

    def counting(self: Any, *of_a_file: Any) -> Any:
        nonlocal most
        most = max(most, len(self.open) + 1)
        return begin(self, *of_a_file)

    monkeypatch.setattr(writer_module._StagedFiles, "_open", counting)
    sink = open_sink(tmp_path, format="csv", streams={"orders": {"partition_by": ["month(at)"]}})
    table = pa.Table.from_batches(days(3000).to_batches(max_chunksize=50))
    deliver(sink, table)
    assert most == writer_module.MAX_OPEN_FILES
    found = ds.dataset(tmp_path / "out" / "orders", format="csv").to_table()
    assert sorted(found.column("id").to_pylist()) == list(range(3000))
    assert len({path.parent for path in data_files(tmp_path)}) == 33


def test_a_few_rows_that_wait_do_not_keep_whole_batches_in_memory(tmp_path: Path) -> None:
    """Every batch has one row of another day, which waits to the end; the rest is written as it comes."""
    rows = 20_000
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("at", pa.date32())])
    before, most = pa.total_allocated_bytes(), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for number in range(40):
            most = max(most, pa.total_allocated_bytes() - before)
            at = [date(2024, 1, 1) + timedelta(days=number), *[date(2023, 1, 1)] * (rows - 1)]
            yield pa.record_batch([list(range(rows)), [f"{number:060d}"] * rows, at], schema=schema)

    options = ["day(at)"]
    sink = open_sink(tmp_path, streams={"orders": {"partition_by": options}}, target_file_size=256 * KIB)
    slice_ = after(None)
    receipt = sink.writer(slice_, "a1").write(pa.RecordBatchReader.from_batches(schema, batches()), Part(0, "{}"))
    assert receipt.rows == 40 * rows
    assert most < receipt.bytes / 4

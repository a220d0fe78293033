"""Which files are compacted together, from their sizes and numbers alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from penstock.lake.upkeep.compaction import CompactionPolicy
from penstock.lake.upkeep.inventory import DataFileEntry, FileInventory

RULES = CompactionPolicy(target=100, least=5, sorted_otherwise=False, keyed=False)


def entry(low: int, high: int, size: int, *, partition: int = 0, dead: float = 0.0) -> DataFileEntry:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"f{low}-{high}-{partition}",
        file_format=FileFormat.PARQUET,
        partition=Record(partition),
        record_count=10,
        file_size_in_bytes=size,
    )
    file.spec_id = 0
    return DataFileEntry(file, low, high, int(dead > 0), dead)


def windows(policy: CompactionPolicy, *entries: DataFileEntry) -> list[tuple[int, int]]:
    return [(window.after, window.upto) for window in policy.windows(FileInventory(entries, 0))]


def small(count: int, start: int = 0) -> list[DataFileEntry]:
    return [entry(start + 10 * i + 1, start + 10 * i + 10, 10) for i in range(count)]


def test_too_few_are_left() -> None:
    assert windows(RULES, *small(4)) == []
    assert windows(RULES, *small(5)) == [(0, 50)]


def test_a_large_file_ends_a_window() -> None:
    assert windows(RULES, *small(5), entry(51, 60, 80), *small(5, 60)) == [(0, 50), (60, 110)]


def test_a_large_file_with_deletes_is_written_again() -> None:
    assert windows(RULES, entry(1, 10, 80, dead=0.9)) == []
    assert windows(RULES, entry(1, 10, 80, dead=1)) == [(0, 10)]


def test_partitions_count_each_for_itself() -> None:
    pairs = [entry(10 * i + 1, 10 * i + 10, 10, partition=p) for i in range(2) for p in range(4)]
    assert windows(replace(RULES, least=6), *pairs) == []
    assert windows(RULES, *pairs) == [(0, 20)]


def test_a_window_is_not_endless() -> None:
    many = [entry(i, i, 50) for i in range(1, 41)]
    assert windows(RULES, *many) == [(0, 16), (16, 32), (32, 40)]
    assert windows(replace(RULES, keyed=True, least=2), *many)[:2] == [(0, 2), (2, 4)]


def test_overlapping_files_are_mixed_unless_sorted_otherwise() -> None:
    mixed = [entry(1, 10, 80), entry(5, 15, 80)]
    assert windows(RULES, *mixed) == [(0, 15)]
    assert windows(replace(RULES, sorted_otherwise=True), *mixed) == []
    assert windows(RULES, entry(1, 10, 80), entry(5, 15, 80, partition=1)) == []


def test_files_without_known_numbers_are_in_no_window() -> None:
    unknown = replace(small(1)[0], low=None)
    assert windows(RULES, unknown, *small(4, 100)) == []


def test_delete_files() -> None:
    concerned = [replace(each, deletes=2) for each in small(3)]
    assert RULES.deletes_wanted(FileInventory(concerned, 7))
    assert not RULES.deletes_wanted(FileInventory(concerned, 6))


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 40), st.integers(1, 150), st.booleans()), max_size=30))
def test_windows_lie_apart_and_never_cut_a_file(drawn: list[tuple[int, int, int, bool]]) -> None:
    entries = [entry(low, low + more, size, partition=int(odd)) for low, more, size, odd in drawn]
    found = RULES.windows(FileInventory(entries, 0))
    ends = [(window.after, window.upto) for window in found]
    assert all(one[1] <= two[0] for one, two in zip(ends, ends[1:], strict=False))
    for window in found:
        inside = [each for each in entries if each.bounds[1] > window.after and each.bounds[0] <= window.upto]
        assert sorted(map(id, cast(list[Any], inside))) == sorted(map(id, window.entries))

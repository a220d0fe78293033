"""Rows that others put into a table: adopted, numbered, read once; or a stop that says why."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform
from tests.sources.lake.lakes import LakeWorld, Reader, orders

from penstock.errors import StreamStopped
from penstock.lake import foreign


def expire(lake: LakeWorld, keep: int = 1) -> None:
    """All but the newest snapshots, as others do it."""
    table = lake.table()
    old = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)[:-keep]
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in old]).commit()


@pytest.fixture
def legacy(tmp_path: Path) -> LakeWorld:
    """A table of others with three files."""
    lake = LakeWorld(tmp_path)
    lake.make(orders(1, 1))
    for first in (1, 11, 21):
        lake.append(orders(first, first + 9))
    return lake


@pytest.fixture
def ours(tmp_path: Path) -> LakeWorld:
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 10))
    return lake


def dry(reader: Reader) -> bool:
    return reader.run() == []


def test_a_table_of_others_is_read_once(legacy: LakeWorld) -> None:
    reader = legacy.reader(adopt=True)
    assert sorted(reader.ids()) == list(range(1, 31))
    assert dry(reader)
    assert legacy.numbers() == list(range(1, 31))
    assert reader.said == [
        "adopted shop.orders: added the column _ingest_seq",
        "numbered 30 rows that other programs wrote to shop.orders",
        "registered as a reader of orders at number 0",
    ]
    assert legacy.reader("second", adopt=True).ids() == reader.lake.reader("third").ids()


def test_a_table_whose_history_was_expired_can_be_adopted(legacy: LakeWorld) -> None:
    """Most tables that have lived for a while: what brought their rows cannot be seen any more."""
    expire(legacy)
    reader = legacy.reader(adopt=True)
    assert sorted(reader.ids()) == list(range(1, 31))
    assert dry(reader)


def test_a_table_with_copied_numbers_can_be_adopted(tmp_path: Path) -> None:
    """Made as a copy of one of ours: its numbers are another table's."""
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 10), table="origin")
    copied = lake.table("origin").scan().to_arrow()
    lake.make(copied)
    lake.append(copied)
    reader = lake.reader(adopt=True)
    assert sorted(reader.ids()) == list(range(1, 11))
    lake.append(orders(11, 12))
    assert sorted(reader.ids()) == [11, 12]
    assert lake.numbers() == list(range(1, 13))


@pytest.mark.parametrize("number", [0, -7])
def test_a_table_with_numbers_that_are_never_handed_out_can_be_adopted(number: int, tmp_path: Path) -> None:
    """Of all rows, or of some beside rows with numbers of their own."""
    lake = LakeWorld(tmp_path)
    low = orders(1, 5, _ingest_seq=pa.array([number] * 5, pa.int64()))
    lake.make(low)
    lake.append(low)
    lake.append(orders(6, 8, _ingest_seq=pa.array([1, 2, number], pa.int64())))
    reader = lake.reader(adopt=True)
    assert sorted(reader.ids()) == list(range(1, 9))
    assert lake.numbers() == list(range(1, 9))
    assert dry(reader)


def test_rows_that_arrive_without_a_number(ours: LakeWorld) -> None:
    """Into a table that was adopted; in one that penstock made the column is required."""
    lake = LakeWorld(ours.folder)
    lake.make(orders(1, 1), "items")
    reader = lake.reader(stream="items", adopt=True)
    lake.append(orders(1, 3), "items")
    assert sorted(reader.ids()) == [1, 2, 3]
    lake.append(orders(4, 6), "items")
    assert sorted(reader.ids()) == [4, 5, 6]
    assert dry(reader)


def test_the_later_of_two_appends_gets_the_higher_numbers(tmp_path: Path) -> None:
    """Two versions of a row must not change places."""
    lake = LakeWorld(tmp_path)
    lake.make(orders(1, 1))
    reader = lake.reader(adopt=True)
    for n in range(1, 9):
        lake.append(orders(n, n))
    assert reader.ids() == list(range(1, 9))
    for n in range(9, 17):
        lake.append(orders(n, n))
    assert reader.ids() == list(range(9, 17))


def test_rows_with_copied_numbers_are_numbered_anew(ours: LakeWorld) -> None:
    reader = ours.reader()
    assert reader.ids() == list(range(1, 11))
    copied = ours.table().scan().to_arrow()
    ours.append(copied)
    assert reader.ids() == list(range(1, 11)), "rows of their own, exported once"
    assert dry(reader)
    assert ours.numbers() == list(range(1, 21))


def test_an_append_of_others_just_before_a_slice_is_opened(ours: LakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows must not be met under numbers that they copied."""
    reader = ours.reader()
    slice_ = reader.intend()
    assert slice_
    copied = ours.table().scan().to_arrow()
    stamp, times = foreign.stamp, list[int]()

    def beaten(*given: object) -> list[str]:
        done = stamp(*given)  # type: ignore[arg-type]
        if not times:
            times.append(1)
            ours.append(copied)
        return done

    monkeypatch.setattr(foreign, "stamp", beaten)
    assert reader.read(slice_).column("id").to_pylist() == list(range(1, 11))
    assert times
    reader.last = slice_.position
    assert sorted(reader.ids()) == list(range(1, 11))


def test_rows_that_others_changed_or_deleted_are_reported(ours: LakeWorld) -> None:
    reader = ours.reader()
    reader.run()
    with warnings.catch_warnings(action="ignore"):
        ours.table().delete("id = 3")
    assert reader.run() == []
    (line,) = [line for line in reader.said if "penstock did not make" in line]
    assert "changed or deleted rows (overwrite): it removed 10 and wrote 9 of them again" in line
    assert "readers do not get these changes" in line
    reader.said.clear()
    reader.run()
    assert reader.said == [], "said once"


@pytest.mark.parametrize("keep", [1, 2])
def test_appends_that_were_expired_before_anyone_saw_them_stop_the_reader(ours: LakeWorld, keep: int) -> None:
    """PyIceberg even takes the name of the parent away: it looks like the table's first snapshot."""
    reader = ours.reader()
    reader.run()
    copied = ours.table().scan().to_arrow()
    for _ in range(keep + 1):
        ours.append(copied)
    expire(ours, keep=keep)
    with pytest.raises(StreamStopped) as caught:
        reader.run()
    assert "expired before penstock could see which rows they brought" in caught.value.what


def test_a_single_append_is_seen_whatever_was_expired_before_it(ours: LakeWorld) -> None:
    reader = ours.reader()
    reader.run()
    ours.append(ours.table().scan().to_arrow())
    expire(ours)
    assert sorted(reader.ids()) == list(range(1, 11))


def test_a_lake_into_a_table_of_others(legacy: LakeWorld) -> None:
    """The sink adopts; legacy rows are numbered by the first reader, after rows that landed meanwhile."""
    expire(legacy)
    legacy.land(orders(31, 33), into_existing=True)
    reader = legacy.reader()
    assert sorted(reader.ids()) == list(range(1, 34))
    assert dry(reader)
    numbers = legacy.numbers()
    assert len(set(numbers)) == len(numbers) == 33
    assert None not in numbers


def test_partitioned_tables_keep_their_partitions(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    rows = orders(1, 20, colour=["red", "blue"] * 10)
    lake.make(rows)
    with lake.table().update_spec() as update:
        update.add_identity("colour")
        update.add_field("id", BucketTransform(2), "bucket")
    lake.append(rows)
    before = {str(task.file.partition) for task in lake.table().scan().plan_files()}
    reader = lake.reader(adopt=True)
    assert sorted(reader.ids()) == list(range(1, 21))
    assert {str(task.file.partition) for task in lake.table().scan().plan_files()} == before
    assert lake.table().scan("colour = 'red'").to_arrow().num_rows == 10


def test_an_adoption_says_that_it_rewrites_the_table_and_how_far_it_is(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.make(orders(1, 1))
    for id_ in range(1, 13):
        lake.append(orders(id_, id_))
    reader = lake.reader(adopt=True)
    [remark] = [
        r.text for r in reader.source().explain("orders", reader.source().content("orders")) if r.kind == "advice"
    ]
    assert remark == "the first run adds the column _ingest_seq and rewrites 12 files with 12 rows once"
    assert sorted(reader.ids()) == list(range(1, 13))
    assert lake.said[0] == "orders: adopts shop.orders: 12 files with 12 rows are rewritten once, with numbers"
    done = "orders: shop.orders: rewrote {} of 12 files, to number the rows of other programs"
    assert lake.said[1:] == [done.format(n) for n in (2, 4, 6, 8, 10, 12)]


def test_a_sink_says_that_it_adopts_a_table(tmp_path: Path) -> None:
    lake = LakeWorld(tmp_path)
    lake.make(orders(1, 1))
    lake.append(orders(1, 3))
    lake.land(orders(4, 5), into_existing=True)
    assert lake.said == [
        "orders: adopted shop.orders: added the column _ingest_seq; its files are rewritten, with numbers for its "
        "rows, when it is first read"
    ]

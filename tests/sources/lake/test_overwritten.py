"""Rows that others wrote by an overwrite before anyone looked: each is read once, whatever number it came with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.lake.compaction import compact
from tests.sources.lake.lakes import LakeWorld, orders

from penstock.errors import StreamStopped


@pytest.fixture
def lake(tmp_path: Path) -> LakeWorld:
    """A table of ours with the ids and numbers 1 to 10."""
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 10))
    return lake


def numbered(first: int, last: int, numbers: int | Sequence[int]) -> pa.Table:
    """Orders as another writer writes them into a table that has the column."""
    given = [numbers] * (last - first + 1) if isinstance(numbers, int) else list(numbers)
    return orders(first, last, _ingest_seq=pa.array(given, pa.int64()))


def with_rows(rows: pa.Table, more: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, more.select(rows.column_names).cast(rows.schema)])


def with_note(rows: pa.Table, first: int, last: int) -> pa.Table:
    """An UPDATE: another note for these ids, the rest as it was."""
    chosen = pc.and_(pc.greater_equal(rows["id"], first), pc.less_equal(rows["id"], last))
    notes = pc.if_else(chosen, pa.scalar("changed"), rows["note"])
    return rows.set_column(rows.column_names.index("note"), "note", notes)


@pytest.mark.parametrize("number", [0, -7])
def test_rows_that_were_updated_before_a_look(lake: LakeWorld, number: int) -> None:
    """Appended with a number that is never handed out, then copied by the update: they count as not stamped."""
    reader = lake.reader()
    reader.run()
    lake.append(numbered(11, 60, number))
    lake.overwrite(lambda rows: with_note(rows, 21, 30))
    assert sorted(reader.ids()) == list(range(11, 61))
    assert reader.run() == []
    assert sorted(lake.reader("fresh").ids()) == list(range(1, 61))


@pytest.mark.parametrize("number", [0, -1])
def test_rows_that_a_merge_inserted(lake: LakeWorld, number: int) -> None:
    reader = lake.reader()
    reader.run()
    lake.overwrite(lambda rows: with_rows(with_note(rows, 1, 5), numbered(11, 30, number)))
    assert sorted(reader.ids()) == list(range(11, 31))
    (line,) = [line for line in reader.said if "penstock did not make" in line]
    assert "it removed 10 and wrote 10 of them again under their own numbers" in line
    assert sorted(lake.reader("fresh").ids()) == list(range(1, 31))


def test_rows_that_an_insert_overwrite_brought(lake: LakeWorld) -> None:
    reader = lake.reader()
    reader.run()
    lake.overwrite(lambda _: numbered(11, 35, 0))
    assert sorted(reader.ids()) == list(range(11, 36))
    (line,) = [line for line in reader.said if "penstock did not make" in line]
    assert "it removed 10 and wrote 0 of them again" in line


def test_low_numbers_that_the_overwrite_did_not_remove(tmp_path: Path) -> None:
    """Not handed out to these rows: by other rows they may be in use, and a reader may have passed them."""
    lake = LakeWorld(tmp_path)
    lake.land(orders(1, 10))
    lake.land(orders(11, 20))
    lake.delete("id <= 5")
    reader = lake.reader()
    reader.run()
    # 3 was removed before; 11 is removed once and written twice.
    lake.overwrite(lambda rows: with_rows(rows, numbered(21, 22, [3, 11])))
    assert sorted(reader.ids()) == [21, 22]
    numbers = lake.numbers()
    assert len(set(numbers)) == len(numbers) == 17


def test_a_number_above_the_head_that_the_head_has_passed_since(lake: LakeWorld) -> None:
    reader = lake.reader()
    reader.run()
    lake.overwrite(lambda rows: with_rows(rows, numbered(11, 12, [15, 16])))
    lake.land(orders(20, 29))
    assert sorted(reader.ids()) == [11, 12, *range(20, 30)]
    numbers = lake.numbers()
    assert len(set(numbers)) == len(numbers) == 22


def test_copied_numbers_that_were_overwritten_before_a_look(lake: LakeWorld) -> None:
    """Removed by the overwrite, but not this table's own: nothing is lost, and nothing stops."""
    reader = lake.reader()
    reader.run()
    lake.append(numbered(11, 20, range(1, 11)))
    lake.overwrite(lambda rows: with_note(rows, 11, 13))
    assert sorted(reader.ids()) == list(range(11, 21))
    assert reader.run() == []
    numbers = lake.numbers()
    assert len(set(numbers)) == len(numbers) == 20


def test_rows_that_were_deleted_before_a_look(lake: LakeWorld) -> None:
    """Their file is gone, and so is the doubt."""
    reader = lake.reader()
    reader.run()
    lake.append(numbered(11, 20, range(1, 11)))
    lake.delete("id > 10")
    assert reader.run() == []
    assert lake.numbers() == list(range(1, 11))


def test_compacted_before_a_look_without_numbers_of_their_own(lake: LakeWorld) -> None:
    reader = lake.reader()
    reader.run()
    lake.append(numbered(11, 20, 0))
    compact(lake.table())
    assert sorted(reader.ids()) == list(range(11, 21))
    assert reader.run() == []


def test_compacted_before_a_look_with_numbers_that_no_other_row_has(lake: LakeWorld) -> None:
    reader = lake.reader()
    reader.run()
    lake.append(numbered(11, 20, range(901, 911)))
    compact(lake.table())
    lake.land(orders(21, 25))
    assert sorted(reader.ids()) == list(range(11, 26))
    assert reader.run() == []


def test_compacted_before_a_look_with_numbers_that_other_rows_have(lake: LakeWorld) -> None:
    """Their content tells which of two rows with one number was there before."""
    reader = lake.reader()
    reader.run()
    lake.append(numbered(11, 20, range(3, 13)))
    compact(lake.table())
    assert sorted(reader.ids()) == list(range(11, 21))
    assert reader.run() == []
    numbers = lake.numbers()
    assert len(set(numbers)) == len(numbers) == 20


def test_a_changed_row_beside_a_new_one_with_its_number(lake: LakeWorld) -> None:
    """Nobody can tell which of them is the old one: both are read, rather than one of them lost."""
    reader = lake.reader()
    reader.run()
    lake.overwrite(lambda rows: with_rows(with_note(rows, 4, 4), numbered(11, 11, 4)))
    assert sorted(reader.ids()) == [4, 11]
    assert reader.run() == []


def test_files_that_tell_what_was_removed_are_gone(lake: LakeWorld) -> None:
    reader = lake.reader()
    reader.run()
    (old,) = [task.file.file_path for task in lake.table().scan().plan_files()]
    lake.overwrite(lambda rows: with_note(rows, 1, 5))
    Path(old.removeprefix("file://")).unlink()
    with pytest.raises(StreamStopped, match="what they replaced can no longer be read"):
        reader.run()

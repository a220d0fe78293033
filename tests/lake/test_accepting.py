"""Others wrote, compacted and expired before anyone looked: everybody stops, and one command leads out for all."""

from __future__ import annotations

import json
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from tests.harness.doubles import LoopMover
from tests.lake.compaction import compact
from tests.lake.upkeep.upkeep_tables import Changes, UpkeepTable

from penstock.core.messages import Log, StreamStatus
from penstock.core.slices import Kind
from penstock.errors import StreamStopped
from penstock.lake import names
from penstock.lake.foreign import accept
from penstock.lake.landing import list_current_files
from penstock.lake.readers import register
from penstock.lake.upkeep.run import run_upkeep
from penstock.ports import NoProbe, StreamInfo, explain_sink


def write(lake: UpkeepTable, *keys: int, numbers: int | None = None) -> None:
    """Rows of another program; with numbers that it copied from this table's rows, unless one is given."""
    table = lake.table
    rows = table.scan().to_arrow().sort_by(names.SEQ).slice(0, len(keys))
    rows = rows.set_column(rows.column_names.index("key"), "key", pa.array(keys, pa.int64()))
    if numbers is not None:
        given = pa.array([numbers] * len(keys), pa.int64())
        rows = rows.set_column(rows.column_names.index(names.SEQ), names.SEQ, given)
    with warnings.catch_warnings(action="ignore"):
        table.append(rows.cast(table.schema().as_arrow()))


def overwrite(lake: UpkeepTable, rows: pa.Table) -> None:
    """One snapshot of another program that removes every file and writes these rows."""
    table = lake.table
    with warnings.catch_warnings(action="ignore"):
        transaction = table.transaction()
        producer = transaction.update_snapshot().overwrite()
        for file in list_current_files(table):
            producer.delete_data_file(file)
        for file in _dataframe_to_data_files(table.metadata, rows.cast(table.schema().as_arrow()), table.io):
            producer.append_data_file(file)
        producer.commit()
        transaction.commit_transaction()


def forget(lake: UpkeepTable) -> None:
    """Expire every snapshot but the last, as others do."""
    table = lake.table
    last = table.metadata.current_snapshot_id
    gone = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != last]
    table.maintenance.expire_snapshots().by_ids(gone).commit()


@pytest.fixture
def stuck(tmp_path: Path) -> UpkeepTable:
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(*range(1, 7))
    assert lake.read("old").exit_code == 0
    write(lake, 101, 102, 103, 104)
    compact(lake.table)
    forget(lake)
    return lake


def stopped(lake: UpkeepTable, why: str) -> str:
    """The next step of a run that has stopped."""
    (said,) = [m for m in lake.said if isinstance(m, StreamStatus) and m.reason]
    assert why in str(said.reason)
    return str(said.next_step)


def accepted(lake: UpkeepTable, **options: Any) -> list[str]:
    return accept(lake.lake, "s", LoopMover, NoProbe(), **options)


def test_everybody_stops_and_the_command_that_is_named_leads_out(stuck: UpkeepTable) -> None:
    why = "expired before penstock could see which rows they brought"
    first = min(row[3] for row in stuck.rows_in())
    assert stuck.read("old").exit_code == 1
    assert "penstock upkeep FILE --table s --accept-foreign" in stopped(stuck, why)
    assert stuck.read("new").exit_code == 1
    stopped(stuck, why)
    assert stuck.lead("old", lambda engine: engine.rewind(["s"], str(first))).exit_code == 1
    stopped(stuck, why)
    assert stuck.lead("old", lambda engine: engine.reset(["s"])).exit_code == 0
    assert stuck.read("old").exit_code == 1
    with pytest.raises(StreamStopped, match=why):
        list(run_upkeep(stuck.work(), ["expiry"]))

    before = stuck.state.metadata
    foretold = accepted(stuck, dry_run=True)
    assert stuck.state.metadata == before
    done = accepted(stuck)
    assert done == foretold
    assert "10 rows in 1 files of shop.s" in done[0]
    assert any("old/s has read up to" in line for line in done)

    assert stuck.read("old").exit_code == 0, "it was reset: everything once more"
    assert stuck.read("new").exit_code == 0
    assert sorted(row["key"] for row in stuck.seen("new")) == [*range(1, 7), *range(101, 105)]
    assert sorted(row["key"] for row in stuck.seen("old")) == sorted([*range(1, 7), *range(1, 7), *range(101, 105)])
    assert stuck.lead("new", lambda engine: engine.rewind(["s"], str(first - 1))).exit_code == 0
    assert stuck.read("new").exit_code == 0
    assert len(stuck.seen("new")) == 20
    soon = datetime.now(UTC) + timedelta(days=30)
    assert [each.error for each in run_upkeep(stuck.work(now=soon), ["expiry", "orphans"])] == [None, None]
    (remembered,) = json.loads(stuck.state.properties[names.ACCEPTED])
    assert (remembered["files"], remembered["rows"]) == (1, 10)
    stuck.land(7)
    assert stuck.read("new").exit_code == 0
    assert stuck.seen("new")[-1]["key"] == 7


def test_rows_without_a_number_are_read_all_the_same(tmp_path: Path) -> None:
    """What can be seen is not in doubt: a number that is never handed out, a snapshot that is still there."""
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(*range(1, 7))
    lake.read("old")
    write(lake, 101, 102, numbers=0)
    compact(lake.table)
    forget(lake)
    write(lake, 103, 104)
    assert lake.read("old").exit_code == 1
    accepted(lake)
    assert lake.read("old").exit_code == 0
    assert sorted(row["key"] for row in lake.seen("old")) == [*range(1, 7), *range(101, 105)]
    numbers = [row[3] for row in lake.rows_in()]
    assert len(set(numbers)) == len(numbers) == 10


def test_rows_that_a_visible_overwrite_wrote_again_are_in_doubt_too(tmp_path: Path) -> None:
    """What it removed may have come by a snapshot that is gone: that it kept a number says nothing."""
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(*range(1, 7))
    lake.read("old")
    write(lake, 101, 102, 103, 104)
    overwrite(lake, lake.table.scan().to_arrow())
    forget(lake)
    assert lake.read("old").exit_code == 1
    done = accepted(lake)
    assert any("10 rows in 1 files of shop.s" in line for line in done)
    assert any("old/s has read up to" in line for line in done)


def test_a_table_in_order_has_nothing_to_accept(tmp_path: Path) -> None:
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(1, 2)
    before = lake.state.metadata
    assert accepted(lake) == ["nothing to accept: every row of shop.s has its place in the order"]
    assert lake.state.metadata == before


def warnings_of(lake: UpkeepTable) -> list[str]:
    return [m.text for m in lake.said if isinstance(m, Log) and m.level == "warning"]


def checked(lake: UpkeepTable) -> list[str]:
    """What `check` says of the sink that is not so good."""
    content = Changes(lake.rows, 2).content("s")
    return [each.text for each in explain_sink(lake.sink(), StreamInfo("s", Kind.ROWS), content) if each.kind == "gap"]


def test_writers_learn_that_no_reader_can_go_on(stuck: UpkeepTable) -> None:
    assert stuck.land(7).exit_code == 0
    (line,) = warnings_of(stuck)
    assert line.startswith("every reader of shop.s stops (old/s): snapshots of other programs were expired")
    assert line in checked(stuck)
    stuck.read("old")
    accepted(stuck)
    stuck.land(8)
    assert warnings_of(stuck) == []
    assert line not in checked(stuck)


def test_writers_are_not_warned_once_the_table_was_put_back(tmp_path: Path) -> None:
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(1, 2)
    lake.read("old")
    lake.table.transaction().set_properties({names.STOPPED: "something was gone"}).commit_transaction()
    lake.land(3)
    assert warnings_of(lake) == []


def test_writers_learn_that_a_reader_has_lost_rows(tmp_path: Path) -> None:
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(*range(1, 7))
    register(lake.lake, "s", "slow", "s", 0)
    soon = datetime.now(UTC) + timedelta(minutes=1)
    list(run_upkeep(lake.work(now=soon, force=True, retention={"age": "0s"}), ["retention"]))
    lake.land(7)
    (line,) = warnings_of(lake)
    assert line.startswith("slow/s, a reader of shop.s, stops: 6 rows or deletes were removed")


def test_rows_that_were_changed_in_files_that_are_gone(tmp_path: Path) -> None:
    """The snapshots are there, but not the files that tell what an overwrite removed."""
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(*range(1, 5))
    lake.read("old")
    table = lake.table
    old = [task.file.file_path for task in table.scan().plan_files()]
    rows = table.scan().to_arrow()
    changed = rows.set_column(rows.column_names.index("version"), "version", pc.add(rows["version"], 1))
    overwrite(lake, changed)
    for path in old:
        Path(path.removeprefix("file://")).unlink()
    assert lake.read("old").exit_code == 1
    assert "--accept-foreign" in stopped(lake, "what they replaced can no longer be read")
    assert "can no longer be read" in str(lake.state.stopped), "no metadata tells it: the reader said so"
    accepted(lake)
    assert lake.state.stopped is None
    assert lake.read("old").exit_code == 0
    assert len(lake.seen("old")) == 4
    assert lake.read("new").exit_code == 0
    assert [row["version"] for row in lake.seen("new")] == [1] * 4

"""Compaction on real Spark: the same rows in fewer files that lie apart in the order, beside landings and readers."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from tests.lake.upkeep.upkeep_tables import GONE, UpkeepTable

from penstock.errors import StreamFailed
from penstock.lake import landing, names, tables
from penstock.lake.landing import list_current_files
from penstock.lake.upkeep import compaction, job
from penstock.lake.upkeep.compaction import compact
from penstock.lake.upkeep.inventory import take_inventory
from penstock.lake.upkeep.run import run_upkeep
from penstock.ports import NoSpark
from penstock.sinks.lake import StreamOptions

# Spark's Python leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

Make = Callable[..., UpkeepTable]
MERGE = StreamOptions(mode="merge", key=("key",))


def overlaps(lake: UpkeepTable) -> int:
    """Pairs of neighbouring files that overlap in the order."""
    bounds = sorted(entry.bounds for entry in take_inventory(lake.table).entries)
    return sum(1 for one, two in zip(bounds, bounds[1:], strict=False) if two[0] <= one[1])


def test_fewer_files_apart_in_the_order_with_the_same_rows(kept: Make, spark: Any) -> None:
    lake = kept(spark=spark)
    lake.land(*range(20))
    rows, before = lake.rows_in(), dict(lake.state.properties)
    assert len(take_inventory(lake.table).entries) == 20

    (done,) = compact(lake.work())

    assert lake.rows_in() == rows
    assert done.facts["files_before"] == 20
    assert done.facts["files_after"] == len(take_inventory(lake.table).entries) == 1
    assert overlaps(lake) == 0
    main = lake.state.main
    assert main is not None
    assert (main.operation, main.kind, main.foreign) == ("replace", None, False)
    after = lake.state.properties
    assert {key: value for key, value in after.items() if key.startswith("penstock.")} == {
        key: value for key, value in before.items() if key.startswith("penstock.")
    }
    assert lake.state.orderly
    lake.land(50)
    assert len(lake.rows_in()) == 21


def test_large_files_are_left_alone_and_outputs_lie_apart(kept: Make, spark: Any, monkeypatch: Any) -> None:
    """Windows end at files that are as they should be, so one before them and one after do not become one."""
    lake = kept(spark=spark)
    lake.land(*range(8))
    lake.land(*range(100, 3000), most=2900)
    lake.land(*range(8))
    monkeypatch.setattr(compaction, "make_policy", _rules(compaction.make_policy, target=8 << 10))
    large = [entry.path for entry in take_inventory(lake.table).entries if entry.bytes > 6 << 10]
    rows = lake.rows_in()
    compact(lake.work())
    assert lake.rows_in() == rows
    assert overlaps(lake) == 0
    assert set(large) <= {entry.path for entry in take_inventory(lake.table).entries}
    assert len(take_inventory(lake.table).entries) < 16


def _rules(original: Any, **changed: Any) -> Any:
    from dataclasses import replace

    return lambda *args, **kwargs: replace(original(*args, **kwargs), **changed)


def test_nothing_to_do_starts_no_jvm(kept: Make) -> None:
    lake = kept(spark=NoSpark())
    lake.land(1, 2)
    (done,) = compact(lake.work())
    assert done.text.startswith("nothing to compact in 2 files")


def test_a_reader_in_the_middle_sees_every_row_once(kept: Make, spark: Any) -> None:
    lake = kept(spark=spark)
    lake.land(*range(9))
    assert lake.read("out", most=4).exit_code == 0
    assert len(lake.seen("out")) == 4
    soon = datetime.now(UTC) + timedelta(minutes=1)
    for done in run_upkeep(
        lake.work(now=soon, snapshots={"keep_for": "0s", "keep_at_least": 1}, orphans={"older_than": "0s"})
    ):
        assert done.error is None, done
    assert len(lake.state.snapshots) == 1
    lake.land(*range(9, 12))
    assert lake.read("out").exit_code == 0
    assert lake.read("late").exit_code == 0
    assert [row["key"] for row in lake.seen("out")] == list(range(12))
    assert [row["key"] for row in lake.seen("late")] == list(range(12))


def test_a_users_own_sort_holds_inside_windows(kept: Make, spark: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.lake.upkeep.compaction.WINDOW_TARGETS", 1)
    lake = kept(spark=spark, stream=StreamOptions(sort_by=("key desc",)))
    lake.land(*range(24))
    rows = lake.rows_in()
    size = take_inventory(lake.table).entries[0].bytes
    monkeypatch.setattr(compaction, "make_policy", _rules(compaction.make_policy, target=size * 8))
    compact(lake.work())
    assert lake.rows_in() == rows
    files = take_inventory(lake.table).entries
    assert len(files) == 3
    assert overlaps(lake) == 0
    import pyarrow.parquet as pq

    for entry in files:
        keys = pq.read_table(entry.path.replace("file:", ""))["key"].to_pylist()
        assert keys == sorted(keys, reverse=True)


def test_a_keyed_table_beside_landings(kept: Make, spark: Any, monkeypatch: Any) -> None:
    """Landings go on meanwhile; they wait for the turn, and none fails."""
    lake = kept(spark=spark, stream=MERGE)
    lake.land(*range(12))
    for _ in range(2):
        lake.land(*range(6), version=1)
    assert sum(entry.deletes for entry in take_inventory(lake.table).entries) > 0
    stop, codes = threading.Event(), []
    takes = []
    original = landing.take_turn

    def taken_turn(*args: Any, **kwargs: Any) -> None:
        takes.append(1)
        original(*args, **kwargs)

    monkeypatch.setattr(job, "take_turn", taken_turn)

    def write() -> None:
        version = 2
        while not stop.is_set():
            codes.append(lake.land(3, 100 + version, version=version).exit_code)
            version += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = [each for _ in range(2) for each in compact(lake.work())]
    finally:
        stop.set()
        writer.join()
    assert all(each.error is None for each in done)
    assert done[0].facts["rewritten"] > 0
    assert takes
    assert codes
    assert set(codes) == {0}
    rows = lake.rows_in()
    assert len({row[1] for row in rows}) == len(rows)
    assert {row[1]: row[2] for row in rows} == _state(lake)
    assert lake.state.turn() is None
    assert lake.state.orderly


def _state(lake: UpkeepTable) -> dict[int, int]:
    state: dict[int, int] = {}
    for key, version in lake.rows.places.values():
        state[key] = version
    return state


def test_deletes_are_gone_after_a_keyed_compaction(kept: Make, spark: Any) -> None:
    lake = kept(spark=spark, stream=MERGE)
    lake.land(*range(8), most=8)
    for version in range(1, 4):
        lake.land(*range(4), version=version, most=4)
    lake.land(1, version=GONE)
    rows = lake.rows_in()
    compact(lake.work())
    after = take_inventory(lake.table)
    assert (len(after.entries), after.deletes) == (1, 0)
    assert lake.rows_in() == rows


def test_files_that_overlap_are_put_in_order_again(kept: Make, spark: Any) -> None:
    """As others' bin-packing leaves them."""
    lake = kept(spark=spark)
    lake.land(*range(6))
    rows, table = lake.rows_in(), lake.table
    content = table.scan().to_arrow().sort_by(names.SEQ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyIceberg's writer does not know an option of the table
        added = [
            file
            for begin in (0, 1)
            for file in _dataframe_to_data_files(table.metadata, content.take(list(range(begin, 6, 2))), table.io)
        ]
    tables.commit_snapshot(table, kind="stamp", head=lake.state.head, added=added, removed=list_current_files(table))
    assert overlaps(lake) == 1
    compact(lake.work())
    assert overlaps(lake) == 0
    assert lake.rows_in() == rows


def test_nothing_rewritten_where_there_was_work_is_a_failure(kept: Make, spark: Any, monkeypatch: Any) -> None:
    lake = kept(spark=spark)
    lake.land(*range(8))
    nothing = {"rewritten_data_files_count": 0, "added_data_files_count": 0, "failed_data_files_count": 0}
    monkeypatch.setattr(compaction, "run_procedure", lambda *_: nothing)
    with pytest.raises(StreamFailed, match="rewrote none of 8 files with numbers from 1"):
        compact(lake.work())
    monkeypatch.setattr(compaction, "run_procedure", lambda *_: {**nothing, "failed_data_files_count": 3})
    with pytest.raises(StreamFailed, match="could not rewrite 3 of 8 files"):
        compact(lake.work())
    (failed,) = [done for done in run_upkeep(lake.work(), ("compaction",)) if done.error]
    assert failed.step == "compaction"


def test_a_conflict_is_tried_again_with_the_turn(kept: Make, spark: Any, monkeypatch: Any) -> None:
    lake = kept(spark=spark)
    lake.land(*range(8))
    asked, turns = [], []

    def ask(work: Any, sql: str) -> Any:
        turns.append(lake.state.turn())
        asked.append(sql)
        if len(asked) < 4:
            raise tables.LostRace("CommitFailedException: someone")
        return original(work, sql)

    original = job.run_procedure
    monkeypatch.setattr(compaction, "run_procedure", ask)
    compact(lake.work())
    assert [turn is not None for turn in turns] == [False, False, True, True]
    assert len(take_inventory(lake.table).entries) == 1
    assert lake.state.turn() is None


def test_a_landing_that_meets_a_compaction_commits_the_same_files(kept: Make, spark: Any) -> None:
    """Compaction between its preparation and its commit: it loses a race, reloads, and lands."""
    lake = kept(spark=spark)
    lake.land(*range(8))

    class Meanwhile:
        def __init__(self) -> None:
            self.points: list[str] = []

        def at(self, point: str, **about: object) -> None:
            self.points.append(point)
            if point == "lake.prepared" and self.points.count(point) == 1:
                compact(lake.work())

    probe = Meanwhile()
    assert lake.land(8, probe=probe).exit_code == 0
    assert "lake.restamped" not in probe.points
    assert [row[1] for row in lake.rows_in()] == list(range(9))
    assert names.TURN not in lake.state.properties

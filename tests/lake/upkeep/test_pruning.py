"""Landings forget earlier states as they go: which may go, which must stay, and that no file and no row is lost."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.lake.upkeep.upkeep_tables import UpkeepTable

from penstock.lake import names, pruning, tables
from penstock.lake.head_times import read_times
from penstock.lake.pruning import SnapshotLimits, find_prunable, keeps_files, read_tag_expiry
from penstock.lake.table_state import TableState
from penstock.lake.tables import commit_snapshot
from penstock.lake.upkeep.run import run_upkeep

Make = Callable[..., UpkeepTable]
FEW = {"keep_at_most": 4, "keep_at_least": 1}
DAY_MS = 86_400_000


@pytest.fixture
def few(kept: Make, monkeypatch: pytest.MonkeyPatch) -> UpkeepTable:
    """A table of which landings keep four states or five."""
    monkeypatch.setattr(pruning, "SNAPSHOTS_AT_ONCE", 2)
    monkeypatch.setattr(pruning, "MIN_AGE", timedelta(0))
    lake = kept()
    lake.states = FEW
    return lake


def upkeep(lake: UpkeepTable, now: datetime | None = None) -> None:
    for done in run_upkeep(lake.work(now=now), ["expiry", "orphans"]):
        assert done.error is None, done.text


def data_files(lake: UpkeepTable) -> set[str]:
    return {path.name for path in lake.paths() if path.suffix == ".parquet"}


def test_landings_merge_the_manifests_of_earlier_ones(few: UpkeepTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each landing would write a longer list of manifests than the one before."""
    monkeypatch.setitem(tables.DEFAULTS, "commit.manifest.min-count-to-merge", "5")
    lengths = []
    for key in range(20):
        assert few.land(key).exit_code == 0
        snapshot = few.table.current_snapshot()
        assert snapshot is not None
        lengths.append(len(snapshot.manifests(few.table.io)))
    assert max(lengths) <= 5, lengths
    assert [row[1] for row in few.rows_in()] == list(range(20))


def test_landings_keep_few_states_and_every_row(few: UpkeepTable) -> None:
    few.land(0)
    assert few.read("out").exit_code == 0
    sizes = []
    for key in range(1, 15):
        assert few.land(key).exit_code == 0
        sizes.append(len(few.state.snapshots))
    assert max(sizes) <= 6
    assert len(few.state.metadata["snapshot-log"]) <= 6
    assert few.state.orderly
    assert [row[1] for row in few.rows_in()] == list(range(15))
    # A reader that has not looked for longer than history goes back.
    assert few.read("out").exit_code == 0
    assert [row["key"] for row in few.seen("out")] == list(range(15))
    before = data_files(few)
    upkeep(few)
    assert data_files(few) == before
    assert len(few.rows_in()) == 15


def test_when_the_head_stood_where_is_still_known(few: UpkeepTable) -> None:
    for key in range(12):
        few.land(key)
    heads = [head for _, head in read_times(few.state)]
    assert heads == sorted(heads)
    assert len(heads) == 12


def test_files_that_were_replaced_stay_as_long_as_their_state(few: UpkeepTable) -> None:
    for key in range(3):
        few.land(key)
    table = few.table
    replaced = next(iter(table.scan().plan_files())).file
    commit_snapshot(table, kind="retention", head=few.state.head, removed=[replaced])
    name = replaced.file_path.rpartition("/")[2]
    for key in range(3, 12):
        few.land(key)
    (tag,) = few.state.tags
    assert len(few.state.snapshots) <= 7
    upkeep(few)
    assert name in data_files(few), "a query may still read it"
    upkeep(few, datetime.now(UTC) + timedelta(days=6))
    assert name not in data_files(few)
    assert tag not in few.state.tags
    assert len(few.rows_in()) == 11


def test_a_landing_drops_a_tag_whose_time_is_over(few: UpkeepTable) -> None:
    few.states = {**FEW, "keep_for": "1s"}
    for key in range(3):
        few.land(key)
    table = few.table
    commit_snapshot(table, kind="retention", head=few.state.head, removed=[next(iter(table.scan().plan_files())).file])
    few.land(*range(3, 8), most=1)
    assert len(few.state.tags) <= 1
    time.sleep(1.1)
    few.land(*range(8, 12), most=1)
    assert few.state.tags == {}
    assert len(few.state.snapshots) <= 6


def test_what_others_wrote_is_not_forgotten_before_it_was_looked_at(few: UpkeepTable) -> None:
    for key in range(5):
        few.land(key)
    row = few.table.scan().to_arrow().slice(0, 1)
    key, seq = row.column("key")[0].as_py(), row.schema.get_field_index(names.SEQ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        few.table.append(row.set_column(seq, row.schema.field(seq), pa.array([0], pa.int64())))
    before = len(few.state.snapshots)
    for more in range(5, 11):
        few.land(more)
    assert len(few.state.snapshots) == before + 6
    assert len(few.state.foreign()) == 1
    assert not few.state.gap
    assert few.read("out").exit_code == 0, "the reader gives the row its place"
    few.land(11)
    assert len(few.state.snapshots) <= 6
    assert few.read("out").exit_code == 0
    assert sorted(row["key"] for row in few.seen("out")) == sorted([key, *range(12)])


def test_a_commit_copies_no_snapshot(few: UpkeepTable) -> None:
    """PyIceberg copies a table's metadata fifteen times a commit; see `tables`."""
    few.land(1)
    metadata = few.table.metadata
    again = copy.deepcopy(metadata)
    assert again.snapshots[0] is metadata.snapshots[0]
    assert again.snapshots is not metadata.snapshots
    assert again.properties is not metadata.properties


# ---------------------------------------------------------------- which states


def table_of(
    *states: dict[str, Any], refs: dict[str, Any] | None = None, properties: dict[str, str] | None = None
) -> TableState:
    """States a minute apart, the first the oldest."""
    snapshots = [
        {
            "snapshot-id": number,
            "parent-snapshot-id": number - 1 if number > 1 else None,
            "sequence-number": number,
            "timestamp-ms": number * 60_000,
            "summary": {"operation": "append", names.KIND: "landing", **state},
        }
        for number, state in enumerate(states, 1)
    ]
    return TableState(
        {
            "table-uuid": "u",
            "snapshots": snapshots,
            "current-snapshot-id": len(states),
            "refs": {"main": {"snapshot-id": len(states), "type": "branch"}, **(refs or {})},
            "properties": {names.HEAD: "1", **(properties or {})},
        }
    )


def test_as_many_as_are_to_stay_and_an_hour_at_least() -> None:
    many = table_of(*[{}] * 300)
    found = find_prunable(many, SnapshotLimits())
    assert found is not None
    assert (min(found.snapshots), max(found.snapshots), found.tags, found.over) == (1, 200, {}, [])
    assert find_prunable(table_of(*[{}] * 119), SnapshotLimits()) is None
    # At a tick a second, not before they are an hour old.
    found = find_prunable(many, SnapshotLimits(most=10))
    assert found is not None
    assert max(found.snapshots) == 238
    found = find_prunable(many, SnapshotLimits(most=10, least=150))
    assert found is not None
    assert max(found.snapshots) == 150


def test_what_branches_begin_at_stays() -> None:
    found = find_prunable(table_of(*[{}] * 300, refs={"b": {"snapshot-id": 7, "type": "branch"}}), SnapshotLimits())
    assert found is not None
    assert 7 not in found.snapshots
    assert {6, 8} <= set(found.snapshots)


def test_a_state_whose_files_were_replaced_gets_a_tag() -> None:
    states: list[dict[str, Any]] = [{} for _ in range(300)]
    states[49] = {"operation": "replace", "deleted-data-files": "4"}
    found = find_prunable(table_of(*states), SnapshotLimits())
    assert found is not None
    until = 50 * 60_000 + 5 * DAY_MS
    assert found.tags == {f"penstock_kept_{until}_49": 49}
    assert 49 not in found.snapshots
    assert read_tag_expiry(f"penstock_kept_{until}_49") == until
    found = find_prunable(table_of(*states), SnapshotLimits(keep_for=timedelta(hours=1)))
    assert found is not None
    assert (found.tags, 49 in found.snapshots) == ({}, True)


def test_a_table_that_replaces_files_all_the_time_is_left_to_upkeep() -> None:
    states = [{"operation": "overwrite", "deleted-data-files": "1"} for _ in range(300)]
    assert find_prunable(table_of(*states), SnapshotLimits()) is None


def test_nothing_is_forgotten_of_a_table_that_was_rolled_back() -> None:
    chain = (
        '{"number":1,"id":"x","mark":null,"content":"c","kind":"rows","rows":1,"bytes":1,"uuid":"u",'
        '"snapshot":"999","sequence":250}'
    )
    properties = {names.chain_property("p", "s"): chain, f"{names.CONTENT}.c": "{}"}
    assert find_prunable(table_of(*[{}] * 300, properties=properties), SnapshotLimits()) is None


@pytest.mark.parametrize(
    ("summary", "keeps"),
    [
        ({"operation": "append"}, True),
        ({"operation": "delete", "added-delete-files": "1"}, True),
        ({"operation": "overwrite", "added-delete-files": "1", "deleted-data-files": "1"}, False),
        ({"operation": "overwrite", "added-delete-files": "2", "removed-delete-files": "1"}, False),
        ({"operation": "delete"}, False),
        ({"operation": "replace"}, False),
    ],
)
def test_which_states_have_all_files_of_the_one_before(summary: dict[str, Any], keeps: bool) -> None:
    snapshot = table_of(summary).main
    assert snapshot is not None
    assert keeps_files(snapshot) is keeps

"""Snapshot expiry: what is forgotten, what is kept, and which files go. No JVM."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.lake.upkeep.upkeep_tables import UpkeepTable

from penstock.errors import StreamStopped
from penstock.lake import names
from penstock.lake.landing import take_turn
from penstock.lake.tables import load_table
from penstock.lake.upkeep.expiry import expire, find_expirable, find_finished_branches
from penstock.lake.upkeep.run import run_upkeep

Make = Callable[..., UpkeepTable]
NOW: dict[str, Any] = {"snapshots": {"keep_for": "0s", "keep_at_least": 1}}
SOON = timedelta(minutes=1)


def soon() -> datetime:
    return datetime.now(UTC) + SOON


def test_old_states_go_with_their_files_and_every_row_stays(kept: Make) -> None:
    lake = kept()
    lake.land(*range(6))
    rows, before = lake.rows_in(), len(lake.state.snapshots)
    assert before == 3
    manifests = {path for path in lake.paths() if path.suffix == ".avro"}

    (done,) = expire(lake.work(now=soon(), **NOW))

    assert len(lake.state.snapshots) == 1
    assert done.facts["expired"] == 2
    assert done.facts["files_removed"] > 0
    assert (
        len({path for path in lake.paths() if path.suffix == ".avro"}) == len(manifests) - done.facts["files_removed"]
    )
    assert lake.rows_in() == rows
    assert lake.state.orderly
    lake.land(7)
    assert len(lake.rows_in()) == 7


def test_what_was_forgotten_had_been_looked_at(kept: Make) -> None:
    """Only landings note that they were in order; after expiry nothing else could tell it of the rest."""
    lake = kept()
    lake.land(1)
    for _ in range(3):
        take_turn(lake.table, lake.state, "me", seconds=0)
    assert lake.state.orderly
    expire(lake.work(now=soon(), **NOW))
    assert len(lake.state.snapshots) == 1
    assert lake.state.orderly


def test_a_state_is_as_old_as_its_replacement(kept: Make) -> None:
    """A reader may be at work on a state that is years old, if it was the newest a minute ago."""
    lake = kept()
    lake.land(1)
    first = lake.state.main
    assert first is not None
    lake.land(2)
    state = lake.state
    assert state.main is not None
    replaced = state.main.at_ms
    assert find_expirable(state, replaced, 1) == []
    assert find_expirable(state, replaced + 1, 1) == [first.id]
    assert find_expirable(state, replaced + 1, 2) == []


def test_defaults_keep_ten(kept: Make) -> None:
    lake = kept()
    for key in range(12):
        lake.land(key)
    done = expire(lake.work(now=datetime.now(UTC) + timedelta(days=30)))
    assert [each.facts["expired"] for each in done] == [2]
    assert len(lake.state.snapshots) == 10


def test_what_a_tag_or_branch_holds_is_kept(kept: Make) -> None:
    lake = kept()
    lake.land(1)
    tagged = lake.table.metadata.current_snapshot_id
    assert tagged is not None
    lake.table.manage_snapshots().create_tag(tagged, "month").commit()
    lake.land(2, 3, 4)
    expire(lake.work(now=soon(), **NOW))
    assert set(lake.state.snapshots) == {tagged, lake.table.metadata.current_snapshot_id}
    assert lake.table.scan(snapshot_id=tagged).to_arrow().num_rows == 1


def test_a_rolled_back_table_stops_it_and_nothing_is_expired(kept: Make) -> None:
    lake = kept()
    lake.land(1, 2, 3, 4)
    main = lake.state.main
    assert main is not None
    assert main.parent is not None
    lake.table.manage_snapshots().rollback_to_snapshot(main.parent).commit()
    files = lake.paths()
    with pytest.raises(StreamStopped, match="rolled back") as caught:
        list(run_upkeep(lake.work(now=soon(), **NOW, orphans={"older_than": "0s"}, force=True)))
    assert "state recover" in caught.value.next_step
    assert set(lake.state.snapshots) >= {main.id, main.parent}
    assert set(files) <= set(lake.paths())
    with pytest.raises(StreamStopped):
        expire(lake.work(now=soon(), **NOW))
    with pytest.raises(StreamStopped):
        list(run_upkeep(lake.work(now=soon()), ("compaction",)))


def test_branches_of_attempts_that_are_over_go(kept: Make) -> None:
    lake = kept()
    lake.land(1, 2, 3, 4)
    at = lake.table.metadata.current_snapshot_id
    assert at is not None
    held = names.branch_name(lake.name, "s", 2, "a1")
    coming = names.branch_name(lake.name, "s", 3, "a2")
    stray = names.branch_name("other", "s", 1, "a3")
    for branch in (held, coming, stray, "mine"):
        lake.table.manage_snapshots().create_branch(at, branch).commit()
    assert find_finished_branches(lake.state, 0) == [held]
    assert find_finished_branches(lake.state, int(soon().timestamp() * 1000)) == sorted([held, stray])
    expire(lake.work(now=soon() + timedelta(days=2), **NOW))
    assert set(lake.state.branches) == {"main", coming, "mine"}


def test_a_landing_that_is_tried_again_keeps_its_files(kept: Make) -> None:
    """Its branch is dropped and begun anew: meanwhile only a state that no one names knows its files."""
    lake = kept()
    lake.land(1, 2)
    table = lake.table
    at = table.metadata.current_snapshot_id
    assert at is not None
    (aside,) = [p for p in lake.paths() if p.suffix == ".parquet"][:1]
    coming = aside.with_name(names.file_stem(lake.name, "s", 9, "a1") + "-0-0-x.parquet")
    coming.write_bytes(aside.read_bytes())
    branch = names.branch_name(lake.name, "s", 9, "a1")
    table.manage_snapshots().create_branch(at, branch).commit()
    task = next(iter(lake.table.scan().plan_files()))
    from copy import copy

    file = copy(task.file)
    file._data = [*task.file._data]
    file._data[1] = str(coming)
    transaction = lake.table.transaction()
    with transaction.update_snapshot(branch=branch).fast_append() as append:
        append.append_data_file(file)
    transaction.commit_transaction()
    lake.table.manage_snapshots().remove_branch(branch).commit()
    lake.land(3)

    expire(lake.work(now=soon(), **NOW))

    assert len(lake.state.snapshots) == 1
    assert coming.exists()


def test_a_dry_run_changes_nothing(kept: Make) -> None:
    lake = kept()
    lake.land(1, 2, 3, 4)
    files, properties = lake.paths(), dict(lake.state.properties)
    said = [done.text for done in run_upkeep(lake.work(now=soon(), dry_run=True, **NOW))]
    assert any(text.startswith("would expire 1 snapshot") for text in said)
    assert lake.paths() == files
    assert dict(lake.state.properties) == properties


def test_two_at_once(kept: Make) -> None:
    """The slower of two finds nothing left, and harms nothing."""
    lake = kept()
    lake.land(*range(6))
    rows = lake.rows_in()

    class Meanwhile:
        began = False

        def at(self, point: str, **about: object) -> None:
            if point == "lake.expired" and not self.began:
                self.began = True
                expire(lake.work(now=soon(), **NOW))

    expire(lake.work(now=soon(), probe=Meanwhile(), **NOW))
    assert lake.rows_in() == rows


def test_rows_that_others_put_in_get_their_place_first(kept: Make) -> None:
    lake = kept()
    lake.land(1, 2)
    table = load_table(lake.lake, "s")
    assert table is not None
    copy = table.scan().to_arrow()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyIceberg's own writer does not know an option that we set
        table.append(copy)
    lake.land(3)
    said = [done for done in run_upkeep(lake.work(now=soon(), **NOW)) if done.step == "order"]
    assert [done.text for done in said] == [f"numbered 2 rows that other programs wrote to {lake.name}.s"]
    numbers = [row[3] for row in lake.rows_in()]
    assert len(numbers) == len(set(numbers)) == 5
    assert len(lake.state.snapshots) == 1

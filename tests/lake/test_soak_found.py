"""What the lake's soak has found, each in its smallest form."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from tests.lake.upkeep.upkeep_tables import UpkeepTable

from penstock.lake import tables
from penstock.lake.landing import remove_turn, take_turn
from penstock.lake.upkeep import expiry
from penstock.lake.upkeep.job import StepResult
from penstock.lake.upkeep.run import run_upkeep

NOW: dict[str, Any] = {"snapshots": {"keep_for": "0s", "keep_at_least": 1}}


def test_an_upkeep_beside_another_is_not_stopped_by_states_that_the_other_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at the same time: while one looks at the states to be forgotten, the other forgets them and their files."""
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(*range(6))
    rows, soon = lake.rows_in(), datetime.now(UTC) + timedelta(minutes=1)
    look = expiry._find_unshared_files
    beside: list[StepResult] = []
    began: list[bool] = []

    def late(table: Table, gone: Any) -> Any:
        if not began:
            began.append(True)
            beside.extend(run_upkeep(lake.work(now=soon, **NOW), ["expiry"]))
        return look(table, gone)

    monkeypatch.setattr(expiry, "_find_unshared_files", late)
    done = list(run_upkeep(lake.work(now=soon, **NOW), ["expiry"]))

    assert [each.error for each in beside] == [None]
    assert beside[0].facts["expired"] == 2
    assert [each.error for each in done] == [None]
    assert len(lake.state.snapshots) == 1
    assert lake.rows_in() == rows


def test_an_upkeep_beside_another_forgets_what_the_other_has_just_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, a moment later: the files were looked at, and main has not moved."""
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(*range(6))
    rows, soon = lake.rows_in(), datetime.now(UTC) + timedelta(minutes=1)
    look = expiry._find_unshared_files
    beside: list[StepResult] = []
    began: list[bool] = []

    def late(table: Table, gone: Any) -> Any:
        found = look(table, gone)
        if not began:
            began.append(True)
            beside.extend(run_upkeep(lake.work(now=soon, **NOW), ["expiry"]))
        return found

    monkeypatch.setattr(expiry, "_find_unshared_files", late)
    done = list(run_upkeep(lake.work(now=soon, **NOW), ["expiry"]))

    assert [each.error for each in [*beside, *done]] == [None, None]
    assert len(lake.state.snapshots) == 1
    assert lake.rows_in() == rows


def test_a_table_is_loaded_while_others_commit_so_fast_that_its_document_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is frozen between the catalog's answer and the document it names."""
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(1)
    with lake.table.transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "1"})
    read = FromInputFile.table_metadata
    frozen: list[bool] = []

    def late(*given: Any, **more: Any) -> Any:
        if not frozen:
            frozen.append(True)
            lake.land(2, 3, 4, 5, 6, 7)
        return read(*given, **more)

    monkeypatch.setattr(FromInputFile, "table_metadata", late)
    loaded = tables.load_table(lake.lake, "s")

    assert loaded is not None
    assert len(loaded.scan().to_arrow()) == 7


class _AtPrepared:
    """Does something once, between a landing's look at the table and its commit."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def at(self, point: str, **about: Any) -> None:
        if point == "lake.prepared" and self._act is not None:
            act, self._act = self._act, None
            act()


def test_a_landing_is_not_stopped_by_a_turn_that_is_given_back_while_it_commits(tmp_path: Path) -> None:
    """A turn that has expired is cleared by the next landing; its owner, slow but alive, may clear it first."""
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(1)
    take_turn(lake.table, lake.state, "another", seconds=-1)
    given_back = _AtPrepared(lambda: remove_turn(lake.table))

    eof = lake.land(2, probe=given_back)

    assert (eof.status, eof.reason) == ("complete", None)
    assert lake.state.turn() is None
    assert [row[1] for row in lake.rows_in()] == [1, 2]


def test_a_turn_that_a_landing_has_cleared_can_still_be_given_back(tmp_path: Path) -> None:
    lake = UpkeepTable(tmp_path, "shop")
    lake.land(1)
    take_turn(lake.table, lake.state, "another", seconds=-1)
    seen_with_turn = lake.table
    lake.land(2)

    remove_turn(seen_with_turn)

    assert lake.state.turn() is None

"""Late commits: one short seed of `script/soak postgres`, and the same without a horizon, which loses rows."""

from __future__ import annotations

from pathlib import Path

from tests.soak.postgres import soak


def test_every_row_arrives_however_late_it_commits(database: str, tmp_path: Path) -> None:
    result = soak(database, tmp_path, seed=1, seconds=8, rounds=3, writers=16, longest=1.5)

    assert result["faults"] == [], result["stories"]
    assert result["lost"] == 0
    assert result["stragglers"] >= 10
    assert result["transactions"].keys() >= {"late", "prepared", "rolled back", "savepoints", "message"}
    assert result["held_back"].keys() == {"stamped", "defaulted", "numbered", "parted"}
    assert result["blockers"] > 0
    assert max(result["delivered_meanwhile"].values()) > 0


def test_without_a_horizon_the_same_loses_rows(database: str, tmp_path: Path) -> None:
    result = soak(database, tmp_path, seed=1, seconds=0, rounds=1, writers=16, longest=1.5, horizon="off")

    assert all(" rows lost: " in fault for fault in result["faults"]), result["faults"]
    assert result["stragglers_lost"] == result["stragglers"] == 4

"""A first load under fire: rows come, change and go at full speed, and the load is killed five times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.postgres_load import load


#: `script/soak postgres --load` kills both five times, in larger tables
@pytest.mark.parametrize(("by", "kills"), [("keys", 5), ("blocks", 2)])
def test_the_newest_version_of_every_row_arrives_once(by: str, kills: int, database: str, tmp_path: Path) -> None:
    result = load(
        database, tmp_path, seed=1, by=by, rows=100_000, connections=2, most=100_000, kills=kills, to_the_end=False
    )

    assert result["faults"] == []
    assert result["hits"] == kills
    assert result["lost"] == 0
    assert min(result["fire"].values()) > 0

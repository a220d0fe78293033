"""A short seed of the http sink's fault run."""

from pathlib import Path

from tests.soak.http import Plan, soak


def test_a_short_seed(database: str, tmp_path: Path) -> None:
    result = soak(3, Plan(seconds=12), tmp_path, database)
    assert result.wrong == [], result
    assert result.rows >= result.arrived > 0
    assert result.faults["answer lost"] > 0

"""SIGKILL from outside at every point of a run; rows arrive and change before the restart: nothing lost or doubled."""

import re
from pathlib import Path

import pytest

import penstock
from tests.acceptance.matrix import Cell
from tests.harness.faults import POINTS, RUN_POINTS

#: each time and each store; `script/soak gate` runs all cells
SPARK = (
    Cell("files.part_written", 1, "change", "postgres", "spark"),
    Cell("files.file_visible", 2, "both", "sqlite", "spark"),
)


@pytest.mark.parametrize("point", RUN_POINTS)
def test_killed_at(point: str, database: str, tmp_path: Path) -> None:
    compared = Cell(point).run(database, tmp_path)
    assert compared.same, compared


@pytest.mark.parametrize("cell", SPARK, ids=lambda cell: cell.point)
def test_killed_on_spark(cell: Cell, database: str, tmp_path: Path) -> None:
    compared = cell.run(database, tmp_path)
    assert compared.same, compared


def test_points_are_all_named() -> None:
    """A point that the code has and the list has not would never be tried."""
    found: set[str] = set()
    for path in Path(penstock.__file__).parent.rglob("*.py"):
        if "testing" not in path.parts:
            found |= set(re.findall(r'probe\.at\(\s*"([a-z_.]+)"', path.read_text()))
    assert found == set(POINTS)

"""SIGKILL from outside at every point of a run; rows arrive and change before the restart: nothing lost or doubled."""

from pathlib import Path

import pytest

from penstock.testing.faults import POINTS, RUN_POINTS
from tests.acceptance.shop import Shop


@pytest.mark.parametrize("point", RUN_POINTS)
def test_killed_at(point: str, database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path)
    # The second slice where a run comes to the point once a slice: one is done, one is cut, more follow.
    nth = 1 if point in ("engine.leased", "engine.released") else 2
    found = shop.command.kill_at(point, "run", "shop.yaml", nth=nth)
    assert found["point"] == point
    shop.arrive(3001, 3500)
    shop.change(every=7, at=1)
    done = shop.command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    compared = shop.compared()
    assert compared.same, compared


def test_points_are_all_named() -> None:
    """A point that the code has and the list has not would never be tried."""
    import re

    import penstock

    source = Path(penstock.__file__).parent
    found: set[str] = set()
    for path in source.rglob("*.py"):
        if "testing" not in path.parts:
            found |= set(re.findall(r'probe\.at\(\s*"([a-z_.]+)"', path.read_text()))
    assert found == set(POINTS)

"""SIGKILL from outside at every point of an undo, on the real command: it happens whole or not at all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.acceptance.shop import Shop
from tests.harness.faults import RUN_POINTS

#: what an undo that leads back passes through once it was told; it plans nothing, and has no part
POINTS = tuple(
    point
    for point in RUN_POINTS[RUN_POINTS.index("gate.compared") :]
    if point not in ("gate.planned", "files.part_written", "files.file_visible")
)
#: killed here, it has not begun, and is forgotten
BEFORE = POINTS[: POINTS.index("gate.intended")]


def times(folder: Path) -> Counter[int]:
    """How often readers find each order."""
    files = (folder / "out" / "orders").glob("*.parquet")
    return Counter(id_ for file in files for id_ in pq.read_table(file, columns=["id"]).column("id").to_pylist())


#: at every other point the command is given again before the run
CELLS = [(point, place % 2 == 0) for place, point in enumerate(POINTS)]


@pytest.mark.parametrize(("point", "again"), CELLS)
def test_killed_at(point: str, again: bool, database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=600, slice_bytes=32768)
    assert shop.command.run("run", "shop.yaml").code == 0
    first = times(tmp_path)
    assert set(first.values()) == {1}
    words = ("state", "undo", "shop.yaml", "--stream", "orders", "--to", "1", "--yes")
    found = shop.command.kill_at(point, *words)
    assert found["point"] == point
    shop.arrive(601, 650)
    if again:
        # With the version named, the same command can be given again without undoing the undo.
        done = shop.command.run(*words)
        assert done.code == 0, done.err
    done = shop.command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    seen = times(tmp_path)
    assert set(seen) == set(range(1, 651))
    assert {seen[id_] for id_ in range(601, 651)} == {1}
    went_back = again or point not in BEFORE
    counts = Counter(seen[id_] for id_ in range(1, 601))
    assert set(counts) == ({1, 2} if went_back else {1})
    if went_back:
        kept = [id_ for id_ in range(1, 601) if seen[id_] == 1]
        assert kept == list(range(1, len(kept) + 1)), "what lies before the place does not come again"

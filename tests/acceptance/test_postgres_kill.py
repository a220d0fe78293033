"""SIGKILL from outside at every point of a run into Postgres; rows arrive and change before the restart."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.matrix import ONCE
from tests.acceptance.postgres_shop import MODES, check, open_shop
from tests.acceptance.shop import Shop
from tests.harness.faults import POSTGRES_RUN_POINTS
from tests.harness.postgres import PostgresServer

#: the steps of the merge; whatever the mode, the steps around it are the same
MERGE = tuple(point for point in POSTGRES_RUN_POINTS if point.startswith("postgres."))
POINTS = POSTGRES_RUN_POINTS[POSTGRES_RUN_POINTS.index("gate.intended") :]
CELLS = [(mode, point) for mode in MODES for point in (POINTS if mode == "upsert" else MERGE)]


@pytest.mark.parametrize(("mode", "point"), CELLS)
def test_killed_at(mode: str, point: str, database: str, tmp_path: Path) -> None:
    shop = open_shop(database, tmp_path, mode)
    # A refresh has one slice.
    nth = 1 if mode == "replace" or point in ONCE else 2
    found = shop.command.kill_at(point, "run", "shop.yaml", nth=nth)
    assert found["point"] == point
    shop.arrive(3001, 3500)
    shop.change(every=7, at=1)
    done = shop.command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    check(database, mode, tmp_path)


def test_the_server_dies_between_putting_aside_and_merging(tmp_path: Path) -> None:
    """What was put aside is empty then: each slice is moved again, whatever its mode."""
    shops: dict[str, Shop] = {}
    with PostgresServer() as server, ExitStack() as frozen:
        running = []
        for mode in MODES:
            (tmp_path / mode).mkdir()
            shop = shops[mode] = open_shop(server.database(), tmp_path / mode, mode)
            nth = 1 if mode == "replace" else 2
            running.append(frozen.enter_context(shop.command.frozen("run", "shop.yaml", point="gate.moved", nth=nth)))
        server.crash()
        server.start()
        frozen.close()
        assert {run.end().code for run in running} <= {1, 3}
        for mode, shop in shops.items():
            shop.arrive(3001, 3500)
            shop.change(every=7, at=1)
            done = shop.command.run("run", "shop.yaml")
            assert done.code == 0, done.err
            check(shop.url, mode, shop.folder)

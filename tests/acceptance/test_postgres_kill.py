"""SIGKILL from outside at every point of a run into Postgres; rows arrive and change before the restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.faults import POSTGRES_RUN_POINTS
from penstock.testing.postgres import PostgresServer
from tests.acceptance.matrix import ONCE
from tests.acceptance.postgres_shop import MODES, check, open_shop

CELLS = [
    (mode, point)
    for mode in MODES
    for point in POSTGRES_RUN_POINTS
    # A refresh has one slice; the steps around the sink are the same for all.
    if mode == "upsert" or point.startswith("postgres.")
]


@pytest.mark.parametrize(("mode", "point"), CELLS)
def test_killed_at(mode: str, point: str, database: str, tmp_path: Path) -> None:
    shop = open_shop(database, tmp_path, mode)
    nth = 1 if mode == "replace" or point in (*ONCE, "gate.settled") else 2
    found = shop.command.kill_at(point, "run", "shop.yaml", nth=nth)
    assert found["point"] == point
    shop.arrive(3001, 3500)
    shop.change(every=7, at=1)
    done = shop.command.run("run", "shop.yaml")
    assert done.code == 0, done.err
    check(database, mode, tmp_path)


def test_the_server_dies_between_putting_aside_and_merging(tmp_path: Path) -> None:
    with PostgresServer() as server:
        url = server.database()
        shop = open_shop(url, tmp_path, "upsert")
        with shop.command.frozen("run", "shop.yaml", point="gate.moved", nth=2) as run:
            server.crash()
            server.start()
        assert run.end().code in (1, 3)
        shop.arrive(3001, 3200)
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        check(url, "upsert", tmp_path)

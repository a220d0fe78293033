"""SIGKILL at every point of a run that gathers from an API; objects arrive before the restart: none lost or doubled."""

from pathlib import Path

import pytest

from tests.acceptance.matrix import ONCE
from tests.acceptance.rest_shop import RestShop
from tests.harness.faults import REST_RUN_POINTS


@pytest.mark.parametrize("point", REST_RUN_POINTS)
def test_killed_at(point: str, tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        shop.write()
        shop.server.arrive("charges", 1500)
        nth = 1 if point in ONCE else 2
        assert shop.command.kill_at(point, "run", "shop.yaml", nth=nth)["point"] == point
        shop.server.arrive("charges", 300)
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        assert shop.differences() == {}


def test_killed_while_several_workers_fetch(tmp_path: Path) -> None:
    """The ranges that others were reading are read on from their cursors."""
    with RestShop.open(tmp_path) as shop:
        shop.write(slice_bytes=1 << 19)
        shop.server.arrive("charges", 8000)
        shop.command.kill_at("rest.page_spooled", "run", "shop.yaml", nth=60)
        assert 0 < len(shop.rows()) < 8000
        shop.server.arrive("charges", 300)
        for _ in range(2):
            done = shop.command.run("run", "shop.yaml")
            assert done.code == 0, done.err
            assert shop.differences() == {}

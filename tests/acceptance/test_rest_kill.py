"""SIGKILL at every point of a run that gathers from an API; objects arrive before the restart: none lost or doubled."""

import json
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
        # A slice has about 27 pages, and as many are fetched ahead of it, and one more for each worker.
        shop.command.kill_at("rest.page_spooled", "run", "shop.yaml", nth=70)
        assert 0 < len(shop.rows()) < 8000
        shop.server.arrive("charges", 300)
        for _ in range(2):
            done = shop.command.run("run", "shop.yaml")
            assert done.code == 0, done.err
            assert shop.differences() == {}


GATHERED = (
    "rest.page_spooled",
    "gate.gathered",
    "gate.spooled",
    "gate.intended",
    "gate.moved",
    "gate.committed",
    "gate.advanced",
)


@pytest.mark.parametrize("options", ["{}", "{incremental: true, order: oldest}"], ids=["whole", "by cursor"])
@pytest.mark.parametrize("point", GATHERED)
def test_a_list_without_a_filter_is_killed_at(point: str, options: str, tmp_path: Path) -> None:
    is_whole = options == "{}"
    with RestShop.open(tmp_path, {"charges": {"order": "newest" if is_whole else "oldest"}}) as shop:
        shop.write({"charges": options})
        shop.server.arrive("charges", 600)
        shop.command.kill_at(point, "run", "shop.yaml", nth=3 if point == "rest.page_spooled" else 1)
        shop.server.arrive("charges", 100)
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 0, done.err
        if is_whole and point in ("gate.intended", "gate.moved", "gate.committed"):
            # The refresh that was open is finished as it was gathered; the next run reads the list as it is now.
            done = shop.command.run("run", "shop.yaml")
            assert done.code == 0, done.err
        if is_whole:
            current = sorted((tmp_path / "out" / "charges" / "current").iterdir())
            ids = [json.loads(line)["id"] for path in current for line in path.read_text().splitlines()]
            assert sorted(ids) == sorted(id_ for id_, _ in shop.server.objects("charges"))
        else:
            assert shop.differences() == {}


@pytest.mark.parametrize("point", GATHERED)
def test_a_list_below_parents_is_killed_at(point: str, tmp_path: Path) -> None:
    """Parents come and go before the restart: the refresh has the children of those that are there, each once."""
    with RestShop.open(tmp_path, {"customers": {}}) as shop:
        cards = {"cards": "{parent: customers, path: 'customers/{id}/cards', paging: {size: 3}}"}
        shop.write({"customers": "{time: {lag: 0}}", **cards}, slice_bytes=1 << 20)
        shop.server.arrive("customers", 20)
        for number, (id_, _) in enumerate(shop.server.objects("customers")):
            shop.server.make(f"customers/{id_}/cards", number % 8)
        # The parents' own slice comes to every point first.
        nth = 12 if point == "rest.page_spooled" else 2
        shop.command.kill_at(point, "run", "shop.yaml", nth=nth)
        shop.server.remove("customers", shop.server.objects("customers")[7][0])
        shop.server.arrive("customers", 2)
        shop.server.make(f"customers/{shop.server.objects('customers')[-1][0]}/cards", 5)
        for _ in range(2 if point in ("gate.intended", "gate.moved", "gate.committed") else 1):
            done = shop.command.run("run", "shop.yaml")
            assert done.code == 0, done.err
        current = sorted((tmp_path / "out" / "cards" / "current").iterdir())
        rows = [json.loads(line) for path in current for line in path.read_text().splitlines()]
        wanted = [
            (parent, id_)
            for parent, _ in shop.server.objects("customers")
            for id_, _ in shop.server.objects(f"customers/{parent}/cards")
        ]
        assert sorted((row["parent_id"], row["id"]) for row in rows) == sorted(wanted)

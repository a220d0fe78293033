"""A run frozen past its lease, a store or a sink put back or lost: each ends with its own words, nothing doubled."""

import shutil
from pathlib import Path

import pytest

from tests.acceptance.freezing import LEASE, frozen_while_another_goes_on
from tests.acceptance.shop import Shop
from tests.harness.faults import Outcome


@pytest.mark.parametrize("point", ["gate.planned", "gate.moved", "files.manifest_written"])
def test_frozen_past_its_lease(point: str, database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, lease=LEASE)
    frozen_while_another_goes_on(shop, point)
    assert shop.command.run("run", "shop.yaml").code == 0
    assert shop.compared().same


def test_held_by_another_process(database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, lease=600)
    with shop.command.frozen("run", "shop.yaml", point="gate.moved") as first:
        held = shop.command.run("run", "shop.yaml")
        assert held.code == 4, held.err
        assert f"process {first.process.pid}" in held.err
    assert first.end().code == 0  # nobody took over: it goes on as if nothing had been
    assert shop.compared().same


def _stopped(outcome: Outcome) -> str:
    assert outcome.code == 1, outcome.err
    return outcome.err


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Shop:
    made = Shop.open(database, tmp_path)
    assert made.command.run("run", "shop.yaml").code == 0
    made.arrive(3001, 3200)
    return made


def test_store_restored_from_an_older_copy(shop: Shop) -> None:
    store = shop.folder / ".penstock/store.db"
    shutil.copy(store, shop.folder / "old.db")
    assert shop.command.run("run", "shop.yaml").code == 0
    shop.arrive(3201, 3300)
    shutil.copy(shop.folder / "old.db", store)
    before = _tree(shop.folder / "out")
    text = _stopped(shop.command.run("run", "shop.yaml"))
    assert "shop/orders: the store is behind the sink: it has delivered slice" in text
    assert "The store was restored from an older copy, or another store was used in between" in text
    assert "Next: use the newest store; or `penstock state recover shop.yaml --stream orders`" in text
    assert _tree(shop.folder / "out") == before
    _recovered(shop)


def test_second_empty_store_under_the_same_name(shop: Shop) -> None:
    shop.write("second.yaml", store="second.db")
    before = _tree(shop.folder / "out")
    text = _stopped(shop.command.run("run", "second.yaml"))
    assert "shop/orders: the store knows nothing of this stream, but the sink holds its slice" in text
    assert "The store was lost, or this is a second store under the same pipeline name" in text
    assert "Next: use the store that belongs to this pipeline, or give this one another name" in text
    assert _tree(shop.folder / "out") == before
    assert shop.command.run("run", "shop.yaml").code == 0
    assert shop.compared().same


def test_output_folder_deleted(shop: Shop) -> None:
    shutil.rmtree(shop.folder / "out")
    text = _stopped(shop.command.run("run", "shop.yaml"))
    assert "shop/orders: the sink is behind the store: the store has delivered slice" in text
    assert "but the sink holds nothing of this stream. Its folder, table or database was deleted, emptied" in text
    assert "Next: put the sink back as it was; or, to deliver everything again, `penstock state recover" in text
    assert not (shop.folder / "out/orders").exists()
    _recovered(shop)


def test_output_folder_restored_from_an_older_copy(shop: Shop) -> None:
    shutil.copytree(shop.folder / "out", shop.folder / "older")
    assert shop.command.run("run", "shop.yaml").code == 0
    shutil.rmtree(shop.folder / "out")
    (shop.folder / "older").rename(shop.folder / "out")
    text = _stopped(shop.command.run("run", "shop.yaml"))
    assert "shop/orders: the sink is behind the store: the store has delivered slice" in text
    assert "The sink was restored from an older copy, or slices were removed from it" in text
    _recovered(shop)


def test_newest_file_deleted(shop: Shop) -> None:
    newest = max((shop.folder / "out/orders").glob("*.parquet"))
    newest.unlink()
    text = _stopped(shop.command.run("run", "shop.yaml"))
    assert "the output folder is incomplete and cannot be repaired" in text
    assert newest.name in text
    _recovered(shop)


def _recovered(shop: Shop) -> None:
    """The way out that the message names leads out."""
    recovered = shop.command.run("state", "recover", "shop.yaml", "--stream", "orders", "--yes")
    assert recovered.code == 0, recovered.err
    assert shop.command.run("run", "shop.yaml").code == 0
    assert shop.compared().same

"""The folder of spools: what is closed is durable and found by its digest, and a seal that is there stays."""

import os
import pickle
from pathlib import Path

import pytest

from penstock.links.spools import FolderSpools


@pytest.fixture
def spools(tmp_path: Path) -> FolderSpools:
    return FolderSpools(str(tmp_path / "spools"), "a/pipeline")


def gather(spools: FolderSpools, attempt: str, *, text: str = "rows", number: int = 1) -> str:
    with spools.gather("orders", number, attempt) as spool:
        Path(spool.path, "page").write_text(text)
        return spools.close_gathered(spool)


def test_a_closed_spool_is_found_by_its_digest(spools: FolderSpools) -> None:
    found = gather(spools, "a")
    path = pickle.loads(pickle.dumps(spools)).find_gathered("orders", found)
    assert Path(path or "", "page").read_text() == "rows"
    assert spools.find_gathered("orders", "0" * 64) is None
    assert spools.find_gathered("others", found) is None


def test_the_digest_is_of_what_was_gathered(spools: FolderSpools) -> None:
    assert gather(spools, "a") == gather(spools, "b") != gather(spools, "c", text="other rows")


def test_a_spool_that_was_changed_is_not_found(spools: FolderSpools) -> None:
    found = gather(spools, "a")
    Path(spools.find_gathered("orders", found) or "", "page").write_text("other")
    assert spools.find_gathered("orders", found) is None
    assert gather(spools, "b") == found, "gathered again, it takes the place of the damaged one"
    assert spools.find_gathered("orders", found) is not None


def test_files_are_on_disk_before_the_spool_has_its_name(spools: FolderSpools, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")).partition("-")[0])
        fsync(handle)

    def renamed(source: str, target: str) -> None:
        order.append("renamed")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    gather(spools, "a")
    assert order[-4:] == ["page", "_files.json", "renamed", "orders"]


def test_the_first_seal_stays(spools: FolderSpools) -> None:
    assert spools.write_seal("orders", 2, "ab", "first") == "first"
    assert spools.write_seal("orders", 2, "ab", "second") == "first"
    assert spools.write_seal("orders", 1, "cd", "earlier") == "earlier"
    assert spools.read_seals("orders") == ["earlier", "first"]
    spools.remove_seal("orders", 2, "ab")
    spools.remove_seal("orders", 2, "ab")
    assert spools.read_seals("orders") == ["earlier"]


def test_sweeping_leaves_later_slices_and_other_streams(spools: FolderSpools) -> None:
    for number in (1, 2):
        gather(spools, "a", number=number, text=str(number))
        spools.stage("orders", number, "a")
        spools.write_seal("orders", number, "ab", "seal")
    spools.stage("others", 1, "a")
    spools.sweep("orders", 1)
    root = Path(spools.folder, "a%2Fpipeline")
    assert all(name.startswith("0000000002-") for name in os.listdir(root / "orders"))
    assert len(os.listdir(root / "orders")) == 3
    assert os.listdir(root / "others") == ["0000000001-staged-a"]

"""A folder that was there before, or is not what it was: what `check` says, what `run` does, and the way out.

For slices and for full refreshes into files. What is refused or stopped changes nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import wiring
from tests.acceptance.what_was_there import ORDERS, TABLE, penstock, recover
from tests.harness.doubles import LoopMover

FILE = """\
store: {pipeline}.db
pipelines:
  {pipeline}:
    source: {{type: postgres, url: "{url}"}}
    sink: {{type: files, directory: {directory}, format: ndjson}}
    streams:
      orders: {{{stream}}}
"""
#: by mode: how the stream is read
MODES = {"slices": "cursor: updated_at, tiebreaker: id", "refresh": "accept_drop: true"}
every_mode = pytest.mark.parametrize("mode", MODES)
OURS = [1, 2, 3, 4, 5]
DATA = Path("out/orders")


@dataclass
class Shop:
    """Orders in a database, and a pipeline that delivers them into a folder."""

    db: psycopg.Connection[Any]
    url: str

    def write(self, mode: str, *, directory: str = "out", pipeline: str = "shop") -> None:
        text = FILE.format(pipeline=pipeline, url=self.url, directory=directory, stream=MODES[mode])
        Path(f"{pipeline}.yaml").write_text(text)

    def arrive(self, first: int, last: int) -> None:
        self.db.execute(ORDERS.format("orders", first, last).encode())

    def goes(self, pipeline: str = "shop") -> str:
        """`check` is content, and `run` ends with 0; what `check` said."""
        code, said = penstock("check", f"{pipeline}.yaml")
        assert (code, penstock("run", f"{pipeline}.yaml")[0]) == (0, 0)
        return said

    def refused(self, *words: str, code: int) -> str:
        """`check` and `run` say so, both end with the code, and no file has changed; what `run` said."""
        before = files()
        for verb in ("check", "run"):
            ended, said = penstock(verb, "shop.yaml")
            assert ended == code, (verb, said)
            for each in words:
                assert each in said, (verb, said)
        assert files() == before
        return said


def files() -> dict[str, bytes]:
    """Every file of every output folder."""
    found = [path for root in ("out", "other") for path in Path(root).rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in found}


def ids(folder: Path = DATA) -> list[int]:
    """What readers of the folder see."""
    seen = folder / "current" if (folder / "current").is_symlink() else folder
    lines = [line for path in seen.glob("*.ndjson") for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


@pytest.fixture
def shop(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(TABLE.format("orders").encode())
        db.execute("CREATE INDEX ON orders (updated_at, id)")
        made = Shop(db, database)
        made.arrive(1, 5)
        yield made


# ---------------------------------------------------------------- before the first run


@every_mode
@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_is_not_there_or_empty(shop: Shop, mode: str, there: bool) -> None:
    if there:
        DATA.mkdir(parents=True)
    shop.write(mode)
    shop.goes()
    assert ids() == OURS


@every_mode
def test_files_of_others(shop: Shop, mode: str) -> None:
    """Slices come beside them, and `check` says that readers see both; a full refresh is refused."""
    DATA.mkdir(parents=True)
    (DATA / "theirs.ndjson").write_text('{"id": 91}\n')
    shop.write(mode)
    if mode == "refresh":
        shop.refused("holds other files (theirs.ndjson)", "state migrate shop.yaml --stream orders", code=2)
    else:
        said = shop.goes()
        assert "holds files that this pipeline did not write (theirs.ndjson): readers see both" in said
        assert ids() == [*OURS, 91]


@every_mode
def test_a_folder_of_another_pipeline(shop: Shop, mode: str) -> None:
    shop.write("slices", pipeline="theirs")
    shop.goes("theirs")
    shop.write(mode)
    if mode == "refresh":
        shop.refused("which pipeline 'theirs' writes too", "a directory of its own", code=2)
    else:
        said = shop.goes()
        assert "holds files that this pipeline did not write" in said
        assert ids() == sorted(OURS * 2)


# ---------------------------------------------------------------- after a run


@every_mode
@pytest.mark.parametrize("gone", ["out", "out/orders"])
def test_a_folder_that_was_removed(shop: Shop, mode: str, gone: str) -> None:
    shop.write(mode)
    shop.goes()
    shutil.rmtree(gone)
    recover(
        shop.refused(
            "the output folder is incomplete and cannot be repaired" if "/" in gone else "holds nothing", code=1
        )
    )
    shop.goes()
    assert ids() == OURS


@every_mode
def test_a_folder_that_was_made_again(shop: Shop, mode: str) -> None:
    """Also where nothing is new."""
    shop.write(mode)
    shop.goes()
    shutil.rmtree("out")
    DATA.mkdir(parents=True)
    shop.refused("the store has delivered slice 1, but the sink holds nothing", code=1)
    shop.arrive(6, 7)
    recover(shop.refused("the store has delivered slice 1, but the sink holds nothing", code=1))
    shop.goes()
    assert ids() == [*OURS, 6, 7]


@every_mode
def test_a_folder_that_was_renamed(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    DATA.rename("out/sold")
    shop.refused("the output folder is incomplete and cannot be repaired", "restore the folder", code=1)
    Path("out/sold").rename(DATA)
    shop.arrive(6, 7)
    shop.goes()
    assert ids() == [*OURS, 6, 7]


@every_mode
def test_another_directory(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    shop.write(mode, directory="other")
    said = shop.refused("the store has delivered slice 1, but the sink holds nothing", "put the sink back", code=1)
    recover(said)
    shop.goes()
    assert ids(Path("other/orders")) == OURS
    assert ids() == OURS


@every_mode
def test_a_folder_restored_from_an_older_copy(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    shutil.copytree("out", "copy", symlinks=True)
    shop.arrive(6, 7)
    shop.goes()
    shutil.rmtree("out")
    Path("copy").rename("out")
    said = shop.refused("the store has delivered slice 2, the sink holds only slice 1", code=1)
    assert ids() == OURS
    recover(said)
    shop.goes()
    assert ids() == [*OURS, 6, 7]


# ---------------------------------------------------------------- another file system


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[str]:
    """A folder on another file system than the output folder."""
    # Temporary files are on a disk or in memory: one of the two is another file system.
    place = next(place for place in ("/dev/shm", "/var/tmp") if os.stat(place).st_dev != tmp_path.stat().st_dev)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield folder


@every_mode
def test_a_folder_on_another_file_system(shop: Shop, mode: str, elsewhere: str) -> None:
    """A file cannot be renamed into it: a slice would be committed, and never be visible."""
    Path("out").mkdir()
    DATA.symlink_to(elsewhere)
    shop.write(mode)
    said = shop.refused("is on another file system than", "out/_penstock", code=2)
    assert "set `directory` of the sink to a folder on that file system" in said
    DATA.unlink()
    shop.goes()
    assert ids() == OURS


def test_a_folder_that_comes_to_another_file_system_later(shop: Shop, elsewhere: str) -> None:
    """An open slice is not checked again: nothing of it is committed either."""
    shop.write("slices")
    shop.goes()
    shop.arrive(6, 7)
    shutil.copytree(DATA, elsewhere, dirs_exist_ok=True)
    shutil.rmtree(DATA)
    DATA.symlink_to(elsewhere)
    shop.refused("is on another file system than", code=2)
    assert [path.name for path in Path("out/_penstock/shop/orders/manifests").iterdir()] == ["000000000001.json"]
    DATA.unlink()
    shutil.copytree(elsewhere, DATA)
    shop.goes()
    assert ids() == [*OURS, 6, 7]

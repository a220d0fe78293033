"""What the commands do with a stream of files: undo, rewind, reset, recover, check, drift."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.harness.faults import Command
from tests.sources.files.folders import table, write

PIPELINE = """\
store: store.db
pipelines:
  shop:
    source: {type: files, directory: in, settle: 0}
    sink: {type: files, directory: out}
    slice_bytes: 4096
    streams:
      things: {path: "*.csv"}
"""


class Shop:
    def __init__(self, folder: Path) -> None:
        self.folder, self.command = folder, Command(folder)
        (folder / "shop.yaml").write_text(PIPELINE)

    def put(self, name: str, *rows: str, header: str = "id,name") -> None:
        path = self.folder / "in" / name
        path.parent.mkdir(exist_ok=True)
        (self.folder / "new").write_text("\n".join((header, *rows, "")))
        (self.folder / "new").rename(path)

    def does(self, *words: str, code: int = 0) -> str:
        done = self.command.run(*words)
        assert done.code == code, (words, done.out, done.err)
        return done.out + done.err

    def ids(self) -> list[int]:
        paths = sorted((self.folder / "out" / "things").glob("*.parquet"))
        return [row["id"] for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    for number in range(100):
        shop.put(f"{number:03}.csv", f"{number},a")
    shop.does("run", "shop.yaml")
    assert shop.ids() == list(range(100))
    return shop


def test_undo_rewind_and_reset(shop: Shop) -> None:
    shop.put("100.csv", "100,b")
    shop.does("run", "shop.yaml")
    assert "101 files seen, last 100.csv" in shop.does("status", "shop.yaml")
    shop.does("state", "undo", "shop.yaml", "--stream", "things", "--yes")
    assert "100 files seen, last 099.csv" in shop.does("status", "shop.yaml")
    shop.does("run", "shop.yaml")
    assert Counter(shop.ids())[100] == 2, "an undo delivers again"
    shop.put("101.csv", "101,c")
    shop.does("rewind", "shop.yaml", "--to", "now", "--stream", "things", "--yes")
    shop.does("run", "shop.yaml")
    assert 101 not in shop.ids(), "it counts as delivered"
    shop.does("state", "reset", "shop.yaml", "--stream", "things", "--yes")
    shop.does("run", "shop.yaml")
    assert Counter(shop.ids()) == Counter([*range(102), *range(100), 100, 100])


def test_types_that_were_guessed_are_kept_and_other_columns_are_drift(shop: Shop) -> None:
    # Read alone, its name would be a number.
    shop.put("100.csv", "100,7")
    assert "name was" not in shop.does("check", "shop.yaml")
    shop.does("run", "shop.yaml")
    shop.put("101.csv", "101,a,1.5", header="id,name,price")
    assert "column price is new" in shop.does("check", "shop.yaml", "--verbose") + shop.does("run", "shop.yaml")
    assert shop.ids() == list(range(102))
    text = (shop.folder / "shop.yaml").read_text().replace('"*.csv"', '"*.csv", drift: freeze')
    (shop.folder / "shop.yaml").write_text(text)
    shop.put("102.csv", "102,2.5", header="id,price")
    assert "its columns are frozen, and have changed" in shop.does("run", "shop.yaml", code=2)
    assert shop.ids() == list(range(102))


def test_a_file_of_an_open_slice_changes_and_the_slice_is_dropped(shop: Shop) -> None:
    shop.put("200.csv", "200,a")
    assert shop.command.kill_at("gate.moved", "run", "shop.yaml")["point"] == "gate.moved"
    shop.put("200.csv", "200,a", "201,b")
    shop.put("300.csv", "300,a")
    assert "and an open slice reads it as it was" in shop.does("check", "shop.yaml", code=1)
    said = shop.does("run", "shop.yaml", code=1)
    assert "200.csv" in said
    assert "penstock state recover shop.yaml --stream things" in said
    shop.does("state", "recover", "shop.yaml", "--stream", "things", "--yes")
    shop.does("run", "shop.yaml")
    assert shop.ids() == [*range(100), 200, 201, 300]


def test_a_process_that_was_replaced_while_it_was_frozen(shop: Shop) -> None:
    """Its slice and its set of files are those of the past: it delivers nothing."""
    (shop.folder / "shop.yaml").write_text(PIPELINE.replace("slice_bytes: 4096", "lease_seconds: 3"))
    shop.put("200.csv", "200,a")
    with shop.command.frozen("run", "shop.yaml", point="gate.gathered") as frozen:
        shop.put("300.csv", "300,a")
        import time

        time.sleep(4)
        shop.does("run", "shop.yaml")
        shop.put("400.csv", "400,a")
    assert frozen.end().code == 4
    shop.does("run", "shop.yaml")
    assert shop.ids() == [*range(100), 200, 300, 400]


def test_a_damaged_file_stops_its_own_stream_only(shop: Shop) -> None:
    text = PIPELINE + '      others: {path: "*.parquet"}\n'
    (shop.folder / "shop.yaml").write_text(text)
    write(shop.folder / "in" / "a.parquet", table([1]))
    whole = (shop.folder / "in" / "a.parquet").read_bytes()
    (shop.folder / "in" / "a.parquet").write_bytes(whole[:100])
    shop.put("100.csv", "100,a")
    assert "a.parquet in" in shop.does("run", "shop.yaml", code=2)
    assert shop.ids() == list(range(101))

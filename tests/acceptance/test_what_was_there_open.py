"""A sink that is not what it was while a slice is open: `check` and `plan` come to what `run` comes to.

A run finishes an open slice before anything else, and it can do so only if the sink holds that slice or the one before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import wiring
from penstock.lake.lake import Lake
from penstock.lake.options import LakeOptions
from penstock.lake.tables import load_table, open_catalog
from tests.acceptance.what_was_there import ORDERS, TABLE, leave_open, penstock, recover
from tests.harness.doubles import LoopMover

FILE = """\
store: shop.db
pipelines:
  shop:
    source: {{type: postgres, url: "{url}"}}
    sink: {sink}
    streams:
      orders: {{cursor: updated_at, tiebreaker: id}}
"""
SINKS = {
    "files": "{{type: files, directory: out, format: ndjson}}",
    "lake": "{{type: lake}}",
    "postgres": '{{type: postgres, url: "{url}", schema: copies}}',
}


@dataclass
class Shop:
    """Orders in a database, delivered into a sink in two slices; a third one is open."""

    db: psycopg.Connection[Any]
    url: str
    sink: str

    def arrive(self, first: int, last: int) -> None:
        self.db.execute(ORDERS.format("orders", first, last).encode())

    @property
    def lake(self) -> Lake:
        return Lake.from_options(LakeOptions(), folder=".", pipeline="shop")

    def lose(self) -> None:
        """Everything that the sink holds is gone."""
        if self.sink == "files":
            shutil.rmtree("out")
        elif self.sink == "lake":
            open_catalog(self.lake).drop_table(("shop", "orders"))
        else:
            self.db.execute("DROP TABLE copies.orders")

    def delivered(self) -> list[int]:
        if self.sink == "files":
            lines = [line for file in Path("out/orders").glob("*.ndjson") for line in file.read_text().splitlines()]
            return sorted(json.loads(line)["id"] for line in lines)
        if self.sink == "lake":
            table = load_table(self.lake, "orders")
            assert table is not None
            return sorted(table.scan().to_arrow().column("id").to_pylist())
        return [row[0] for row in self.db.execute("SELECT id FROM copies.orders ORDER BY 1")]


@pytest.fixture(params=SINKS)
def shop(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    Path("shop.yaml").write_text(FILE.format(url=database, sink=SINKS[request.param].format(url=database)))
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE SCHEMA copies")
        db.execute(TABLE.format("orders").encode())
        db.execute("CREATE INDEX ON orders (updated_at, id)")
        made = Shop(db, database, request.param)
        for last in (5, 10):
            made.arrive(last - 4, last)
            assert penstock("run", "shop.yaml")[0] == 0
        made.arrive(11, 15)
        yield made


def refused(*words: str, code: int = 1) -> str:
    """`check`, `plan` and `run` say so and end with the code; what `run` said."""
    said = ""
    for verb in ("check", "plan", "run"):
        ended, said = penstock(verb, "shop.yaml")
        assert ended == code, (verb, said)
        assert all(word in said for word in words), (verb, said)
    return said


@pytest.mark.parametrize("at", ["gate.asked", "gate.committed"])
def test_an_open_slice_that_can_be_finished(shop: Shop, at: str) -> None:
    leave_open(at=at)
    shop.arrive(16, 20)
    for verb in ("check", "plan", "run"):
        code, said = penstock(verb, "shop.yaml")
        assert code == 0, (verb, said)
    assert shop.delivered() == list(range(1, 21))


@pytest.mark.parametrize("at", ["gate.asked", "gate.committed"])
def test_the_sink_has_lost_everything(shop: Shop, at: str) -> None:
    leave_open(at=at)
    shop.lose()
    recover(refused("is gone" if shop.sink == "postgres" else "the sink holds nothing"))
    for verb in ("check", "run"):
        code, said = penstock(verb, "shop.yaml")
        assert code == 0, (verb, said)
    assert shop.delivered() == list(range(1, 16))


def test_the_store_is_older_than_the_sink(shop: Shop) -> None:
    """A slice is open in it, and the sink holds a later one."""
    leave_open()
    copies = {path: path.read_bytes() for path in Path().glob("*.db*")}
    assert penstock("run", "shop.yaml")[0] == 0
    shop.arrive(16, 20)
    assert penstock("run", "shop.yaml")[0] == 0
    for path in Path().glob("*.db*"):
        path.unlink()
    for path, content in copies.items():
        path.write_bytes(content)
    recover(refused("the store is behind the sink"))
    assert penstock("run", "shop.yaml")[0] == 0
    assert shop.delivered() == list(range(1, 21))

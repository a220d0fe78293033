"""`state migrate`: a stream begins again in another form, and what it delivered before is kept."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.harness.faults import Command, Outcome

FILES, LAKE = "{type: files, directory: out}", "{type: lake, namespace: shop}"
WHOLE, ONWARD, MERGED = "{}", "{cursor: id, unique: true}", "{cursor: id, unique: true, mode: merge}"
MIGRATE = ("state", "migrate", "shop.yaml", "--stream", "orders", "--yes")


class Shop:
    """A table of 50 orders, and a pipeline file that changes."""

    def __init__(self, url: str, folder: Path, sink: str) -> None:
        self.url, self.folder, self.sink = url, folder, sink
        self.command = Command(folder, "loop", {"DATABASE_URL": url})
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("create table orders (id bigint generated always as identity primary key, note text)")
            db.execute("insert into orders (note) select 'note ' || g from generate_series(1, 50) g")

    def reads(self, stream: str) -> None:
        self.folder.joinpath("shop.yaml").write_text(
            "pipelines:\n  shop:\n    source: {type: postgres, url: '${DATABASE_URL}'}\n"
            f"    sink: {self.sink}\n    streams: {{orders: {stream}}}\n"
        )

    def run(self, *words: str) -> Outcome:
        return self.command.run(*(words or ("run", "shop.yaml")))

    def insert(self, count: int) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute("insert into orders (note) select 'new' from generate_series(1, %s)", (count,))

    def files(self, folder: str) -> list[int]:
        found = sorted(Path(self.folder, folder).glob("*.parquet"))
        return sorted(n for path in found for n in pq.read_table(path, columns=["id"]).column("id").to_pylist())

    def table(self, name: str) -> list[int]:
        warehouse = self.folder / "lake"
        catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=f"file://{warehouse}")
        found: list[int] = catalog.load_table(("shop", name)).scan().to_arrow().column("id").to_pylist()
        return sorted(found)

    def tables(self) -> list[str]:
        warehouse = self.folder / "lake"
        catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=f"file://{warehouse}")
        return sorted(name for _, name in catalog.list_tables("shop"))


@pytest.mark.parametrize("point", ["files.manifests_archived", "engine.archived"])
def test_a_full_refresh_into_files_gets_a_cursor(database: str, tmp_path: Path, point: str) -> None:
    shop = Shop(database, tmp_path, FILES)
    shop.reads(WHOLE)
    assert shop.run().code == 0
    shop.reads(ONWARD)
    for verb in ("check", "run"):
        refused = shop.run(verb, "shop.yaml")
        assert refused.code == 2
        assert "penstock state migrate shop.yaml --stream orders" in refused.out + refused.err
    shop.command.kill_at(point, *MIGRATE)
    # Whatever the kill left, a run does not take it for whole.
    assert shop.run().code != 0
    moved = shop.run(*MIGRATE)
    assert moved.code == 0, moved.err
    shop.insert(5)
    assert shop.run().code == 0
    assert shop.files("out/orders") == list(range(1, 56))
    (before,) = tmp_path.glob("out/_before/orders-*")
    assert shop.files(f"out/_before/{before.name}/data/current") == list(range(1, 51))
    assert shop.run().code == 0
    assert shop.files("out/orders") == list(range(1, 56))


def test_slices_in_files_become_a_full_refresh(database: str, tmp_path: Path) -> None:
    shop = Shop(database, tmp_path, FILES)
    shop.reads(ONWARD)
    assert shop.run().code == 0
    shop.reads(WHOLE)
    assert "state migrate shop.yaml" in shop.run().err
    assert shop.run(*MIGRATE).code == 0
    assert shop.run().code == 0
    assert shop.files("out/orders/current") == list(range(1, 51))
    (before,) = tmp_path.glob("out/_before/orders-*")
    assert shop.files(f"out/_before/{before.name}/data") == list(range(1, 51))


def test_a_folder_that_another_pipeline_writes_too_stays(database: str, tmp_path: Path) -> None:
    shop = Shop(database, tmp_path, FILES)
    shop.reads(ONWARD)
    assert shop.run().code == 0
    (tmp_path / "out/_penstock/other/orders/manifests").mkdir(parents=True)
    refused = shop.run(*MIGRATE)
    assert refused.code == 2
    assert "cannot be moved away: pipeline 'other' writes it too" in refused.err
    assert shop.files("out/orders") == list(range(1, 51))


def test_a_full_refresh_into_the_lake_gets_a_cursor(database: str, tmp_path: Path) -> None:
    """The new table has a folder of its own: the sweep of its leftovers does not touch the old one's files."""
    shop = Shop(database, tmp_path, LAKE)
    shop.reads(WHOLE)
    assert shop.run().code == 0
    shop.reads(ONWARD)
    assert "penstock state migrate shop.yaml --stream orders" in shop.run().err
    shop.command.kill_at("engine.archived", *MIGRATE)
    assert shop.run().code != 0
    moved = shop.run(*MIGRATE)
    assert moved.code == 0, moved.err
    for _ in range(3):
        shop.insert(5)
        assert shop.run().code == 0
    assert shop.table("orders") == list(range(1, 66))
    (old,) = [name for name in shop.tables() if name.startswith("orders_before_")]
    assert shop.table(old) == list(range(1, 51))
    assert shop.run("upkeep", "shop.yaml", "--only", "orphans").code == 0
    assert shop.table(old) == list(range(1, 51))


def test_append_in_the_lake_becomes_merge(database: str, tmp_path: Path) -> None:
    shop = Shop(database, tmp_path, LAKE)
    shop.reads(ONWARD)
    assert shop.run().code == 0
    shop.reads(MERGED)
    refused = shop.run("check", "shop.yaml")
    assert refused.code == 2
    assert "penstock state migrate shop.yaml --stream orders" in refused.out + refused.err
    assert shop.run(*MIGRATE).code == 0
    assert shop.run("check", "shop.yaml").code == 0


def test_append_in_postgres_becomes_upsert(database: str, tmp_path: Path) -> None:
    shop = Shop(database, tmp_path, "{type: postgres, url: '${DATABASE_URL}', schema: copies}")
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("create schema copies")
        shop.reads("{cursor: id, unique: true, mode: append}")
        assert shop.run().code == 0
        shop.reads("{cursor: id, unique: true, mode: upsert}")
        assert shop.run("check", "shop.yaml").code == 2
        assert shop.run(*MIGRATE).code == 0
        assert shop.run().code == 0
        names = {name for (name,) in db.execute("select tablename from pg_tables where schemaname = 'copies'")}
        (old,) = names - {"orders"}
        for name in names:
            assert db.execute(f"select count(*) from copies.{name}".encode()).fetchone() == (50,)
        assert old.startswith("orders_before_")


def test_a_table_that_was_renamed_by_hand_keeps_its_files(database: str, tmp_path: Path) -> None:
    shop = Shop(database, tmp_path, LAKE)
    shop.reads(ONWARD)
    assert shop.run().code == 0
    warehouse = tmp_path / "lake"
    catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=f"file://{warehouse}")
    catalog.rename_table(("shop", "orders"), ("shop", "old_orders"))
    assert shop.run().code == 1
    assert shop.run("state", "recover", "shop.yaml", "--yes").code == 0
    for _ in range(3):
        shop.insert(1)
        assert shop.run().code == 0
    assert shop.run("upkeep", "shop.yaml", "--only", "orphans").code == 0
    assert shop.table("old_orders") == list(range(1, 51))
    assert shop.table("orders") == list(range(1, 54))

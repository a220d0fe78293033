"""The examples, carried out one after the other on a real Postgres with the real command.

Rows are moved by a loop instead of Spark, to be quick; what must be merged is merged by Spark. One row into an empty
table needs no merge, so Spark starts only twice.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.docs.pages import TOP
from tests.docs.test_walks import Walk
from tests.harness.faults import Command
from tests.harness.postgres import PostgresServer
from tests.harness.serving import serving

LAKE = ("postgres-to-lake.yaml", "lake-to-files.yaml", "lake-to-lake.yaml", "lake-to-postgres.yaml")
POSTGRES = "postgres-to-postgres.yaml"
HTTP = ("lake-to-http.yaml", "http-to-lake.yaml")
SHOP = """
    create table customers (
        id bigint primary key, name text, country text, updated_at timestamptz not null default now());
    create table orders (
        id bigint primary key, status text, created_at timestamptz not null default now(),
        updated_at timestamptz not null default now());
    create index on customers (updated_at, id);
    create index on orders (updated_at, id);
    insert into customers values (1, 'Ana', 'PT');
    insert into orders select n, case when n % 10 = 0 then 'paid' else 'new' end from generate_series(1, 100) n"""
LATER = """
    update customers set country = 'BE', updated_at = now() where id = 1;
    insert into customers values (2, 'Bea', 'BE'), (3, 'Caio', 'PT');
    update orders set status = 'paid', updated_at = now() where id <= 3;
    insert into orders values (101, 'paid')"""

Row = dict[str, object]


@pytest.fixture
def walk(tmp_path: Path, database: str, postgres_server: PostgresServer) -> Iterator[Walk]:
    for name in (*LAKE, POSTGRES, *HTTP):
        shutil.copy(TOP / "examples" / name, tmp_path)
    store = postgres_server.database()
    yield Walk(tmp_path, database, store)
    postgres_server.drop(urlsplit(store).path.removeprefix("/"))


def run(walk: Walk, *words: str) -> str:
    return walk.penstock("run", *words)


def files(walk: Walk, stream: str) -> list[Row]:
    """What was exported, in the order of the slices."""
    paths = sorted((walk.folder / "out" / stream).glob("*.ndjson"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as db:
        return db.execute(query.encode()).fetchall()


def table(walk: Walk, catalog_name: str, name: str) -> list[Row]:
    """A table as plain PyIceberg reads it, in the order; each catalog lies in the folder of its name."""
    catalog = SqlCatalog(catalog_name, uri=f"sqlite:///{walk.folder}/{catalog_name}/catalog.db")
    try:
        rows: list[Row] = catalog.load_table(name).scan().to_arrow().sort_by("_ingest_seq").to_pylist()
    finally:
        catalog.close()
    return rows


def test_a_shop_through_the_lake(walk: Walk) -> None:
    walk.sql(SHOP)
    run(walk, "postgres-to-lake.yaml")
    run(walk, "lake-to-files.yaml")
    run(walk, "lake-to-lake.yaml")
    run(walk, "lake-to-postgres.yaml")
    assert rows(walk.store_url, "SELECT count(*) FROM served_orders") == [(100,)]
    assert len(files(walk, "paid_orders")) == 10
    assert files(walk, "customers") == [{"id": 1, "name": "Ana", "_change": "upsert"}]
    assert [row["_tombstone"] for row in table(walk, "lake", "portugal.customers")] == [False]

    walk.sql(LATER)
    run(walk, "postgres-to-lake.yaml")
    run(walk, "lake-to-files.yaml")
    run(walk, "lake-to-lake.yaml")
    run(walk, "lake-to-postgres.yaml")
    for name in ("orders", "customers"):
        query = f"SELECT t::text FROM {name} t ORDER BY id"
        assert rows(walk.store_url, query.replace(name, f"served_{name}")) == rows(walk.url, query)
    customers = {row["id"]: row["country"] for row in table(walk, "lake", "shop.customers")}
    assert customers == {1: "BE", 2: "BE", 3: "PT"}
    assert len(table(walk, "lake", "shop.orders")) == 104
    assert [row["id"] for row in files(walk, "paid_orders")][10:] == [1, 2, 3, 101]
    assert [(row["id"], row["_change"]) for row in files(walk, "customers")[1:]] == [(n, "upsert") for n in (1, 2, 3)]
    orders, archived = (
        table(walk, place, name) for place, name in (("lake", "shop.orders"), ("archive", "archive.orders"))
    )
    assert [row["id"] for row in archived] == [row["id"] for row in orders]
    kept = {row["id"]: row["_tombstone"] for row in table(walk, "lake", "portugal.customers")}
    assert kept == {1: True, 2: True, 3: False}

    for name in LAKE:
        assert "nothing new" in run(walk, name)


def test_a_shop_from_one_database_into_another(walk: Walk) -> None:
    walk.sql(SHOP)
    run(walk, POSTGRES)
    walk.sql(f"{LATER}; delete from customers where id = 1")
    said = run(walk, POSTGRES)
    assert "1 deleted" in said
    for name in ("orders", "customers"):
        query = f"SELECT t::text FROM {name} t ORDER BY id"
        assert rows(walk.store_url, query) == rows(walk.url, query)


def test_a_lake_over_http_into_another_lake(walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    other = walk.folder / "other"
    other.mkdir()
    shutil.copy(walk.folder / "http-to-lake.yaml", other)
    command = Command(other, "loop")
    created = command.run("token", "create", "http-to-lake.yaml", "--name", "forward", "--scope", "ingest")
    assert created.code == 0, created.err
    monkeypatch.setenv("RECEIVER_TOKEN", created.out.strip())
    walk.sql(SHOP)
    run(walk, "postgres-to-lake.yaml")
    with serving(command, "http-to-lake.yaml") as url:
        monkeypatch.setenv("RECEIVER_URL", url)
        run(walk, "lake-to-http.yaml")
        _land(command)
        walk.sql(LATER)
        run(walk, "postgres-to-lake.yaml")
        run(walk, "lake-to-http.yaml")
        _land(command)
        assert "nothing new" in run(walk, "lake-to-http.yaml")
    sent = table(walk, "lake", "shop.orders")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{other}/inbox/catalog.db")
    try:
        found = catalog.load_table("landing.orders").scan().to_arrow().sort_by("_ingest_seq").to_pylist()
    finally:
        catalog.close()
    columns = ("id", "status", "created_at", "updated_at")
    assert len(found) == 104
    assert [[row[each] for each in columns] for row in found] == [[row[each] for each in columns] for row in sent]


def _land(command: Command) -> None:
    done = command.run("run", "http-to-lake.yaml")
    assert done.code == 0, done.err

"""The pages on recipes, roles and installation, carried out: each recipe alone, on a database of its own."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pyarrow.dataset as ds
import pytest
from tests.docs.pages import TOP, Block, blocks
from tests.docs.test_walks import SHOP, Walk, fits, sessions, shapes
from tests.harness.postgres import PostgresServer

from penstock.links.spark import jars

RECIPES, ROLES, INSTALL = (TOP / "docs" / f"{name}.md" for name in ("recipes", "roles", "install"))
EXAMPLES = TOP / "examples"


def recipe(heading: str) -> list[Block]:
    """The fenced blocks of one recipe, in order."""
    text = RECIPES.read_text()
    start = text.index(f"\n## {heading}\n")
    end = text.find("\n## ", start + 1)
    first, last = (text.count("\n", 0, place) + 1 for place in (start, end if end > 0 else len(text)))
    return [block for block in blocks(RECIPES) if first < block.line <= last]


def follow(walk: Walk, heading: str) -> None:
    """Do what a recipe says: a pipeline file replaces the one before."""
    for block in recipe(heading):
        match block.language:
            case "yaml":
                (walk.folder / "shop.yaml").write_text(block.text)
            case "sql":
                walk.sql(block.text)
            case "console":
                for command, shown in sessions(block.text):
                    printed = walk.penstock(*shlex.split(command))
                    assert fits(shapes(printed), shapes(shown)), f"{block}: it prints\n{printed}"


def rows(walk: Walk, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(walk.url) as db:
        return db.execute(query.encode()).fetchall()


@pytest.fixture
def walk(tmp_path: Path, database: str) -> Walk:
    made = Walk(tmp_path, database)
    made.sql(SHOP)
    return made


def test_cron_with_an_env_file() -> None:
    variables, crontab = recipe("Cron with an env file")
    assert variables.text in (EXAMPLES / "penstock.env").read_text()
    assert crontab.text in (EXAMPLES / "crontab").read_text(), "test_schedulers runs the example"


def test_nightly_full_and_hourly_incremental(walk: Walk) -> None:
    follow(walk, "Nightly full and hourly incremental")
    *_, crontab = recipe("Nightly full and hourly incremental")
    for line in crontab.text.splitlines():
        words = shlex.split(line.partition(".venv/bin/penstock ")[2].partition(" --env-file")[0])
        walk.penstock(*words)
    for name in ("orders", "orders_nightly"):
        assert rows(walk, f"SELECT count(*) FROM copies.{name}") == [(20,)]
    walk.sql("DELETE FROM orders WHERE id = 1")
    walk.penstock("run", "shop.yaml")
    assert rows(walk, "SELECT id FROM copies.orders EXCEPT SELECT id FROM copies.orders_nightly") == [(1,)]


def test_deletes_without_triggers(walk: Walk) -> None:
    follow(walk, "Deletes without triggers")
    assert rows(walk, "SELECT count(*), min(id) FILTER (WHERE id = 3) FROM copies.orders") == [(19, None)]


def test_deletes(walk: Walk) -> None:
    follow(walk, "Deletes")
    walk.sql("DELETE FROM orders WHERE id = 8")
    walk.penstock("run", "shop.yaml")
    assert rows(walk, "SELECT count(*) FROM copies.orders WHERE id = 8") == [(1,)], "a cursor sees no delete"
    assert rows(walk, "SELECT id FROM copies.live_orders ORDER BY id") == rows(
        walk, "SELECT id FROM orders ORDER BY id"
    )


def test_change_the_cursor(walk: Walk) -> None:
    follow(walk, "Change the cursor")
    walk.sql("UPDATE orders SET status = 'paid', updated_at = now() WHERE id = 3")
    walk.penstock("run", "shop.yaml")
    query = "SELECT t::text FROM {} t ORDER BY id"
    assert rows(walk, query.format("copies.orders")) == rows(walk, query.format("orders"))


def test_rename_a_column(walk: Walk) -> None:
    follow(walk, "Rename a column")
    values = "SELECT id, {} FROM {} ORDER BY id"
    assert rows(walk, values.format("amount", "copies.orders")) == rows(walk, values.format("total", "orders"))


def test_add_a_table(walk: Walk) -> None:
    follow(walk, "Add a table")
    assert ds.dataset(walk.folder / "out" / "orders").count_rows() == 20
    assert ds.dataset(walk.folder / "out" / "customers").count_rows() == 1
    assert not (walk.folder / "out" / "events").exists()


def test_files_into_postgres(walk: Walk) -> None:
    place = walk.folder / "incoming"
    for folder in ("payments", "visits"):
        (place / folder).mkdir(parents=True)
    (place / "payments" / "1.csv").write_text("id,order_id,amount,paid_at\n1,7,9.5,2026-01-31T10:00:00Z\n2,8,1,\n")
    (place / "visits" / "1.ndjson").write_text('{"at":"2026-01-31T10:00:00Z","page":"/"}\n')
    follow(walk, "Files into Postgres")
    (place / "payments" / "2.csv").write_text("id,order_id,amount,paid_at\n2,8,1.25,2026-01-31T10:00:00Z\n")
    (place / "visits" / "1.ndjson").unlink()
    walk.penstock("run", "shop.yaml")
    assert rows(walk, "SELECT id, amount::text FROM copies.payments ORDER BY id") == [(1, "9.50"), (2, "1.25")]
    assert rows(walk, "SELECT page FROM copies.visits") == [("/",)]


def test_every_recipe_has_its_test() -> None:
    headings = re.findall(r"^## (.+)$", RECIPES.read_text(), re.MULTILINE)
    tests = {name.removeprefix("test_").replace("_", " ") for name in globals() if name.startswith("test_")}
    assert {heading.lower() for heading in headings} <= tests


@pytest.fixture
def warehouse(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.database()
    yield url
    postgres_server.drop(urlsplit(url).path.removeprefix("/"))


def test_the_roles_suffice(
    tmp_path: Path, database: str, warehouse: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = blocks(ROLES, "sql")
    reader, writer = block.text.split("-- in the sink's database\n")
    urls = {}
    for url, statements, name, role in (
        (database, reader, "shop", "penstock_reader"),
        (warehouse, writer, "warehouse", "penstock_writer"),
    ):
        place = urlsplit(url).path.removeprefix("/")
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
            db.execute(f"REVOKE ALL ON DATABASE {place} FROM PUBLIC".encode())
            db.execute(b"CREATE TABLE orders (id bigint PRIMARY KEY, updated_at timestamptz NOT NULL)")
            if role == "penstock_reader":
                db.execute(b"CREATE INDEX ON orders (updated_at, id)")
                db.execute(b"INSERT INTO orders SELECT n, '2026-01-01' FROM generate_series(1, 9) n")
                db.execute(b"CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text)")
                db.execute(b"INSERT INTO events (what) VALUES ('opened')")
            db.execute(statements.replace(f"DATABASE {name} ", f"DATABASE {place} ").encode())
        urls[role] = postgres_server.url(place, user=role, password="change-me")
    try:
        monkeypatch.setenv("STORE", urls["penstock_writer"])
        (tmp_path / "shop.yaml").write_text("""
store: "${STORE}"
pipelines:
  shop:
    source: {type: postgres, url: "${DATABASE_URL}"}
    sink: {type: postgres, url: "${STORE}", schema: copies}
    streams:
      orders: {cursor: updated_at, tiebreaker: id, into: public.orders}
      events: {cursor: id, unique: true}
      all_events: {table: events}
""")
        walk = Walk(tmp_path, urls["penstock_reader"])
        assert "3 streams can be synced" in walk.penstock("check", "shop.yaml")
        assert "shop: complete; 11 rows" in walk.penstock("run", "shop.yaml")
        checked = walk.penstock("check", "shop.yaml", "--verbose")
        assert "GRANT" not in checked
    finally:
        for url, role in ((database, "penstock_reader"), (warehouse, "penstock_writer")):
            with psycopg.connect(url, autocommit=True) as db:
                db.execute(f"DROP OWNED BY {role}".encode())
                db.execute(f"DROP ROLE {role}".encode())


def test_the_commands_for_jars_and_extras_name_what_there_is() -> None:
    text = INSTALL.read_text()
    (fetched,) = re.findall(r"penstock\.links\.spark\.jars (.+)$", text, re.MULTILINE)
    assert set(fetched.split()) <= set(jars.NAMES)
    assert all(f"`{name}`" in text for name in jars.NAMES)
    extras = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"`penstock\[(\w+)\]`", text)) == set(extras)

"""What the pages show, carried out on a real Postgres with the real command.

Rows are moved by a loop instead of Spark, to be quick; Spark starts for a merge, and where a page's query is for Spark.
What the command prints must have the shape that the pages show. Which test carries out what is in test_snippets.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pyarrow.dataset as ds
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from tests.docs.pages import TOP, Block, blocks
from tests.harness.forking import nursery
from tests.plain_spark import small_spark

#: where the reader of the pages is
FOLDER = "/srv/shop"


class Walk:
    """A reader with a folder and a database of their own, who does what the page says."""

    def __init__(self, folder: Path, url: str, store_url: str | None = None) -> None:
        self.folder = folder
        self.url = url
        #: where pages write to
        self.store_url = store_url or url

    def run(self, *words: str, **more: str) -> str:
        """A process in the folder, with more in its environment; what it prints."""
        ended = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self._environment() | more,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def penstock(self, *words: str) -> str:
        """The command in the folder, with a mover that starts no JVM; what it prints."""
        code, out, err = self._command(words)
        assert code == 0, err
        return out

    def refused(self, *words: str) -> str:
        """A command that is refused; what it says."""
        code, _, err = self._command(words)
        assert code == 2, err
        return err

    def _command(self, words: Sequence[str]) -> tuple[int, str, str]:
        forked = nursery().start([json.dumps({"mover": "loop"}), *words], self.folder, self._environment())
        out, err = forked.communicate(timeout=300)
        return forked.returncode, out, err

    def _environment(self) -> dict[str, str]:
        urls = dict.fromkeys(("DATABASE_URL", "REPLICA_URL"), self.url) | {"STORE_URL": self.store_url}
        return os.environ | urls

    def sql(self, statements: str) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(statements.encode())

    def follow(self, block: Block) -> str:
        """Do what a block says; what a Python block prints."""
        match block.language:
            case "sql":
                self.sql(block.text)
            case "yaml":
                name = re.match(r"# (\S+\.yaml)\n", block.text)
                assert name, f"{block}: the first line must name the file"
                path = self.folder / name[1]
                proposed = streams(path.read_text()) if path.exists() else None
                assert proposed in (None, streams(block.text)), f"{block}: init proposes other streams"
                path.write_text(block.text)
            case "console":
                for command, shown in sessions(block.text):
                    said = self.penstock(*command.split()).replace(str(self.folder), FOLDER)
                    assert fits(shapes(said), shapes(shown)), f"{block}: it says\n{said}"
            case "python":
                return self.run("-c", block.text)
        return ""


def sessions(text: str) -> list[tuple[str, str]]:
    """Each `$ penstock …` of a block, and what the page says it prints."""
    parts = re.split(r"^\$ penstock (.+)\n", text, flags=re.MULTILINE)
    assert not parts[0]
    return list(zip(parts[1::2], parts[2::2], strict=True))


def shapes(text: str) -> list[str]:
    """Lines without what differs from run to run: numbers, units, ids, rates."""
    text = re.sub(r", [\d,]+ rows/s", "", text)
    text = re.sub(r"\b[0-9a-f]{32}\b|(?<=\brun )[0-9a-f]{8}\b", "#", text)
    text = re.sub(r"\d[\d,.:+-]*(?<![.,:])", "#", text)
    text = re.sub(r"# ([KMG]i)?B\b", "# B", text)
    return [re.sub(r"# min # s", "# s", line) for line in text.strip().splitlines()]


def streams(text: str) -> object:
    """What a pipeline file says of its streams."""
    return {name: pipeline.get("streams") for name, pipeline in yaml.safe_load(text)["pipelines"].items()}


def fits(said: list[str], shown: list[str]) -> bool:
    """Whether a page shows what was said; a line with … alone stands for any number of lines."""
    if not shown:
        return not said
    if shown[0].strip() == "…":
        return any(fits(said[skipped:], shown[1:]) for skipped in range(len(said) + 1))
    return bool(said) and said[0] == shown[0] and fits(said[1:], shown[1:])


@pytest.fixture
def walk(tmp_path: Path, database: str) -> Walk:
    return Walk(tmp_path, database)


def test_shapes_differ_where_words_do() -> None:
    assert shapes("a: 1,000 rows, 5 B in 3.2 s") == shapes("a: 7 rows, 1.5 MiB in 1 min 2 s")
    assert shapes("a: 1 row") != shapes("a: 1 rows")
    assert fits(["a", "b", "c"], ["a", "…", "c"])
    assert fits(["a", "c"], ["a", "…", "c"])
    assert not fits(["a", "b"], ["a", "…", "c"])
    assert not fits(["a", "b"], ["a"])


def test_the_quickstart(walk: Walk) -> None:
    printed = [walk.follow(block) for block in blocks(TOP / "docs" / "quickstart.md")]
    said = "".join(printed).strip()
    assert said == "1001 orders, 10 of them paid"
    assert f"prints `{said}`" in (TOP / "docs" / "quickstart.md").read_text()


def test_the_readme(walk: Walk) -> None:
    walk.sql("""
        create table customers (id bigint primary key, name text, updated_at timestamptz not null);
        create table orders (id bigint primary key, amount numeric(12, 2), updated_at timestamptz not null);
        create table countries (code text primary key, name text);
        create index on customers (updated_at, id);
        create index on orders (updated_at, id);
        insert into customers select n, 'c', '2026-01-01' from generate_series(1, 20) n;
        insert into orders select n, n, '2026-01-01' from generate_series(1, 3000) n;
        insert into countries values ('PT', 'Portugal'), ('BE', 'Belgium');
        analyze""")
    for block in blocks(TOP / "README.md", "yaml", "console"):
        walk.follow(block)
    found = {name: ds.dataset(walk.folder / "out" / name).count_rows() for name in ("customers", "orders", "countries")}
    assert found == {"customers": 20, "orders": 3000, "countries": 2}
    catalog = SqlCatalog("lake", uri=f"sqlite:///{walk.folder}/lake/catalog.db")
    landed = {name: catalog.load_table(f"shop.{name}").scan().to_arrow().num_rows for name in found}
    catalog.close()
    assert landed == found


# ---------------------------------------------------------------- pages about one thing

#: everything that the pipeline files of the pages name; one customer, because a first row needs no merge by Spark
SHOP = """
    create schema sales;
    create schema copies;
    create table customers (id bigint primary key, name text, country text, updated_at timestamptz not null);
    create table orders (
        id bigint primary key, status text not null, amount numeric(12, 2), created_at timestamptz not null,
        updated_at timestamptz not null);
    create table countries (code text primary key, name text);
    create table events (id bigint primary key, what text);
    create table audit_log (id bigint primary key);
    create table sales.order_lines (
        order_id bigint, line_no int, changed_at timestamptz not null, primary key (order_id, line_no));
    create table sales.customers (id bigint primary key, name text, updated_at timestamptz not null);
    create index on customers (updated_at, id);
    create index on orders (updated_at, id);
    create index on sales.order_lines (changed_at, order_id, line_no);
    create index on sales.customers (updated_at, id);
    insert into customers values (1, 'Ana', 'PT', '2026-01-01');
    insert into orders select n, 'new', n, '2026-01-01', '2026-01-01' from generate_series(1, 20) n;
    insert into countries values ('PT', 'Portugal'), ('BE', 'Belgium');
    insert into events values (1, 'opened');
    insert into sales.order_lines values (1, 1, '2026-01-01'), (1, 2, '2026-01-01');
    insert into sales.customers values (1, 'Ana', '2026-01-01')"""

#: a page, and those whose pipeline files must have run before its own
FILES_OF = {
    "sources/postgres.md": (),
    "sources/lake.md": ("sinks/lake.md",),
    "sinks/files.md": (),
    "sinks/lake.md": (),
    "sinks/postgres.md": (),
    "store.md": (),
    "upkeep.md": (),
}


@pytest.mark.parametrize("page", FILES_OF)
def test_the_pipeline_files_of_a_page(walk: Walk, page: str) -> None:
    walk.sql(SHOP)
    for name in (*FILES_OF[page], page):
        for number, block in enumerate(blocks(TOP / "docs" / name, "yaml")):
            # Each in a folder of its own, but for those that go on with what the page before made.
            file = walk.folder / (f"{number}/shop.yaml" if not FILES_OF[page] else f"{Path(name).parent}.yaml")
            file.parent.mkdir(exist_ok=True)
            file.write_text(block.text)
            said = walk.penstock("run", str(file))
            assert re.search(r" \w+: complete; (?!0 rows)", said), said
            if page == "upkeep.md":
                assert "shop.orders: expiry: " in walk.penstock("upkeep", str(file))


def test_from_a_full_refresh_to_a_cursor_as_the_page_on_files_says(walk: Walk) -> None:
    walk.sql(SHOP)
    (shown,) = blocks(TOP / "docs" / "quickstart.md", "yaml")
    whole = re.sub(r"orders:\n.*", "orders: {}\n", shown.text, flags=re.DOTALL)
    (walk.folder / "shop.yaml").write_text(whole)
    walk.penstock("run", "shop.yaml")
    (walk.folder / "shop.yaml").write_text(shown.text)
    page = " ".join((TOP / "docs" / "sinks" / "files.md").read_text().split())
    command = re.search(r"refused until you run `penstock (state migrate FILE --stream )countries`", page)
    assert command
    words = f"{command[1]}orders".replace("FILE", "shop.yaml").split()
    assert "penstock state migrate shop.yaml --stream orders" in walk.refused("run", "shop.yaml")
    walk.penstock(*words, "--yes")
    assert "shop: complete; 20 rows" in walk.penstock("run", "shop.yaml")
    assert ds.dataset(walk.folder / "out" / "orders").count_rows() == 20


def test_the_first_lake_of_the_page_on_catalogs(walk: Walk) -> None:
    walk.sql(SHOP)
    page = TOP / "docs" / "catalogs.md"
    walk.follow(blocks(page, "yaml")[0])
    for block in blocks(page, "console"):
        for command, shown in sessions(block.text):
            said = walk.penstock(*command.split())
            assert not shown
            assert "shop: complete; 20 rows" in said


def test_the_commands_of_the_page_on_debugging(walk: Walk) -> None:
    walk.sql(SHOP)
    walk.follow(blocks(TOP / "docs" / "quickstart.md", "yaml")[0])
    walk.penstock("run", "shop.yaml")
    for block in blocks(TOP / "docs" / "debugging.md", "bash"):
        for line in block.text.splitlines():
            command = shlex.split(line.replace("FILE", "shop.yaml"), comments=True)
            assert command[0] == "penstock"
            assert walk.penstock(*command[1:]), line


SPARK = """
import json
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").getOrCreate()
print(json.dumps({row["id"]: row["status"] for row in spark.sql(QUERY).collect()}))
"""


def test_the_newest_version_by_spark_sql(walk: Walk) -> None:
    """Also after a reset, when rows are there twice with the same cursor."""
    walk.sql(SHOP)
    (query,) = blocks(TOP / "docs" / "sinks" / "files.md", "sql")
    walk.follow(blocks(TOP / "docs" / "quickstart.md", "yaml")[0])
    walk.penstock("run", "shop.yaml")
    walk.penstock("state", "reset", "shop.yaml", "--stream", "orders", "--yes")
    # Without its cursor: only the slice's number tells which version is the newest.
    walk.sql("update orders set status = 'sent' where id = 20")
    walk.penstock("run", "shop.yaml")
    walk.sql("update orders set status = 'paid', updated_at = '2026-01-02' where id <= 3")
    walk.penstock("run", "shop.yaml")
    said = walk.run("-c", f"QUERY = {query.text!r}\n{SPARK}", **small_spark(walk.folder / "conf"))
    newest = json.loads(said.splitlines()[-1])
    assert newest == {str(n): "paid" if n <= 3 else "new" for n in range(1, 20)} | {"20": "sent"}

"""The README's pipelines and the whole quickstart, carried out on a real Postgres with the real command.

Rows are moved by a loop instead of Spark, to be quick; Spark starts once, for a merge. What the command prints must
have the shape that the pages show.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pyarrow.dataset as ds
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.docs.pages import TOP, Block, blocks

#: the command, with a mover that starts no JVM
COMMAND = """
from penstock import wiring
from penstock.cli import main
from penstock.testing.doubles import LoopMover

wiring.make_mover = lambda house: LoopMover()
main()
"""


class Walk:
    """A reader with a folder and a database of their own, who does what the page says."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def run(self, *words: str) -> str:
        """A process in the folder; what it prints."""
        ended = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=os.environ | {"DATABASE_URL": self.url},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

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
                (self.folder / name[1]).write_text(block.text)
            case "console":
                for command, shown in sessions(block.text):
                    assert shapes(self.run("-c", COMMAND, *command.split())) == shapes(shown), block
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
    text = re.sub(r"\b[0-9a-f]{32}\b", "#", text)
    text = re.sub(r"\d[\d,.:+-]*(?<![.,:])", "#", text)
    text = re.sub(r"# ([KMG]i)?B\b", "# B", text)
    return [re.sub(r"# min # s", "# s", line) for line in text.strip().splitlines()]


@pytest.fixture
def walk(tmp_path: Path, database: str) -> Walk:
    return Walk(tmp_path, database)


def test_shapes_differ_where_words_do() -> None:
    assert shapes("a: 1,000 rows, 5 B in 3.2 s") == shapes("a: 7 rows, 1.5 MiB in 1 min 2 s")
    assert shapes("a: 1 row") != shapes("a: 1 rows")


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
        insert into countries values ('PT', 'Portugal'), ('BE', 'Belgium')""")
    for block in blocks(TOP / "README.md", "yaml", "console"):
        walk.follow(block)
    found = {name: ds.dataset(walk.folder / "out" / name).count_rows() for name in ("customers", "orders", "countries")}
    assert found == {"customers": 20, "orders": 3000, "countries": 2}
    catalog = SqlCatalog("lake", uri=f"sqlite:///{walk.folder}/lake/catalog.db")
    landed = {name: catalog.load_table(f"shop.{name}").scan().to_arrow().num_rows for name in found}
    catalog.close()
    assert landed == found

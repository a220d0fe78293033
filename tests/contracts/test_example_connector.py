"""The example connector keeps the contract of a source, and joins a pipeline by its entry point alone."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.docs.pages import TOP, blocks
from tests.harness.doubles import LoopMover

import penstock
from penstock import wiring
from penstock.connector import Context, NoProbe, Sink, Source, StreamRefused
from penstock.testing.contracts.source import IncrementalContract, drain

FOLDER = TOP / "examples" / "sqlite-source"
PAGE = TOP / "docs" / "connectors.md"
TABLE = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, price REAL, raw BLOB)"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example as a module that can be imported, as if it was installed."""
    monkeypatch.syspath_prepend(FOLDER)
    yield import_module("penstock_sqlite")
    sys.modules.pop("penstock_sqlite")


class Orders:
    """A database with one table."""

    stream = "orders"

    def __init__(self, path: Path, module: Any) -> None:
        self.path, self.module = path, module
        self.execute(TABLE)

    def execute(self, sql: str, rows: Sequence[Sequence[object]] = ((),)) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            db.executemany(sql, rows) if rows != ((),) else db.execute(sql)

    def open(self) -> Source:
        return self.open_with(self.stream, {})

    def open_with(self, stream: str, options: Mapping[str, Any]) -> Source:
        module = self.module
        streams = {stream: module.StreamOptions.model_validate(options)}
        context = Context("contract", str(self.path.parent), NoProbe())
        source: Source = module.build(module.Options(path=self.path.name), streams, context)
        return source

    def arrive(self, count: int) -> None:
        rows = [(f"order {number}", number / 2, b"raw") for number in range(count)]
        if rows:
            self.execute("INSERT INTO orders (name, price, raw) VALUES (?, ?, ?)", rows)

    def rows(self) -> Sequence[Hashable]:
        with closing(sqlite3.connect(self.path)) as db:
            return db.execute("SELECT id, name, price, raw FROM orders").fetchall()

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    def traces(self) -> Hashable:
        return self.path.read_bytes()


class TestSqlite(IncrementalContract):
    CAPABILITIES = frozenset()
    PARALLEL_PARTS = False

    @pytest.fixture
    def origin(self, tmp_path: Path, installed: Any) -> Orders:
        return Orders(tmp_path / "shop.db", installed)


def test_it_has_fewer_than_100_lines() -> None:
    assert len((FOLDER / "penstock_sqlite.py").read_text().splitlines()) < 100


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE orders (id INTEGER PRIMARY KEY)",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, at DATETIME)",
        "CREATE TABLE other (id INTEGER PRIMARY KEY AUTOINCREMENT)",
    ],
    ids=["keys are used again", "a type that it does not know", "no such table"],
)
def test_a_table_that_it_cannot_read_is_refused(tmp_path: Path, installed: Any, table: str) -> None:
    orders = Orders(tmp_path / "shop.db", installed)
    orders.execute("DROP TABLE orders")
    orders.execute(table)
    with pytest.raises(StreamRefused, match="needs an AUTOINCREMENT key, and columns of the types INTEGER"):
        orders.open().content("orders")


def test_an_open_slice_is_refused_once_a_column_of_it_is_gone(tmp_path: Path, installed: Any) -> None:
    orders = Orders(tmp_path / "shop.db", installed)
    orders.arrive(3)
    (moved,) = drain(orders.open(), orders)
    orders.execute("ALTER TABLE orders DROP COLUMN name")
    with pytest.raises(StreamRefused, match="a column of the open slice is gone"), orders.open().reading(moved.slice):
        pass


def test_a_pipeline_finds_it_by_its_entry_point(
    tmp_path: Path, installed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "site" / "penstock_sqlite-0.1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: penstock-sqlite\nVersion: 0.1.0\n")
    (information / "entry_points.txt").write_text("[penstock.sources]\nsqlite = penstock_sqlite\n")
    monkeypatch.syspath_prepend(information.parent)
    invalidate_caches()
    orders = Orders(tmp_path / "shop.db", installed)
    orders.arrive(5)
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    (pipeline,) = blocks(PAGE, "yaml")
    (tmp_path / "shop.yaml").write_text(pipeline.text)
    assert penstock.sync(tmp_path / "shop.yaml").rows == 5
    orders.arrive(2)
    assert penstock.sync(tmp_path / "shop.yaml").rows == 2
    table = ds.dataset(tmp_path / "out" / "orders").to_table()
    assert sorted(table["id"].to_pylist()) == [1, 2, 3, 4, 5, 6, 7]


def test_the_page_shows_the_example_as_it_is(installed: Any) -> None:
    (entry_point,) = blocks(PAGE, "toml")
    assert entry_point.text in (FOLDER / "pyproject.toml").read_text()
    (suite,) = blocks(PAGE, "python")
    shown: dict[str, Any] = {"pytest": pytest, "Orders": Orders}
    exec(suite.text, shown)
    ours = shown["TestSqlite"]
    assert (ours.__bases__, ours.CAPABILITIES, ours.PARALLEL_PARTS) == (
        TestSqlite.__bases__,
        TestSqlite.CAPABILITIES,
        TestSqlite.PARALLEL_PARTS,
    )
    lines = len((FOLDER / "penstock_sqlite.py").read_text().splitlines())
    assert f"An example in {lines} lines" in PAGE.read_text()
    methods = {port: sum(not name.startswith("_") for name in vars(port)) for port in (Source, Sink)}
    assert methods == {Source: 9, Sink: 8}
    assert "A `Source` has nine methods, a `Sink` eight." in PAGE.read_text()

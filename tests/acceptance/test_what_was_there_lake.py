"""A lake table that was there before, or is not what it was: what `check` says, what `run` does, and the way out.

For every mode of the sink. What is refused or stopped changes nothing, and the command or option that the message names
is then used as it stands. Merges run on one Spark, and only where a key can be there already.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from typer.testing import CliRunner

from penstock import wiring
from penstock.cli import app
from penstock.links.spark.runtime import SparkRuntime
from penstock.links.spark.session_provider import SparkSessionProvider
from tests.harness.doubles import LoopMover

FILE = """\
store: {pipeline}.db
pipelines:
  {pipeline}:
    source: {source}
    sink: {{type: lake, warehouse: "{warehouse}"{sink}}}
    streams:
      orders: {{{stream}}}
"""
#: by mode: how the stream lands
MODES = {
    "append": "cursor: updated_at, tiebreaker: id",
    "merge": "cursor: updated_at, tiebreaker: id, mode: merge",
    "refresh": "accept_drop: true",
}
every_mode = pytest.mark.parametrize("mode", MODES)
ORDERS = (
    "INSERT INTO orders SELECT g, 'ours', timestamptz '2026-01-01Z' + g * interval '1 s' FROM generate_series(1, {}) g"
)
#: rows of other programs; one of them has the key of an order
OTHERS = [1, 101, 102]
#: of its own for each test, since all of them share a lake
_numbers = count(1)


@dataclass
class Shop:
    """Orders in Postgres, and a pipeline that delivers them into a lake. One order where rows are merged."""

    url: str
    db: psycopg.Connection[Any]
    warehouse: Path
    name: str
    mode: str = ""

    def write(self, mode: str, *more: str, pipeline: str = "", sink: str = "", source: str = "") -> None:
        if not self.mode:
            self.db.execute(ORDERS.format(len(self.ours_in(mode))).encode())
        self.mode = mode
        pipeline = pipeline or self.name
        Path(f"{pipeline}.yaml").write_text(
            FILE.format(
                pipeline=pipeline,
                source=source or f'{{type: postgres, url: "{self.url}"}}',
                warehouse=self.warehouse,
                sink=sink and f", {sink}",
                stream=", ".join(["" if source else MODES[mode], *more]).strip(", "),
            )
        )

    @staticmethod
    def ours_in(mode: str) -> list[int]:
        return [1] if mode == "merge" else [1, 2, 3]

    @property
    def ours(self) -> list[tuple[int, str]]:
        return [(id_, "ours") for id_ in self.ours_in(self.mode)]

    # ------------------------------------------------------------ the lake, as others open it

    @property
    def catalog(self) -> SqlCatalog:
        self.warehouse.mkdir(exist_ok=True)
        made = SqlCatalog("lake", uri=f"sqlite:///{self.warehouse}/catalog.db", warehouse=f"file://{self.warehouse}")
        made.create_namespace_if_not_exists(self.name)
        return made

    def make(self, *ids: int) -> None:
        """A table of someone else, with rows."""
        columns = {"id": pa.array(ids, pa.int64()), "note": pa.array(["theirs"] * len(ids), pa.string())}
        table = self.catalog.create_table((self.name, "orders"), pa.table(columns).schema)
        if ids:
            with warnings.catch_warnings(action="ignore"):
                table.append(pa.table(columns))

    def rows(self, table: str = "orders") -> list[tuple[int, str]]:
        found = self.catalog.load_table((self.name, table)).scan().to_arrow()
        return sorted(zip(found.column("id").to_pylist(), found.column("note").to_pylist(), strict=True))

    def everything(self) -> list[tuple[str, str]]:
        """Every table with the document that the catalog names: nothing of it can change without a new one."""
        catalog = self.catalog
        found = []
        for namespace, table in catalog.list_tables(self.name):
            try:
                found.append((table, catalog.load_table((namespace, table)).metadata_location))
            except NoSuchTableError:
                continue
        return sorted(found)

    # ------------------------------------------------------------ commands

    def goes(self, pipeline: str = "") -> None:
        """`check` is content, and `run` ends with 0."""
        for verb in ("check", "run"):
            code, said = penstock(verb, f"{pipeline or self.name}.yaml")
            assert code == 0, (verb, said)

    def refused(self, *words: str, code: int = 2, check: int | None = None, pipeline: str = "") -> str:
        """`check` and `run` say so, both end with the code, and nothing has changed; what `run` said.

        `check`: its own code, where it also tells what `run` would come to only later.
        """
        before = self.everything()
        for verb in ("check", "run"):
            ended, said = penstock(verb, f"{pipeline or self.name}.yaml")
            assert ended == (check if check is not None and verb == "check" else code), (verb, said)
            for each in words:
                assert each in said, (verb, said)
        assert self.everything() == before
        return said

    def recover(self, said: str) -> None:
        """Run the command that the message names, and agree to what it asks."""
        found = re.search(rf"penstock (state recover {self.name}\.yaml --stream orders)", said)
        assert found, said
        code, answer = penstock(*found[1].split(), "--yes")
        assert code == 0, answer


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One lake for all: a session cannot move to another catalog."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture
def shop(
    database: str,
    spark_provider: SparkSessionProvider,
    warehouse: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    monkeypatch.setattr(
        wiring, "runtime_for", lambda *_, **__: SparkRuntime(spark_provider, lambda spark: wiring.make_mover(spark))
    )
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text, updated_at timestamptz NOT NULL)")
        db.execute("CREATE INDEX ON orders (updated_at, id)")
        yield Shop(database, db, warehouse, f"shop{next(_numbers)}")


def penstock(*words: str) -> tuple[int, str]:
    """One command; its exit code, and what it said in one line."""
    done = CliRunner().invoke(app, words, prog_name="penstock")
    return done.exit_code, " ".join((done.stdout + done.stderr).split())


# ---------------------------------------------------------------- before the first run


@every_mode
def test_a_table_that_is_not_there_is_made(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    assert shop.rows() == shop.ours


@every_mode
def test_a_table_that_is_empty_is_filled_on_the_user_s_word(shop: Shop, mode: str) -> None:
    shop.make()
    shop.write(mode)
    shop.refused("already exists, and penstock did not create it", "set `into_existing: true`")
    shop.write(mode, "into_existing: true")
    assert "the table is not penstock's" in penstock("check", f"{shop.name}.yaml", "--json")[1]
    shop.goes()
    assert shop.rows() == shop.ours


@every_mode
def test_a_table_with_rows_of_others(shop: Shop, mode: str) -> None:
    """A log keeps them beside its own, a merge replaces those of its keys, a refresh needs a word more."""
    shop.make(*OTHERS)
    shop.write(mode)
    shop.refused("already exists, and penstock did not create it")
    shop.write(mode, "into_existing: true")
    theirs = [(id_, "theirs") for id_ in OTHERS]
    if mode == "refresh":
        shop.refused("already holds rows, and the first full refresh would delete them", "`replace_existing: true`")
        assert shop.rows() == theirs
        shop.write(mode, "into_existing: true", "replace_existing: true")
    shop.goes()
    left = {"append": theirs, "merge": theirs[1:], "refresh": []}
    assert shop.rows() == sorted([*shop.ours, *left[mode]])


def test_rows_that_others_put_into_a_refreshed_table(shop: Shop) -> None:
    """A later refresh would delete them: it asks as the first one does."""
    shop.write("refresh")
    shop.goes()
    table = shop.catalog.load_table((shop.name, "orders"))
    rows = table.scan().to_arrow().slice(0, 1)
    with warnings.catch_warnings(action="ignore"):
        table.append(rows)
    shop.refused(
        f"other programs have put rows into the table {shop.name}.orders, and a full refresh would delete them",
        "`replace_existing: true`",
    )
    assert len(shop.rows()) == len(shop.ours) + 1
    shop.write("refresh", "replace_existing: true")
    shop.goes()
    assert shop.rows() == shop.ours


@every_mode
def test_a_table_of_another_pipeline(shop: Shop, mode: str) -> None:
    """Whose name gives the same namespace. Once it is named, a log and a merge are shared, a refresh never."""
    other, one = f"{shop.name}-eu", f"{shop.name}_eu"
    shop.write(mode, pipeline=other)
    shop.goes(other)
    shop.name = one
    shop.write(mode)
    if mode == "refresh":
        shop.refused(f"a full refresh would replace all of {one}.orders, where pipeline '{other}' lands too")
        shop.write(mode, sink=f"namespace: {one}")
        shop.refused("a full refresh would replace all of")
        assert shop.rows() == shop.ours
        return
    shop.refused(f"pipeline '{other}' lands its stream 'orders' in the table {one}.orders", "`namespace`", "`into`")
    assert shop.rows() == shop.ours
    shop.write(mode, sink=f"namespace: {one}")
    shop.goes()
    assert shop.rows() == sorted(shop.ours * (2 if mode == "append" else 1))


def test_a_table_that_is_the_source_itself(shop: Shop) -> None:
    """As a log, and merged. A lake is never read whole, so there is no refresh of it."""
    shop.write("append")
    shop.goes()
    source = f'{{type: lake, warehouse: "{shop.warehouse}", namespace: {shop.name}}}'
    for stream in ("", "mode: merge, key: [id]"):
        shop.write("append", stream, pipeline="copy", source=source, sink=f"namespace: {shop.name}")
        shop.refused(f"the table {shop.name}.orders is the one that the stream reads", pipeline="copy")
    assert shop.rows() == shop.ours


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_first_run_beside_an_open_writer(shop: Shop, mode: str) -> None:
    """Such a run may have a slice with a mark and no rows: the table is there for the rows that come later."""
    shop.db.execute("CREATE TABLE sales (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text)")
    Path(f"{shop.name}.yaml").write_text(
        FILE.format(
            pipeline=shop.name,
            source=f'{{type: postgres, url: "{shop.url}"}}',
            warehouse=shop.warehouse,
            sink="",
            stream=f"table: sales, cursor: id, unique: true, mode: {mode}",
        )
    )
    with psycopg.connect(shop.url) as writer:
        writer.execute("INSERT INTO sales (note) VALUES ('open')")
        shop.goes()
        assert not shop.everything() or shop.rows() == []
    shop.goes()
    assert shop.rows() == [(1, "open")]


# ---------------------------------------------------------------- after the first run


@every_mode
def test_a_table_that_was_dropped(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    shop.catalog.drop_table((shop.name, "orders"))
    said = shop.refused("the sink holds nothing", code=1)
    assert shop.everything() == []
    shop.recover(said)
    shop.goes()
    assert shop.rows() == shop.ours


@every_mode
def test_a_table_that_was_dropped_and_made_again_by_others(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    shop.catalog.drop_table((shop.name, "orders"))
    shop.make(*OTHERS)
    shop.recover(shop.refused("the sink holds nothing", code=1, check=2))
    shop.refused("already exists, and penstock did not create it")
    assert shop.rows() == [(id_, "theirs") for id_ in OTHERS]


@every_mode
def test_a_table_that_was_renamed(shop: Shop, mode: str) -> None:
    """Its rows and its chain are in it still: under its new name the stream goes on, and nothing is there twice."""
    shop.write(mode)
    shop.goes()
    shop.catalog.rename_table((shop.name, "orders"), (shop.name, "moved"))
    shop.refused("the sink holds nothing", code=1)
    shop.write(mode, "into: moved")
    shop.goes()
    assert shop.rows("moved") == shop.ours
    assert [table for table, _ in shop.everything()] == ["moved"]


@every_mode
def test_a_table_that_was_rolled_back(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    first = shop.catalog.load_table((shop.name, "orders")).metadata.current_snapshot_id
    assert first is not None
    shop.db.execute("INSERT INTO orders VALUES (7, 'ours', '2026-01-02Z')")
    shop.goes()
    shop.catalog.load_table((shop.name, "orders")).manage_snapshots().rollback_to_snapshot(first).commit()
    said = shop.refused("says it holds slice 2, but the table was rolled back to a snapshot before it", code=1)
    shop.recover(said)
    shop.goes()
    assert shop.rows() == [*shop.ours, (7, "ours")]

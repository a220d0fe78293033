"""A Postgres table that was there before, or is not what it was: what `check` says, what `run` does, and the way out.

For every mode of the sink. What is refused or stopped changes nothing, and the command or option that the message names
is then used as it stands.
"""

from __future__ import annotations

import re
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
    sink: {{type: postgres, url: "{url}", schema: copies}}
    streams:
      orders: {{{stream}}}
"""
#: by mode: how the stream lands
MODES = {
    "append": "cursor: updated_at, tiebreaker: id, mode: append",
    "upsert": "cursor: updated_at, tiebreaker: id",
    "replace": "mode: replace, accept_drop: true",
}
every_mode = pytest.mark.parametrize("mode", MODES)
THEIRS = "INSERT INTO {} SELECT g, 'theirs', timestamptz '2026-01-01Z' FROM generate_series({}, {}) g"
#: the orders of the source, and rows of others
OURS, OTHERS = list(range(1, 6)), list(range(101, 111))


@dataclass
class Shop:
    """Orders in `public`, and a pipeline that delivers them into `copies`, in the same database."""

    db: psycopg.Connection[Any]
    url: str
    mode: str = ""

    def write(self, mode: str, *more: str, pipeline: str = "shop") -> None:
        self.mode = mode
        stream = ", ".join([MODES[mode], *more])
        Path(f"{pipeline}.yaml").write_text(FILE.format(pipeline=pipeline, url=self.url, stream=stream))

    def execute(self, *statements: str) -> None:
        for each in statements:
            self.db.execute(each.encode())

    def rows(self, table: str = "copies.orders") -> list[tuple[Any, ...]]:
        return self.db.execute(f"SELECT id, note FROM {table} ORDER BY 1, 2".encode()).fetchall()

    def ids(self, table: str = "copies.orders") -> list[int]:
        return [id_ for id_, _ in self.rows(table)]

    def oid(self, table: str = "copies.orders") -> int:
        row = self.db.execute("SELECT %s::regclass::oid::bigint", [table]).fetchone()
        assert row
        return int(row[0])

    def everything(self) -> list[Any]:
        """All rows of all tables, the ledger's too."""
        tables = self.db.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables "
            "WHERE schemaname IN ('public', 'copies', 'penstock_sink') ORDER BY 1"
        ).fetchall()
        return [(name, sorted(map(str, self.db.execute(f"SELECT * FROM {name}".encode())))) for (name,) in tables]

    def goes(self, pipeline: str = "shop") -> str:
        """`check` is content, and `run` ends with 0; what `check` said."""
        code, said = penstock("check", f"{pipeline}.yaml")
        assert (code, penstock("run", f"{pipeline}.yaml")[0]) == (0, 0)
        return said

    def refused(self, *words: str, code: int) -> str:
        """`check` and `run` say so, both end with the code, and nothing has changed; what `run` said."""
        before = self.everything()
        for verb in ("check", "run"):
            ended, said = penstock(verb, "shop.yaml")
            assert ended == code, (verb, said)
            for each in words:
                assert each in said, (verb, said)
        assert self.everything() == before
        return said


@pytest.fixture
def shop(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    with psycopg.connect(database, autocommit=True) as db:
        made = Shop(db, database)
        made.execute("CREATE SCHEMA copies", TABLE.format("orders"), "CREATE INDEX ON orders (updated_at, id)")
        made.execute(ORDERS.format("orders", 1, 5))
        yield made


# ---------------------------------------------------------------- before the first run


@every_mode
def test_a_table_that_is_not_there_is_made(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    assert shop.ids() == OURS


@every_mode
def test_a_table_that_is_empty_is_filled(shop: Shop, mode: str) -> None:
    shop.execute(TABLE.format("copies.orders"))
    shop.write(mode)
    shop.goes()
    assert shop.ids() == OURS
    shop.goes()
    assert shop.ids() == OURS


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rows_of_others_stay(shop: Shop, mode: str) -> None:
    shop.execute(TABLE.format("copies.orders"), THEIRS.format("copies.orders", 101, 110))
    shop.write(mode)
    assert "copies.orders already holds rows: they stay" in shop.goes()
    assert shop.ids() == [*OURS, *OTHERS]
    assert "already holds rows" not in shop.goes()


def test_a_full_refresh_does_not_delete_rows_of_others(shop: Shop) -> None:
    shop.execute(TABLE.format("copies.orders"), THEIRS.format("copies.orders", 101, 110))
    shop.write("replace")
    what = "copies.orders holds rows that this stream did not write: a full refresh would delete those that it does not"
    said = shop.refused(what, "set `replace_existing: true`", code=2)
    assert "name another table with `into`" in said
    shop.write("replace", "replace_existing: true")
    assert "copies.orders already holds rows: the first full refresh deletes those it does not bring" in shop.goes()
    assert shop.ids() == OURS


def test_an_incremental_stream_that_becomes_a_full_refresh(shop: Shop) -> None:
    """Its own rows may be replaced without a word of the user; not those of others beside them."""
    shop.write("upsert")
    shop.goes()
    assert penstock("state", "reset", "shop.yaml", "--stream", "orders", "--yes")[0] == 0
    shop.execute(THEIRS.format("copies.orders", 101, 110))
    shop.write("replace")
    shop.refused("copies.orders holds rows that this stream did not write", "`replace_existing: true`", code=2)
    shop.execute("DELETE FROM copies.orders WHERE note = 'theirs'", "DELETE FROM orders WHERE id = 3")
    shop.goes()
    assert shop.ids() == [1, 2, 4, 5]


@every_mode
def test_a_table_of_another_pipeline(shop: Shop, mode: str) -> None:
    """Two pipelines may add to a table, or merge into it; a table that is replaced has one owner."""
    shop.write("append", pipeline="theirs")
    assert penstock("run", "theirs.yaml")[0] == 0
    shop.execute("ALTER TABLE copies.orders ADD COLUMN number int GENERATED ALWAYS AS IDENTITY")
    if mode == "upsert":
        shop.execute("ALTER TABLE copies.orders ADD PRIMARY KEY (id)")
    shop.write(mode)
    if mode == "replace":
        shop.refused("copies.orders is filled by theirs/orders too", "another `into`", code=2)
    else:
        assert "copies.orders is filled by theirs/orders too" in shop.goes()
        assert shop.ids() == (OURS if mode == "upsert" else sorted(OURS * 2))


@every_mode
def test_the_source_itself(shop: Shop, mode: str) -> None:
    shop.write(mode, "into: public.orders")
    said = shop.refused("source and sink are the same table: public.orders", code=2)
    assert "see that `url` of the sink names another database" in said
    shop.write(mode)
    shop.goes()
    assert shop.ids() == OURS


def test_a_partition_of_the_source(shop: Shop) -> None:
    shop.execute(
        "CREATE TABLE parted (LIKE orders) PARTITION BY RANGE (id)",
        "CREATE TABLE copies.leaf PARTITION OF parted FOR VALUES FROM (1) TO (100)",
    )
    shop.write("replace", "table: parted", "into: leaf")
    shop.refused("the stream would be written into what it reads: copies.leaf and public.parted", code=2)


def test_a_full_refresh_of_a_view_on_the_table(shop: Shop) -> None:
    shop.execute("CREATE VIEW seen AS SELECT * FROM orders WHERE id < 3")
    shop.write("replace", "table: seen", "into: public.orders", "key: [id]")
    shop.refused("the stream would be written into what it reads: public.orders and public.seen", code=2)


# ---------------------------------------------------------------- after a run


@every_mode
def test_a_table_that_was_dropped(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    shop.execute("DROP TABLE copies.orders")
    said = shop.refused("the table copies.orders is gone; the ledger says that it holds slice 1", code=1)
    assert "was withdrawn from the ledger" in recover(said)
    shop.goes()
    assert shop.ids() == OURS


@every_mode
def test_a_table_that_was_made_again(shop: Shop, mode: str) -> None:
    """Also where nothing is new: the rows that were delivered are missing."""
    shop.write(mode)
    shop.goes()
    before = shop.oid()
    shop.execute("DROP TABLE copies.orders", TABLE.format("copies.orders"))
    shop.refused(
        "the table copies.orders is another one than before",
        f"the rows of this stream went into (oid {before}) is gone, and copies.orders has oid {shop.oid()}",
        code=1,
    )
    shop.execute(ORDERS.format("orders", 6, 7))
    recover(shop.refused("the table copies.orders is another one than before", code=1))
    shop.goes()
    assert shop.ids() == [*OURS, 6, 7]


@every_mode
def test_a_table_that_was_restored_from_a_backup(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    shop.execute(
        "ALTER TABLE copies.orders RENAME TO backup",
        "CREATE TABLE copies.orders (LIKE copies.backup INCLUDING ALL)",
        "INSERT INTO copies.orders SELECT * FROM copies.backup",
        "DROP TABLE copies.backup",
        ORDERS.format("orders", 6, 7),
    )
    said = shop.refused(f"set `accept_table: {shop.oid()}` on the stream", code=1)
    assert "if copies.orders holds everything that was delivered" in said
    shop.write(mode, f"accept_table: {shop.oid()}")
    shop.goes()
    assert shop.ids() == [*OURS, 6, 7]
    shop.write(mode)
    shop.execute(ORDERS.format("orders", 8, 8))
    shop.goes()
    assert shop.ids() == [*OURS, 6, 7, 8]


@every_mode
def test_a_table_that_was_renamed(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    shop.execute("ALTER TABLE copies.orders RENAME TO sold", ORDERS.format("orders", 6, 7))
    oid = shop.oid("copies.sold")
    said = shop.refused("the table copies.orders was renamed", "is called copies.sold now", code=1)
    back = re.search(r"rename it back: (ALTER TABLE [^;]+)", said)
    assert back
    assert f"set `into: copies.sold` and `accept_table: {oid}` on the stream" in said
    shop.write(mode, "into: copies.sold")
    shop.refused("the rows of this stream went into copies.orders, and the stream names copies.sold now", code=1)
    shop.write(mode, "into: copies.sold", f"accept_table: {oid}")
    shop.goes()
    assert shop.ids("copies.sold") == [*OURS, 6, 7]
    shop.write(mode, "into: copies.sold")
    shop.goes()
    shop.execute(back[1])
    said = shop.refused("the table copies.sold was renamed", "is called copies.orders now", code=1)
    recover(said)


@every_mode
def test_a_stream_that_names_another_table(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    shop.execute(ORDERS.format("orders", 6, 7))
    shop.write(mode, "into: elsewhere")
    said = shop.refused(
        "went into copies.orders, and the stream names copies.elsewhere now, which does not exist", code=1
    )
    assert "set `into: copies.orders` on the stream to continue there" in said
    shop.write(mode, "into: copies.orders")
    shop.goes()
    assert shop.ids() == [*OURS, 6, 7]
    shop.execute(TABLE.format("copies.elsewhere"))
    shop.write(mode, "into: elsewhere")
    recover(shop.refused("went into copies.orders, and the stream names copies.elsewhere now", code=1))
    shop.goes()
    assert shop.ids("copies.elsewhere") == [*OURS, 6, 7]
    assert shop.ids() == [*OURS, 6, 7]


@every_mode
def test_a_table_that_was_moved_to_another_schema(shop: Shop, mode: str) -> None:
    shop.write(mode)
    shop.goes()
    shop.execute("CREATE SCHEMA archive", "ALTER TABLE copies.orders SET SCHEMA archive")
    shop.execute(ORDERS.format("orders", 6, 7))
    oid = shop.oid("archive.orders")
    said = shop.refused("the table copies.orders was renamed", "is called archive.orders now", code=1)
    back = re.search(r"move it back: (ALTER TABLE [^;]+)", said)
    assert back
    shop.write(mode, "into: archive.orders", f"accept_table: {oid}")
    shop.goes()
    assert shop.ids("archive.orders") == [*OURS, 6, 7]
    shop.execute(back[1])
    shop.write(mode, f"accept_table: {oid}")
    shop.goes()
    assert shop.ids() == [*OURS, 6, 7]


@every_mode
@pytest.mark.parametrize("there", [False, True])
def test_another_schema_of_the_sink(shop: Shop, mode: str, there: bool) -> None:
    shop.write(mode)
    shop.goes()
    shop.execute("CREATE SCHEMA fresh", ORDERS.format("orders", 6, 7))
    if there:
        shop.execute(TABLE.format("fresh.orders"))
    file = Path("shop.yaml")
    file.write_text(file.read_text().replace("schema: copies", "schema: fresh"))
    said = shop.refused("went into copies.orders, and the stream names fresh.orders now", code=1)
    assert "set `into: copies.orders` on the stream to continue there" in said
    recover(said)
    shop.goes()
    assert shop.ids("fresh.orders") == [*OURS, 6, 7]
    assert shop.ids() == OURS

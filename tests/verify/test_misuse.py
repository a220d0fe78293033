"""What changes behind a comparison's back, who else writes, and what was there before."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from tests.harness.doubles import LoopMover
from tests.harness.faults import Command
from tests.verify.tables import CURSOR, TABLE, Copied

from penstock import wiring
from penstock.links.postgres.row_digests import TableRows

REPAIR = ("--repair", "--yes")
FINDS = f"{CURSOR}, find_deletes: compare"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "make_mover", lambda *_: LoopMover())


@pytest.fixture
def copied(database: str, tmp_path: Path) -> Copied:
    return Copied.make(database, tmp_path, rows=40)


def test_a_run_between_the_two_sides(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source was asked before, the sink after a run: nothing differs."""
    summarize, asked = TableRows.summarize, []

    def run_first(self: TableRows, range_: object) -> object:
        asked.append(range_)
        if len(asked) == 2:
            copied.execute("UPDATE orders SET note = 'new', updated_at = '2027-01-01' WHERE id < 5")
            assert Command(copied.folder).run("run", "shop.yaml").code == 0
        return summarize(self, range_)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(TableRows, "summarize", run_first)
    assert copied.differences() == {}


def test_a_sink_that_changes_at_every_look_is_said(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    copied.execute("DELETE FROM copies.orders WHERE id = 7")
    look, number, command = TableRows.look, iter(range(100, 200)), Command(copied.folder)

    def run_first(self: TableRows, keys: object) -> object:
        if self.sees_all:
            copied.execute(f"SELECT fill({(n := next(number))}, {n})")
            assert command.run("run", "shop.yaml").code == 0
        return look(self, keys)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(TableRows, "look", run_first)
    code, stream = copied.verify()
    assert (code, stream["unsettled"], stream["complete"]) == (0, 1, False)


def test_beside_a_run_a_comparison_works_and_a_repair_does_not(copied: Copied) -> None:
    copied.execute("DELETE FROM copies.orders WHERE id = 7; SELECT fill(41, 50)")
    command = Command(copied.folder)
    with command.frozen("run", "shop.yaml", point="gate.moved") as running:
        assert copied.differences() == {"missing": ["7"]}
        assert copied.penstock("verify", *REPAIR).exit_code == 4
    assert running.end().code == 0
    assert copied.penstock("verify", *REPAIR).exit_code == 0
    assert copied.is_copied()


def test_an_open_slice_is_finished_before_a_repair(copied: Copied) -> None:
    copied.execute("DELETE FROM copies.orders WHERE id = 7; SELECT fill(41, 50)")
    Command(copied.folder).kill_at("gate.moved", "run", "shop.yaml")
    assert copied.penstock("verify", *REPAIR).exit_code == 0
    assert copied.is_copied()


def test_a_table_that_two_pipelines_fill(copied: Copied) -> None:
    """The rows of each are extra to the other."""
    copied.execute("CREATE TABLE more (LIKE orders INCLUDING ALL); INSERT INTO more SELECT * FROM orders WHERE id < 5")
    copied.execute("UPDATE more SET id = id + 1000")
    text = (copied.folder / "shop.yaml").read_text()
    second = (
        text.replace("  shop:", "  other:").replace("orders: {", "more: {into: orders, ").replace("pipelines:\n", "")
    )
    (copied.folder / "shop.yaml").write_text(text + second)
    assert copied.penstock("run", "other").exit_code == 0
    done = copied.penstock("verify", "shop", *REPAIR)
    assert (done.exit_code, "extra rows may be someone else's: other/more fills the table" in done.stdout) == (5, True)
    assert copied.rows("SELECT count(*) FROM copies.orders") == [(44,)]
    copied.write(FINDS)
    done = copied.penstock("run")
    assert (done.exit_code, "none was deleted, because other/more fills" in done.stderr) == (0, True)
    assert copied.rows("SELECT count(*) FROM copies.orders") == [(44,)]


def test_a_row_that_leaves_the_filter_is_neither_extra_nor_deleted(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, rows=40, stream=f"{FINDS}, where: flag")
    copied.execute("UPDATE orders SET flag = false WHERE id = 4; DELETE FROM orders WHERE id = 6")
    code, stream = copied.verify()
    assert (code, stream["in_flight"], stream["differences"]["extra"]) == (5, 1, [{"id": "6"}])
    assert copied.penstock("run").exit_code == 0
    assert copied.rows("SELECT id FROM copies.orders WHERE id IN (4, 6)") == [(4,)]


def test_columns_that_drifted(copied: Copied) -> None:
    copied.execute("ALTER TABLE orders DROP COLUMN doc, ADD COLUMN extra int; UPDATE orders SET extra = 5 WHERE id = 3")
    code, stream = copied.verify()
    assert code == 0
    assert stream["columns_not_compared"] == {"extra": "the table does not have it", "doc": "it is gone at the source"}
    # A slice brings the column; rows from before lack its values, which is a difference that can be repaired.
    copied.execute("UPDATE orders SET updated_at = '2027-01-01' WHERE id = 1")
    assert copied.penstock("run").exit_code == 0
    assert copied.differences() == {"stale": ["3"]}
    assert copied.penstock("verify", *REPAIR).exit_code == 0
    assert copied.rows("SELECT extra, doc IS NULL FROM copies.orders WHERE id = 3") == [(5, False)]


def test_partitions_and_one_that_is_not_loaded_yet(database: str, tmp_path: Path) -> None:
    copied = Copied(database, tmp_path)
    copied.execute(
        "CREATE SCHEMA copies; CREATE TABLE orders (id bigint, note text, updated_at timestamptz NOT NULL, "
        "PRIMARY KEY (id)) PARTITION BY RANGE (id)"
    )
    copied.execute("CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (50)")
    copied.execute("CREATE INDEX ON orders (updated_at, id)")
    copied.execute(
        "INSERT INTO orders SELECT n, 'x', '2026-01-01'::timestamptz + n * interval '1 s' FROM generate_series(1, 40) n"
    )
    copied.write(FINDS)
    assert copied.penstock("run").exit_code == 0
    copied.execute("CREATE TABLE high (LIKE orders INCLUDING ALL)")
    copied.execute("INSERT INTO high SELECT n, 'x', '2026-01-01' FROM generate_series(60, 70) n")
    copied.execute("ALTER TABLE orders ATTACH PARTITION high FOR VALUES FROM (50) TO (100)")
    copied.execute("DELETE FROM copies.orders WHERE id = 5; DELETE FROM orders WHERE id = 7")
    assert copied.differences() == {"missing": ["5"], "extra": ["7"]}
    assert copied.penstock("verify", *REPAIR).exit_code == 0
    assert copied.penstock("run").exit_code == 0
    assert copied.rows("SELECT count(*) FROM copies.orders") == [(50,)]
    assert copied.differences() == {}


def test_uuid_keys_that_are_text_in_the_sink(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.comparing.narrow.__kwdefaults__", {"leaf_rows": 5, "fanout": 3})
    copied = Copied(database, tmp_path)
    copied.execute("CREATE TABLE orders (id uuid PRIMARY KEY, updated_at timestamptz NOT NULL)")
    copied.execute("CREATE INDEX ON orders (updated_at, id)")
    copied.execute(
        'CREATE SCHEMA copies; CREATE TABLE copies.orders (id text COLLATE "en-x-icu" PRIMARY KEY, '
        "updated_at timestamptz)"
    )
    copied.execute("INSERT INTO orders SELECT md5(n::text)::uuid, now() FROM generate_series(1, 60) n")
    copied.write()
    assert copied.penstock("run").exit_code == 0
    assert copied.differences() == {}
    copied.execute(
        "DELETE FROM orders WHERE id = md5('7')::uuid; DELETE FROM copies.orders WHERE id = md5('8')::uuid::text"
    )
    found = copied.differences()
    assert (len(found["missing"]), len(found["extra"])) == (1, 1)
    assert copied.penstock("verify", *REPAIR).exit_code == 0
    assert copied.rows("SELECT id::uuid FROM copies.orders EXCEPT SELECT id FROM orders") == []


def test_a_key_that_is_there_twice_differs(database: str, tmp_path: Path) -> None:
    """A table of others without a unique index, which appends: only the newest row counts."""
    copied = Copied.make(database, tmp_path, rows=40)
    copied.execute("ALTER TABLE copies.orders DROP CONSTRAINT orders_pkey; CREATE INDEX ON copies.orders (id)")
    copied.execute("INSERT INTO copies.orders SELECT * FROM copies.orders WHERE id = 3")
    assert copied.differences() == {"stale": ["3"]}


def test_a_role_that_may_read_only_some_columns(database: str, tmp_path: Path) -> None:
    copied = Copied(database, tmp_path)
    copied.execute(TABLE)
    copied.execute("SELECT fill(1, 40); DROP ROLE IF EXISTS few; CREATE ROLE few LOGIN PASSWORD 'few'")
    copied.execute("GRANT USAGE ON SCHEMA public TO few; GRANT SELECT (id, note, updated_at) ON orders TO few")
    copied.write(f"{CURSOR}, columns: [id, note, updated_at]")
    text, path = (tmp_path / "shop.yaml").read_text(), tmp_path / "shop.yaml"
    source = text[text.index("    source:") : text.index("    sink:")]
    path.write_text(text.replace(source, source.replace("penstock:penstock@", "few:few@")))
    done = copied.penstock("run")
    assert done.exit_code == 0, done.stderr
    copied.execute("DELETE FROM copies.orders WHERE id = 5; DELETE FROM orders WHERE id = 7")
    assert copied.differences() == {"missing": ["5"], "extra": ["7"]}
    done = copied.penstock("verify", *REPAIR)
    assert done.exit_code == 0, done.stderr
    assert copied.differences() == {}


def test_an_empty_table_with_find_deletes(database: str, tmp_path: Path) -> None:
    copied = Copied.make(database, tmp_path, rows=0, stream=FINDS)
    for _ in range(2):
        done = copied.penstock("run")
        assert (done.exit_code, done.stderr) == (0, "")


def test_a_mark_that_only_waits_with_find_deletes(database: str, tmp_path: Path) -> None:
    """Nothing was delivered yet, because the first transaction is still open."""
    copied = Copied(database, tmp_path)
    copied.execute("CREATE SCHEMA copies; CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)")
    copied.write("cursor: id, unique: true, find_deletes: compare")
    with psycopg.connect(database) as db:
        db.execute("INSERT INTO orders DEFAULT VALUES")
        copied.execute("INSERT INTO orders DEFAULT VALUES")
        for _ in range(2):
            done = copied.penstock("run")
            assert (done.exit_code, done.stderr) == (0, "")
        [stream] = json.loads(copied.penstock("state show", "--json").stdout)["pipelines"][0]["streams"]
        assert stream["mark"]["key"] is None
        assert "deleted rows are not looked for: it cannot be compared, because nothing was delivered" in done.stdout
    assert copied.penstock("run").exit_code == 0
    assert copied.rows("SELECT count(*) FROM copies.orders") == [(2,)]


def test_values_that_arrow_cannot_hold_and_became_null(database: str, tmp_path: Path) -> None:
    copied = Copied(database, tmp_path)
    copied.execute(
        "CREATE SCHEMA copies; CREATE TABLE orders (id int PRIMARY KEY, at timestamptz, n numeric(9,2), "
        "updated_at timestamptz NOT NULL); CREATE INDEX ON orders (updated_at, id)"
    )
    copied.execute("INSERT INTO orders VALUES (1, 'infinity', 'NaN', now()), (2, now(), 1.5, now())")
    copied.write(f"{CURSOR}, unfit: 'null'")
    assert copied.penstock("run").exit_code == 0
    assert copied.differences() == {}


def test_without_the_store_nothing_is_repaired(copied: Copied) -> None:
    copied.execute("DELETE FROM copies.orders WHERE id = 7")
    (copied.folder / ".penstock").rename(copied.folder / "away")
    done = copied.penstock("verify", *REPAIR)
    assert (done.exit_code, "there is no store" in done.stderr) == (2, True)
    assert not (copied.folder / ".penstock").exists()


def test_a_sink_that_is_not_the_stores_stops_a_repair(copied: Copied) -> None:
    copied.execute("DELETE FROM copies.orders WHERE id = 7")
    copied.execute("UPDATE penstock_sink.ledger SET kind = 'refresh'")
    done = copied.penstock("verify", *REPAIR)
    assert done.exit_code == 1
    assert "was altered" in done.stdout
    assert copied.rows("SELECT count(*) FROM copies.orders") == [(39,)]


def test_the_plan_shows_an_open_repair(copied: Copied) -> None:
    copied.execute("DELETE FROM copies.orders WHERE id = 7")
    Command(copied.folder).kill_at("gate.moved", "verify", "shop.yaml", *REPAIR)
    [stream] = json.loads(copied.penstock("plan", "--json").stdout)["pipelines"][0]["streams"]
    assert (stream["open"]["kind"], stream["open"]["rows"]) == ("repair", 1)
    assert copied.penstock("state undo", "--stream", "orders", "--yes").exit_code == 0
    assert copied.is_copied()

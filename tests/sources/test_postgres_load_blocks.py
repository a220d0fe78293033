"""First loads by blocks of the table: only where it is safe, and never on into a table that was rewritten."""

from typing import Any

import pytest
from tests.sources.loads import Loader, loader, of
from tests.sources.tables import execute, rows

from penstock.errors import StreamFailed, StreamRefused

TABLE = """
CREATE TABLE t (n int PRIMARY KEY, c timestamptz NOT NULL, x text NOT NULL DEFAULT repeat('x', 200));
CREATE INDEX ON t (c, n);
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.c := now(); RETURN NEW; END $$;
CREATE TRIGGER stamp BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION stamp();
INSERT INTO t SELECT g, '2024-01-01Z'::timestamptz + (g * 31 % 97) * interval '1 s' FROM generate_series(1, 1000) g;
"""


@pytest.fixture
def table(database: str) -> str:
    """A thousand rows in thirty blocks."""
    execute(database, TABLE)
    return database


def by_blocks(url: str, rows_each: int = 300, most: int | None = None, **options: Any) -> Loader:
    said = {"horizon": {"margin": 0}}
    return loader(url, of(rows_each, most=most), said=said, tiebreaker="n", first_load="blocks", **options)


def numbers(url: str) -> list[int]:
    return [row[0] for row in rows(url, "SELECT n FROM t ORDER BY 1")]


@pytest.mark.parametrize("rows_each", [40, 300, 10**6])
def test_every_row_once(table: str, rows_each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sources.postgres.keyset.MIN_PART_ROWS", 50)
    execute(table, "DELETE FROM t WHERE n % 3 = 0", "ANALYZE t")
    load = by_blocks(table, rows_each).run()
    assert sorted(load.rows) == numbers(table)
    assert set(load.by_load) == {True}
    assert max(map(len, load.parts)) > 1 or rows_each == 40


def test_at_most_so_many_rows(table: str) -> None:
    load = by_blocks(table, 10**6, most=20).run()
    assert sorted(load.rows) == numbers(table)
    assert max(len(part) for parts in load.parts for part in parts) == 20
    load = by_blocks(table, 10**6, most=600).run()
    assert sorted(load.rows) == numbers(table)
    assert max(sum(map(len, parts)) for parts in load.parts) <= 600


def test_a_limit_of_rows_takes_as_many_blocks_as_it_allows(table: str) -> None:
    """Thirty blocks of thirty rows: not one block a slice."""
    execute(table, "ANALYZE t")
    for most in (100, 400):
        load = by_blocks(table, 10**6, most=most).run()
        assert sorted(load.rows) == numbers(table)
        slices = [sum(map(len, parts)) for parts in load.parts]
        assert max(slices) <= most
        assert len(slices) <= 1000 / most * 1.5 + 1


def test_rows_that_move_to_other_blocks_meanwhile(table: str) -> None:
    """Updated rows leave their blocks, for blocks that were read too; new ones come at the end, or into gaps."""
    turn = iter(range(100))

    def fire() -> None:
        number = next(turn)
        execute(
            table,
            f"UPDATE t SET x = x || 'y' WHERE n % 7 = {number % 7}",
            f"DELETE FROM t WHERE n BETWEEN {number * 40} AND {number * 40 + 5}",
            "VACUUM t",
            f"INSERT INTO t SELECT {2000 + number * 10} + g, now() FROM generate_series(1, 10) g",
        )

    load = by_blocks(table, 150, columns=["n", "c"]).run(fire)
    while load.begin().turn():
        pass
    assert len(set(load.versions)) == len(load.versions), "no version of a row comes twice"
    assert set(load.versions) >= set(rows(table, "SELECT n, c FROM t"))


def test_marks_and_what_is_left_are_told(table: str) -> None:
    execute(table, "ANALYZE t")
    load = by_blocks(table, 300).begin()
    assert load.ceiling is not None
    assert load.turn()
    assert load.words == ["first load, up to block 9"]
    assert load.last
    left = load.open().remaining("t", load.content, load.last.mark, load.ceiling)
    assert left.rows == pytest.approx(1000 - len(load.rows), abs=50)


class TestRewrite:
    WHAT = (
        "public.t was rewritten (VACUUM FULL, CLUSTER, TRUNCATE or an ALTER TABLE) during its first load by blocks: "
        "its rows were moved, and it is unknown which of them were delivered"
    )

    @pytest.mark.parametrize(
        "rewrite", ["VACUUM FULL t", "CLUSTER t USING t_pkey", "TRUNCATE t", "ALTER TABLE t ALTER n TYPE bigint"]
    )
    def test_between_two_slices(self, table: str, rewrite: str) -> None:
        load = by_blocks(table).begin()
        assert load.turn()
        execute(table, rewrite)
        with pytest.raises(StreamFailed) as failed:
            load.plan()
        assert failed.value.what == self.WHAT
        assert failed.value.next_step == (
            "drop an open slice with `penstock state recover FILE --stream t`, then load the table again with "
            "`penstock state reset FILE --stream t`; `first_load: keys` is not affected by a rewrite"
        )

    def test_under_an_open_slice(self, table: str) -> None:
        load = by_blocks(table).begin()
        slice_ = load.plan()
        assert slice_
        execute(table, "VACUUM FULL t")
        with pytest.raises(StreamFailed) as failed:
            load.read(slice_)
        assert failed.value.what == self.WHAT

    def test_while_a_worker_is_about_to_read(self, table: str) -> None:
        load = by_blocks(table).begin()
        slice_ = load.plan()
        assert slice_
        with load.open().reading(slice_) as reading:
            execute(table, "VACUUM FULL t")
            with pytest.raises(StreamFailed) as failed:
                reading.reader.open(reading.parts[0]).read_all()
        assert failed.value.what == self.WHAT
        assert failed.value.pipeline == "shop"

    def test_a_plain_vacuum_is_none(self, table: str) -> None:
        load = by_blocks(table).begin()
        assert load.turn()
        execute(table, "DELETE FROM t WHERE n > 900", "VACUUM t")
        while load.turn():
            pass
        assert sorted(load.rows) == numbers(table)


class TestRefused:
    def refusal(self, url: str, **options: Any) -> tuple[str, str]:
        with pytest.raises(StreamRefused) as refused:
            by_blocks(url, **options).begin()
        return refused.value.what.removeprefix("`first_load: blocks`: "), refused.value.next_step

    @pytest.mark.parametrize(
        "change",
        [
            "DROP TRIGGER stamp ON t",
            "ALTER TABLE t DISABLE TRIGGER stamp",
            "DROP TRIGGER stamp ON t; CREATE TRIGGER s BEFORE UPDATE OF x ON t FOR EACH ROW EXECUTE FUNCTION stamp()",
            "DROP TRIGGER stamp ON t; CREATE TRIGGER s BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION stamp()",
            "DROP TRIGGER stamp ON t; CREATE TRIGGER s BEFORE UPDATE ON t FOR EACH ROW"
            " WHEN (OLD.n IS DISTINCT FROM NEW.n) EXECUTE FUNCTION stamp()",
            "CREATE OR REPLACE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF NEW.n <> OLD.n THEN NEW.c := now(); END IF; RETURN NEW; END $$",
            "CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.c := OLD.c; RETURN NEW; END $$;"
            " CREATE TRIGGER undo BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION undo()",
            "ALTER TABLE t DISABLE TRIGGER stamp; ALTER TABLE t ENABLE REPLICA TRIGGER stamp",
        ],
    )
    def test_updates_that_leave_the_cursor_as_it_is(self, table: str, change: str) -> None:
        execute(table, change)
        assert self.refusal(table) == (
            "no trigger of public.t sets c with every update, and an update that leaves it unchanged could move a row "
            "out of sight (a trigger with a WHEN clause, or a function with a condition, lets updates pass)",
            "set `first_load: keys`, or create a trigger BEFORE UPDATE FOR EACH ROW that always sets c to now()",
        )
        said = loader(table, of(300), tiebreaker="n", said={"horizon": {"margin": 0}}).begin()
        assert not [each for each in said.open().explain("t", said.content) if "updates are seen" in each.text]

    def test_a_cursor_without_a_time_zone(self, table: str) -> None:
        """Sessions in several time zones would stamp out of order."""
        execute(table, "ALTER TABLE t ALTER c TYPE timestamp")
        assert self.refusal(table) == (
            "c is timestamp without time zone; only for a timestamptz it can be proven that every update raises it",
            "set `first_load: keys`",
        )

    @pytest.mark.parametrize("now", ["clock_timestamp()", "CURRENT_TIMESTAMP", "pg_catalog.now()"])
    def test_other_words_for_the_time_will_do(self, table: str, now: str) -> None:
        body = f"BEGIN NEW.c = {now}; RETURN NEW; END"
        execute(table, f"CREATE OR REPLACE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
        load = by_blocks(table).begin()
        assert "guarantee: updates are seen: the trigger stamp sets c with each" in [
            f"{each.kind}: {each.text}" for each in load.open().explain("t", load.content)
        ]

    def test_a_trigger_that_goes_in_the_middle(self, table: str) -> None:
        load = by_blocks(table).begin()
        assert load.turn()
        execute(table, "ALTER TABLE t DISABLE TRIGGER stamp")
        load.options["first_load"] = "auto"
        with pytest.raises(StreamRefused) as refused:
            load.plan()
        assert refused.value.what.startswith("the first load by blocks cannot continue: no trigger of public.t sets c")

    def test_a_partitioned_table(self, database: str) -> None:
        execute(
            database,
            "CREATE TABLE t (n int PRIMARY KEY, c timestamptz NOT NULL) PARTITION BY RANGE (n);"
            "CREATE INDEX ON t (c, n); CREATE TABLE t1 PARTITION OF t DEFAULT",
        )
        assert self.refusal(database) == (
            "public.t is a partitioned table; only an ordinary table is read by blocks",
            "set `first_load: keys`",
        )

    def test_a_server_that_cannot(self, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.sources.postgres.load.method.TID_RANGE_VERSION", 99)
        what, step = self.refusal(table)
        assert what.endswith("cannot look up a range of blocks; 99 and later can")
        assert step == "set `first_load: keys`"

    def test_without_a_horizon(self, table: str) -> None:
        assert self.refusal(table, horizon={"method": "off"}) == (
            "with `horizon: {method: off}` a row that is updated meanwhile could be missed in every version",
            "remove `method: off`, or set `first_load: keys`",
        )

    def test_permission_on_columns_alone(self, table: str) -> None:
        name = table.rpartition("/")[2]
        execute(table, f"CREATE ROLE {name} LOGIN PASSWORD 'x'; GRANT SELECT (n, c) ON t TO {name}")
        assert self.refusal(table.replace("penstock:penstock@", f"{name}:x@")) == (
            f"user {name} may read columns of public.t, but not the table as a whole",
            f"GRANT SELECT ON public.t TO {name}; or set `first_load: keys`",
        )
        execute(table, f"DROP OWNED BY {name}", f"DROP ROLE {name}")

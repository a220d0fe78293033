"""Rows that come below the mark where nothing keeps them from it: counted at the boundary, and warned of."""

import pytest
from tests.harness.postgres import PostgresServer
from tests.sources.late import BY_TIME, TOLD, Reads
from tests.sources.tables import execute

DAY = "2026-01-05"


@pytest.fixture(scope="module")
def shared(postgres_server: PostgresServer) -> str:
    return postgres_server.database()


@pytest.fixture
def database(shared: str) -> str:
    """Empty, and sooner there than a database of its own."""
    execute(shared, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return shared


def daily(url: str, **options: object) -> Reads:
    """Ten rows of a day, read up to id 50."""
    execute(url, TOLD.format(type="date"), f"INSERT INTO t SELECT g * 5, '{DAY}' FROM generate_series(1, 10) g")
    reads = Reads(url, {**BY_TIME, **options})
    assert len(reads.run().ids) == 10
    return reads


def warning(reads: Reads) -> str | None:
    left = reads.run().left
    return left.warning if left else None


def test_rows_of_the_delivered_value_with_a_lower_tiebreaker(database: str) -> None:
    reads = daily(database)
    assert reads.mark["ties"] == 10
    assert warning(reads) is None
    execute(database, f"INSERT INTO t SELECT g, '{DAY}' FROM generate_series(41, 44) g")
    run = reads.run()
    assert (run.ids, run.slices) == ([], 0)
    assert run.ceiling
    assert run.ceiling["held"], "a run says it although nothing moves"
    assert run.left
    assert run.left.warning == (
        f"4 rows with c {DAY} appeared below the mark after it was made (the same c, a lower id), and may have been "
        f"missed; `penstock rewind FILE --stream t --to '{DAY}'` delivers every row from there again"
    )


def test_it_is_said_with_rows_that_do_come(database: str) -> None:
    reads = daily(database)
    execute(database, f"INSERT INTO t VALUES (1, '{DAY}'), (99, '{DAY}')")
    run = reads.run()
    assert run.ids == [99]
    assert run.left
    assert "1 row with c" in str(run.left.warning)
    # What was missed is part of the next mark's count.
    assert reads.mark["ties"] == 12
    assert warning(reads) is None


def test_going_back_brings_them(database: str) -> None:
    from dataclasses import replace

    reads = daily(database)
    execute(database, f"INSERT INTO t VALUES (1, '{DAY}')")
    assert warning(reads)
    origin = reads.open()
    assert reads.last
    reads.last = replace(reads.last, mark=origin.mark_at("t", origin.content("t"), reads.last, DAY))
    assert 1 in reads.run().ids
    assert warning(reads) is None


@pytest.mark.parametrize("change", ["DELETE FROM t WHERE id < 20", "UPDATE t SET note = 'y'", "VACUUM FULL t"])
def test_rows_that_go_or_change_are_no_reason(database: str, change: str) -> None:
    reads = daily(database)
    execute(database, change)
    assert warning(reads) is None


def test_a_filter_counts(database: str) -> None:
    reads = daily(database, where="id <> 1")
    execute(database, f"INSERT INTO t VALUES (1, '{DAY}')")
    assert warning(reads) is None


def test_too_many_ties_are_not_counted(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sources.postgres.table_checks.MAX_COUNTED_TIES", 8)
    reads = daily(database)
    assert "ties" not in reads.mark


def test_without_an_index_it_is_not_cheap(database: str) -> None:
    reads = daily(database, index="optional")
    assert "ties" not in reads.mark


def test_check_says_so(database: str) -> None:
    reads = daily(database)
    origin = reads.open()
    said = [remark.text for remark in origin.explain("t", origin.content("t")) if remark.kind == "gap"]
    assert (
        "a row that commits later with the c of the mark and a lower id is missed; each run counts such rows at its "
        "mark and warns of them"
    ) in said


class TestEmptied:
    """TRUNCATE keeps the sequence: what it numbers comes. What is put in below the mark does not, and is told."""

    def test_lower_keys_are_warned_of(self, database: str) -> None:
        reads = daily(database)
        execute(database, "TRUNCATE t", f"INSERT INTO t SELECT g, '{DAY}' FROM generate_series(1, 3) g")
        assert warning(reads) == (
            f"public.t was truncated or rewritten since the mark was made, and its highest c, {DAY}, lies below the "
            f"mark (c {DAY}): rows inserted below the mark are not read; `penstock state reset FILE --stream t` reads "
            "the table from the beginning"
        )

    def test_nothing_in_it_is_nothing_to_say(self, database: str) -> None:
        reads = daily(database)
        execute(database, "TRUNCATE t")
        assert warning(reads) is None

    def test_rows_above_come(self, database: str) -> None:
        reads = daily(database)
        execute(database, "TRUNCATE t", "INSERT INTO t VALUES (1, '2026-01-06')")
        assert reads.run().ids == [1]

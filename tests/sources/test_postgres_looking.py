"""What is left of a large table, and what a stream's guarantees are: asked of the catalog, not of the rows."""

from typing import Any

import pytest
from tests.sources.tables import ORDERS, execute, rows, source

from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.ports import Budget, Remaining
from penstock.sources.postgres import PostgresSource, proposals

KEYSET = {"cursor": "updated_at", "tiebreaker": "id"}
MANY = 30_000
FILL = (
    "INSERT INTO orders (updated_at) SELECT '2026-01-01Z'::timestamptz + n * interval '1 s'"
    f" FROM generate_series(1, {MANY}) n"
)
TIE = "UPDATE orders SET updated_at = '2026-06-01Z'"


class TestWhatIsLeft:
    def asked(self, url: str, read: int, **options: Any) -> tuple[Remaining, PostgresSource, Mark, Document]:
        """What is left after so many rows."""
        origin = source(url, {"orders": options or KEYSET})
        content = origin.content("orders")
        ceiling = origin.ceiling("orders", content, "run")
        assert ceiling is not None
        planned = origin.plan("orders", content, None, ceiling, Budget(1 << 30, rows=read))
        assert planned is not None
        return origin.remaining("orders", content, planned.upto, ceiling), origin, planned.upto, ceiling

    @pytest.mark.parametrize("prepared", [("VACUUM orders",), ("ANALYZE orders",), (TIE, "VACUUM ANALYZE orders")])
    @pytest.mark.parametrize("options", [KEYSET, {"cursor": "id", "unique": True}], ids=["time", "number"])
    def test_many_rows_are_estimated_well(
        self, database: str, prepared: tuple[str, ...], options: dict[str, Any]
    ) -> None:
        execute(database, ORDERS, "ALTER TABLE orders SET (autovacuum_enabled = off)", FILL, *prepared)
        for read in (1, 6_000, 15_000):
            left, *_ = self.asked(database, read, **options)
            assert not left.exact
            assert left.rows is not None
            assert abs(left.rows - (MANY - read)) < MANY * 0.05

    def test_few_rows_are_counted(self, database: str) -> None:
        execute(database, ORDERS, FILL)
        left, *_ = self.asked(database, MANY - 9_000)
        assert (left.rows, left.exact, left.held_back, left.blocker) == (9_000, True, None, None)

    def test_many_rows_are_not_read_for_it(self, database: str) -> None:
        execute(database, ORDERS, FILL, "VACUUM ANALYZE orders")
        _, origin, mark, ceiling = self.asked(database, 1)
        before = self.counted(database)
        content = origin.content("orders")
        for _ in range(10):
            origin.remaining("orders", content, mark, ceiling)
        origin.close()
        after = self.counted(database)
        assert after - before <= 10 * 12_000

    def counted(self, url: str) -> int:
        """Rows and index entries that were read so far, once the statistics are there."""
        execute(url, "SELECT pg_sleep(1.5)")
        asked = "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname = 'orders'"
        whole = "SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables WHERE relname = 'orders'"
        return int(rows(url, asked)[0][0]) + int(rows(url, whole)[0][0])

    def test_a_refresh_and_a_view_are_estimated_by_the_planner(self, database: str) -> None:
        execute(database, ORDERS, FILL, "ANALYZE orders", "CREATE VIEW seen AS SELECT * FROM orders")
        origin = source(database, {"orders": {}, "seen": {}})
        for stream in ("orders", "seen"):
            content = origin.content(stream)
            assert origin.remaining(stream, content, None, {"run": "one"}) == Remaining(MANY)

    @pytest.mark.parametrize("options", [KEYSET, {}], ids=["keyset", "refresh"])
    def test_a_condition_is_counted(self, database: str, options: dict[str, Any]) -> None:
        execute(database, ORDERS, FILL.replace(str(MANY), "900"))
        origin = source(database, {"orders": {**options, "where": "id % 3 = 0 -- every third"}})
        content = origin.content("orders")
        ceiling = origin.ceiling("orders", content, "run")
        assert ceiling is not None
        left = origin.remaining("orders", content, None, ceiling)
        assert (left.rows, left.exact) == (300, True)
        planned = origin.plan("orders", content, None, ceiling, Budget(1 << 30))
        assert planned
        assert (planned.rows, planned.exact) == (None, False)
        execute(database, FILL, "ANALYZE orders")
        if options:
            ceiling = origin.ceiling("orders", content, "another run")
            assert ceiling is not None
        left = origin.remaining("orders", content, None, ceiling)
        assert not left.exact
        assert left.rows is not None
        assert left.rows < MANY / 2

    def test_a_slice_that_is_cut_by_statistics_is_not_called_exact(
        self, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        execute(database, ORDERS, FILL, "ANALYZE orders")
        for far, exact in ((100_000, True), (10_000, False)):
            monkeypatch.setattr("penstock.sources.postgres.keyset.MAX_WALKED_ROWS", far)
            origin = source(database, {"orders": {"cursor": "id", "unique": True}})
            content = origin.content("orders")
            ceiling = origin.ceiling("orders", content, "run")
            assert ceiling is not None
            planned = origin.plan("orders", content, None, ceiling, Budget(64 * 90_000, row_bytes=64))
            assert planned
            assert planned.exact == exact
            assert planned.rows == pytest.approx(MANY, abs=0 if exact else MANY * 0.02)
            assert planned.rows is not None
            assert planned.rows <= MANY, "no more than the table has"

    def test_numbers_that_a_double_cannot_hold(self, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.sources.postgres.remaining.MAX_COUNTED_ROWS", 10)
        execute(
            database,
            "CREATE TABLE orders (id numeric PRIMARY KEY)",
            "INSERT INTO orders SELECT ('1e' || n)::numeric FROM generate_series(1, 400) n",
        )
        left, *_ = self.asked(database, 350, cursor="id", unique=True)
        assert (left.rows, left.exact) == (None, False)

    def test_a_small_table_that_nobody_has_analyzed_is_counted(self, database: str) -> None:
        execute(database, "CREATE TABLE kinds (name text PRIMARY KEY)", "INSERT INTO kinds VALUES ('a'), ('b')")
        origin = source(database, {"kinds": {}})
        content = origin.content("kinds")
        assert origin.remaining("kinds", content, None, {"run": "one"}) == Remaining(2, exact=True)


class TestGuarantees:
    TRIGGERED = (
        "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN NEW.updated_at := clock_timestamp(); RETURN NEW; END'",
        "CREATE TRIGGER touched BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION touch()",
    )

    def said(self, url: str, **options: Any) -> list[tuple[str, str]]:
        origin = source(url, {"orders": options})
        return [(remark.kind, remark.text) for remark in origin.explain("orders", origin.content("orders"))]

    def test_updates_are_promised_only_with_a_trigger(self, database: str) -> None:
        execute(database, ORDERS)
        assert ("gap", "an update that does not change the cursor is not seen") in self.said(database, **KEYSET)
        execute(database, *self.TRIGGERED)
        promised = ("guarantee", "updates are seen: the trigger touched sets updated_at with each")
        assert promised in self.said(database, **KEYSET)
        assert not any("as it is is not seen" in text for _, text in self.said(database, **KEYSET))

    def test_a_number_sees_no_updates(self, database: str) -> None:
        execute(database, ORDERS)
        said = self.said(database, cursor="id", unique=True)
        assert ("gap", "an update is not seen unless it gives the row a higher cursor") in said

    def test_a_cursor_misses_deletes_and_late_commits_and_a_refresh_does_not(self, database: str) -> None:
        execute(database, ORDERS)
        by_cursor = " ".join(text for kind, text in self.said(database, **KEYSET) if kind == "gap")
        assert "deletes are not seen" in by_cursor
        assert "commits late" in by_cursor
        assert [kind for kind, _ in self.said(database)] == ["guarantee"]

    def test_skipped_nulls_a_missing_index_and_coarse_times_are_told(self, database: str) -> None:
        execute(database, ORDERS.replace("CREATE INDEX ON orders (updated_at, id);", "").replace("tz,", "tz(3),"))
        said = self.said(database, **KEYSET, nulls="skip", index="optional")
        assert ("gap", "rows whose updated_at is NULL are not delivered (`nulls: skip`)") in said
        assert any(kind == "gap" and "only 3 fractional digits" in text for kind, text in said)
        assert any(
            kind == "advice" and "CREATE INDEX CONCURRENTLY ON public.orders (updated_at, id);" in text
            for kind, text in said
        )

    def test_a_large_refresh_is_advised_against(self, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        execute(database, ORDERS)
        monkeypatch.setattr("penstock.sources.postgres.explain.SMALL_TABLE_BYTES", -1)
        assert proposals.SMALL_TABLE_BYTES > 0
        assert self.said(database)[-1][0] == "advice"

"""The first load on a real server: every row once, whatever the keys are and whatever happens between two slices."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from tests.sources.loads import STAMP, loader, made, numbers, of
from tests.sources.tables import execute, rows

from penstock.core.documents import canonical
from penstock.core.marks import Mark
from penstock.errors import StreamFailed, StreamRefused
from penstock.sources.postgres import marks
from penstock.sources.postgres.marks import KeysetMark, LoadMark


def load_of(mark: Mark | None) -> LoadMark:
    assert mark
    found = marks.read(mark)
    assert isinstance(found, LoadMark)
    return found


def keyset_of(mark: Mark | None) -> KeysetMark:
    assert mark
    found = marks.read(mark)
    assert isinstance(found, KeysetMark)
    return found


class TestEveryRowOnce:
    @pytest.mark.parametrize(
        ("type_", "value"),
        [
            ("int", "g"),
            ("int", "500 - g"),
            ("smallint", "g"),
            ("bigint", "g * 9007199254740993 - 9007199254740993 * 500"),
            ("bigint", "CASE WHEN g < 100 THEN g ELSE 9223372036854775807 - g END"),
            ("uuid", "md5(g::text)::uuid"),
            ("text", "md5(g::text)"),
            ('text COLLATE "C"', "chr(33 + g % 90) || ' ''\\ ' || g"),
            ("varchar(40)", "'é' || g"),
            ("numeric", "(g - 500) * 1.00000000000000000001"),
            ("numeric", "CASE g WHEN 1 THEN 'NaN' WHEN 2 THEN -1e400 WHEN 3 THEN 1e-400 ELSE g / 7.0 END"),
            ("numeric(12,3)", "g * g / 8.0"),
            ("double precision", "CASE g WHEN 1 THEN '-infinity' WHEN 2 THEN 1e308 ELSE (g - 500) / 3.0 END"),
            ("timestamptz", "timestamptz '2024-01-01Z' + g * g * interval '1 minute'"),
            ("timestamp(0)", "CASE g WHEN 1 THEN '-infinity' ELSE timestamp '2024-01-01' + g * interval '1 hour' END"),
            ("date", "CASE g WHEN 1 THEN '-infinity' WHEN 2 THEN 'infinity' ELSE date '2000-01-01' + g END"),
            ("inet", "'10.0.0.0'::inet + g"),
            ("bytea", "decode(md5(g::text), 'hex')"),
        ],
    )
    def test_keys_of_many_types(self, database: str, by_statistics: None, type_: str, value: str) -> None:
        made(database, "ANALYZE t", key=type_, value=value)
        load = loader(database, of(300, workers=1)).run()
        assert sorted(load.rows) == numbers(database)
        assert 3 <= len(load.slices) <= 5
        assert all(load.by_load)

    @pytest.mark.parametrize(
        ("type_", "value"),
        [("int", "g"), ("bigint", "g * 1000000007::bigint"), ("text", "md5(g::text)"), ("uuid", "md5(g::text)::uuid")],
    )
    def test_a_table_that_was_never_analyzed(self, database: str, by_statistics: None, type_: str, value: str) -> None:
        made(database, key=type_, value=value, count=600)
        load = loader(database, of(250)).run()
        assert sorted(load.rows) == numbers(database)
        assert 2 <= len(load.slices) <= 4

    @pytest.mark.parametrize("value", ["g % 5", "CASE WHEN g < 900 THEN 7 ELSE g END", "g / 3"])
    def test_composite_keys(self, database: str, by_statistics: None, value: str) -> None:
        """Few values, one that is nearly all of them, and many: the last can be cut by the statistics."""
        execute(
            database,
            "CREATE TABLE t (n int, a int, b text, c int NOT NULL, PRIMARY KEY (a, b)); CREATE INDEX ON t (c, a, b)",
            f"INSERT INTO t SELECT g, {value}, 'b' || g, g % 10 FROM generate_series(1, 1000) g",
            "ANALYZE t",
        )
        load = loader(database, of(300), tiebreaker=["a", "b"]).run()
        assert sorted(load.rows) == numbers(database)
        assert 3 <= len(load.slices) <= 5
        assert max(len(slice_) for slice_ in load.parts) > 1

    def test_a_primary_key_that_is_not_the_tiebreaker(self, database: str) -> None:
        made(database, "ALTER TABLE t ADD other uuid NOT NULL UNIQUE DEFAULT gen_random_uuid()")
        execute(database, "CREATE INDEX ON t (c, other)")
        load = loader(database, of(400), tiebreaker="other").run()
        assert sorted(load.rows) == numbers(database)
        assert load_of(load.slices[0].upto).columns[0].column == "id"

    def test_a_tiebreaker_that_a_unique_index_proves(self, database: str) -> None:
        made(database, "ALTER TABLE t DROP CONSTRAINT t_pkey; CREATE UNIQUE INDEX ON t (id DESC)")
        load = loader(database, of(400)).run()
        assert sorted(load.rows) == numbers(database)
        assert all(load.by_load)

    def test_an_empty_table_has_nothing_to_load(self, database: str) -> None:
        made(database, count=0)
        assert loader(database, of(10)).run().slices == []

    def test_one_row(self, database: str, by_statistics: None) -> None:
        made(database, count=1)
        load = loader(database, of(10)).run()
        assert load.parts == [[[1]]]
        assert keyset_of(load.slices[-1].upto).key == ("2024-01-01 00:00:31+00", "1")

    def test_rows_above_the_horizon_are_left_to_the_keyset(self, database: str) -> None:
        made(database, "UPDATE t SET c = c + interval '1 year' WHERE n > 10")
        load = loader(database, of(200)).begin()
        assert load.ceiling is not None
        load.ceiling = {**load.ceiling, "key": ["2024-06-01 00:00:00+00", "1"]}
        while load.turn():
            pass
        assert sorted(load.rows) == list(range(1, 11))
        assert set(load.by_load) == {True}
        load.run()
        assert sorted(load.rows) == numbers(database)
        assert load.by_load[-1] is False

    def test_nothing_but_rows_above_the_horizon(self, database: str) -> None:
        made(database)
        load = loader(database, of(400)).begin()
        load.ceiling = {**(load.ceiling or {}), "key": ["2020-01-01 00:00:00+00", "1"]}
        while load.turn():
            pass
        assert load.rows == []
        assert load.run().by_load[-1] is False
        assert sorted(load.rows) == numbers(database)

    def test_a_condition_and_rows_without_a_cursor(self, database: str) -> None:
        made(database, "ALTER TABLE t ALTER c DROP NOT NULL; UPDATE t SET c = NULL WHERE n % 7 = 0")
        load = loader(database, of(300), where="n % 2 = 0 -- even", nulls="skip").run()
        assert sorted(load.rows) == [n for n in range(1, 1001) if n % 2 == 0 and n % 7]

    def test_a_hole_that_the_statistics_do_not_know_of(self, database: str, by_statistics: None) -> None:
        made(database, "ANALYZE t", "DELETE FROM t WHERE id BETWEEN 210 AND 790")
        load = loader(database, of(70)).run()
        assert sorted(load.rows) == numbers(database)
        assert all(load.parts)

    def test_a_cut_never_lies_beyond_the_ceiling(self, database: str, by_statistics: None) -> None:
        """Where the ceiling lies in the middle of rows with one cursor, at which there is a bound."""
        execute(
            database,
            "CREATE TABLE t (n int PRIMARY KEY, c text NOT NULL); CREATE INDEX ON t (c, n)",
            "INSERT INTO t SELECT g, to_char(least(g / 3, 310), '000') FROM generate_series(1, 1000) g",
            "ANALYZE t",
        )
        load = loader(database, of(3000, workers=20), first_load="cursor", tiebreaker="n").begin()
        load.ceiling = {**(load.ceiling or {}), "key": [" 310", "970"]}
        assert load.turn()
        assert len(load.parts[0]) > 10
        assert sorted(load.rows) == list(range(1, 971))

    @pytest.mark.parametrize("seed", range(8))
    def test_random_keys_and_statistics_that_are_behind(
        self, database: str, by_statistics: None, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Slices and parts of any size cover the table, each row in one, however wrong the statistics are."""
        dice = random.Random(seed)
        monkeypatch.setattr("penstock.sources.postgres.keyset.MAX_WALKED_ROWS", dice.choice([10, 150]))
        type_, value = dice.choice(
            [
                ("bigint", "(random() * 1e15)::bigint - 5e14::bigint"),
                ("bigint", "(random() ^ 9 * 1e9)::bigint"),
                ("uuid", "gen_random_uuid()"),
                ("text", "md5(random()::text)"),
                ("timestamptz", "now() - random() ^ 4 * interval '9 years'"),
                ("numeric", "(random() - 0.5)::numeric ^ 5"),
            ]
        )
        insert = f"INSERT INTO t SELECT g, {value}, now() - random() * interval '1 hour' FROM generate_series({{}}) g"
        execute(
            database,
            f"CREATE TABLE t (n int, id {type_} PRIMARY KEY, c timestamptz NOT NULL); CREATE INDEX ON t (c, id)",
            f"SELECT setseed({dice.random()}); {insert.format('1, 700')} ON CONFLICT DO NOTHING",
            *(["ANALYZE t"] if dice.random() < 0.8 else []),
            f"DELETE FROM t WHERE random() < {dice.random() * 0.9}",
            f"{insert.format(f'701, {700 + dice.randrange(600)}')} ON CONFLICT DO NOTHING",
        )
        load = loader(database, of(dice.choice([60, 100, 250, 5000]), workers=dice.choice([1, 2, 4]))).run()
        assert sorted(load.rows) == numbers(database)


class TestBetweenSlices:
    def test_what_changes_meanwhile_comes_once_more_and_nothing_else_twice(self, database: str) -> None:
        made(database, STAMP)
        load = loader(database, of(150), columns=["n", "c"])
        dice = random.Random(1)

        def fire() -> None:
            low = dice.randrange(1000)
            execute(
                database,
                f"UPDATE t SET n = n WHERE n BETWEEN {low} AND {low + 20}",
                f"INSERT INTO t SELECT id - 2000, id - 2000, now() FROM t WHERE n BETWEEN {low} AND {low + 9}"
                " ON CONFLICT DO NOTHING",
                f"DELETE FROM t WHERE n BETWEEN {low + 30} AND {low + 33}",
            )

        load.run(fire)
        while load.begin().turn():
            pass
        assert len(set(load.versions)) == len(load.versions), "no version of a row comes twice"
        assert set(load.versions) >= set(rows(database, "SELECT n, c FROM t"))

    def test_a_load_that_is_resumed_keeps_its_horizon_and_then_the_next_run_goes_on(self, database: str) -> None:
        made(database)
        load = loader(database, of(300)).begin()
        assert load.turn()
        first = load_of(load.slices[0].upto)
        execute(database, "INSERT INTO t SELECT g, g, now() FROM unnest(ARRAY[-2, -1, 0, 1001, 1002]) g")
        load.begin()
        while load.turn():
            pass
        assert sorted(load.rows) == numbers(database)
        assert load.by_load == [True] * 4 + [False]
        assert {load_of(slice_.upto).then.key for slice_ in load.slices[:3]} == {first.then.key}
        assert keyset_of(load.slices[3].upto).key == first.then.key
        assert keyset_of(load.slices[4].upto).key != first.then.key

    def test_a_rewritten_table_is_read_on_by_keys(self, database: str) -> None:
        made(database)
        load = loader(database, of(300)).run(lambda: execute(database, "VACUUM FULL t", "CLUSTER t USING t_pkey"))
        assert sorted(load.rows) == numbers(database)

    def test_a_slice_that_is_read_again_is_the_same(self, database: str, by_statistics: None) -> None:
        made(database, "ANALYZE t")
        load = loader(database, of(300)).run()
        execute(database, "INSERT INTO t SELECT g, g, now() FROM generate_series(1001, 1200) g", "ANALYZE t")
        assert [[sorted(part) for part in load.read(slice_)] for slice_ in load.slices] == [
            [sorted(part) for part in parts] for parts in load.parts
        ]

    def test_a_key_that_became_wider(self, database: str) -> None:
        made(database)
        load = loader(database, of(300)).begin()
        assert load.turn()
        execute(database, "ALTER TABLE t ALTER id TYPE bigint; INSERT INTO t VALUES (0, 5000000000, '2024-01-01Z')")
        load.begin()
        while load.turn():
            pass
        assert sorted(load.rows) == numbers(database)

    def test_a_key_that_is_gone_or_another(self, database: str) -> None:
        made(database, "ALTER TABLE t ADD other int NOT NULL GENERATED ALWAYS AS (n) STORED UNIQUE")
        execute(database, "CREATE INDEX ON t (c, other)")
        load = loader(database, of(300), tiebreaker="other").begin()
        assert load.turn()
        execute(database, "ALTER TABLE t ALTER id TYPE text")
        with pytest.raises(StreamRefused) as refused:
            load.begin().plan()
        assert refused.value.what == "the first load reads by id of public.t, which was integer and is text now"
        execute(database, "ALTER TABLE t DROP id")
        with pytest.raises(StreamRefused) as refused:
            load.begin().plan()
        assert refused.value.what == "the first load reads by id of public.t, which was integer and was dropped"

    def test_the_option_takes_effect_at_the_beginning_alone(self, database: str) -> None:
        made(database)
        load = loader(database, of(300)).begin()
        assert load.turn()
        load.options["first_load"] = "cursor"
        load.begin()
        while load.turn():
            pass
        assert sorted(load.rows) == numbers(database)
        assert load.by_load == [True] * 4


class TestAuto:
    @pytest.fixture(autouse=True)
    def _large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.sources.postgres.load.method.MIN_PARALLEL_BYTES", 16384)

    def way(self, url: str, **options: Any) -> bool:
        load = loader(url, of(10**6), **{"first_load": "auto", **options}).run()
        assert sorted(load.rows) == numbers(url)
        return load.by_load[0]

    def test_a_large_table_goes_by_keys(self, database: str) -> None:
        made(database)
        assert self.way(database)
        assert not self.way(database, first_load="cursor")

    def test_a_small_one_along_the_cursor(self, database: str) -> None:
        made(database, count=100)
        assert not self.way(database)

    def test_a_key_that_follows_the_disk_less_than_the_cursor_does(self, database: str) -> None:
        made(
            database,
            "UPDATE t SET c = '2024-01-01Z'::timestamptz + n * interval '1 s'",
            key="uuid",
            value="md5(g::text)::uuid",
        )
        assert self.way(database)
        execute(database, "VACUUM FULL t", "ANALYZE t")
        assert not self.way(database)

    def test_a_unique_cursor_is_the_key_itself(self, database: str, by_statistics: None) -> None:
        """Then there is but one way, and its slices are cut by the statistics too."""
        made(database, "ANALYZE t")
        load = loader(database, of(300), cursor="id", tiebreaker=[], unique=True).run()
        assert sorted(load.rows) == numbers(database)
        assert load.by_load == [False] * 3

    def test_a_table_without_a_key_for_it(self, database: str) -> None:
        made(
            database,
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ALTER id SET NOT NULL; CREATE UNIQUE INDEX ON t (c, id)",
        )
        assert not self.way(database)
        with pytest.raises(StreamRefused) as refused:
            self.way(database, first_load="keys")
        assert refused.value.what == (
            "`first_load: keys`: public.t has no primary key, nor an index that proves its tiebreaker unique"
        )
        assert refused.value.next_step == "give the table a primary key, or set `first_load: cursor`"


class TestBudgets:
    def test_at_most_so_many_rows(self, database: str) -> None:
        made(database, count=100)
        load = loader(database, of(10**6, most=7)).run()
        assert [sum(map(len, parts)) for parts in load.parts] == [7] * 14 + [2]

    def test_a_slice_of_many_rows_is_larger_than_the_budget_if_it_is_cut_by_statistics(
        self, database: str, by_statistics: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.sources.postgres.keyset.LONG_SLICE_FACTOR", 4)
        made(database, "ANALYZE t", count=2000)
        assert [plan["rows"] for plan in loader(database, of(250)).run().plans] == pytest.approx([1000, 1000], abs=5)

    @pytest.mark.parametrize(("connections", "parts"), [(None, 8), (8, 8), (3, 3), (1, 1)])
    @pytest.mark.parametrize("first_load", ["keys", "cursor"])
    def test_no_more_parts_than_connections(
        self, database: str, by_statistics: None, connections: int | None, parts: int, first_load: str
    ) -> None:
        made(database, "UPDATE t SET c = c + n * interval '1 hour'", "ANALYZE t")
        load = loader(database, of(500, workers=4), said={"connections": connections}, first_load=first_load).run()
        assert [len(slice_) for slice_ in load.parts] == [parts, parts]
        sizes = [len(part) for part in load.parts[0]]
        assert max(sizes) - min(sizes) < 100

    def test_a_plan_that_does_not_cover_its_slice_is_not_read(self, database: str) -> None:
        made(database)
        load = loader(database, of(300)).begin()
        assert load.turn()
        slice_ = load.plan()
        assert slice_
        plan = json.loads(slice_.plan)
        plan["pieces"][-1]["upto"] = ["550"]
        for other in (plan, {**plan, "pieces": plan["pieces"][1:]}):
            with pytest.raises(StreamFailed, match="the parts of slice 2 do not cover it"):
                load.read(replace(slice_, plan=canonical(other)))


class TestWords:
    def test_marks_are_told_in_words(self, database: str) -> None:
        made(database)
        assert loader(database, of(400)).run().words == [
            "first load, up to id 400",
            "first load, up to id 800",
            "up to c 2024-01-01 00:01:36+00, id 995",
        ]

    def test_what_is_left_becomes_less(self, database: str) -> None:
        made(database, "INSERT INTO t VALUES (1001, 1001, '2026-01-01Z')", "ANALYZE t")
        load = loader(database, of(400)).begin()
        load.ceiling = {**(load.ceiling or {}), "key": ["2025-01-01 00:00:00+00", "1"]}
        assert load.turn()
        origin, content = load.open(), load.content
        assert load.last
        mark = load.last.mark
        assert origin.remaining("t", content, mark, load.ceiling).rows == 601
        assert (
            origin.remaining("t", content, mark, {**load.ceiling, "key": ["2026-01-01 00:00:00+00", "1001"]}).rows
            == 602
        )

"""First loads of partitioned tables: leaf by leaf, and what becomes of leaves that come and go."""

from typing import Any

import pytest
from psycopg import connect
from tests.sources.loads import Loader, loader, of
from tests.sources.tables import execute, rows

from penstock.core.slices import Slice
from penstock.errors import StreamRefused
from penstock.sources.postgres import marks
from penstock.sources.postgres.marks import KeysetMark, LoadMark

TABLE = """
CREATE TABLE t (n int NOT NULL, id int NOT NULL, region int NOT NULL, c timestamptz NOT NULL, PRIMARY KEY (region, id))
PARTITION BY LIST (region);
CREATE INDEX ON t (c, region, id);
CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1);
CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2) PARTITION BY RANGE (id);
CREATE TABLE t2_low PARTITION OF t2 FOR VALUES FROM (MINVALUE) TO (500);
CREATE TABLE t2_high PARTITION OF t2 DEFAULT;
CREATE TABLE t3 PARTITION OF t FOR VALUES IN (3);
CREATE TABLE rest PARTITION OF t DEFAULT;
"""


@pytest.fixture
def table(database: str) -> str:
    """Six hundred rows in three leaves; one has the half of them, and two have none."""
    execute(database, TABLE)
    grow(database, "1, 300", region="1")
    grow(database, "301, 600", region="2")
    return database


@pytest.fixture
def large_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """No leaf is so small that it is read whole."""
    monkeypatch.setattr("penstock.sources.postgres.load.key_ranges.MIN_PART_BYTES", 0)


def grow(url: str, numbers: str, region: str, at: str = "'2024-01-01Z'::timestamptz + g * interval '1 s'") -> None:
    execute(url, f"INSERT INTO t SELECT g, g, {region}, {at} FROM generate_series({numbers}) g")


def numbers(url: str) -> list[int]:
    return [row[0] for row in rows(url, "SELECT n FROM t ORDER BY 1")]


def by_leaf(url: str, rows_each: int = 250, **options: Any) -> Loader:
    return loader(url, of(rows_each), tiebreaker=["region", "id"], **options)


def leaves(slice_: Slice) -> tuple[str, ...]:
    assert slice_.upto
    mark = marks.read(slice_.upto)
    assert isinstance(mark, KeysetMark | LoadMark)
    return mark.leaves if isinstance(mark, KeysetMark) else mark.then.leaves


def older(url: str, name: str, numbers: str, region: int) -> None:
    """A table of its own with old rows, which could become a leaf."""
    execute(
        url,
        f"CREATE TABLE {name} (LIKE t INCLUDING ALL)",
        f"INSERT INTO {name} SELECT g, g, {region}, '2023-01-01Z'::timestamptz + g * interval '1 s'"
        f" FROM generate_series({numbers}) g",
    )


def attach(url: str, name: str, region: int) -> None:
    execute(url, f"ALTER TABLE t ATTACH PARTITION {name} FOR VALUES IN ({region})")


@pytest.mark.usefixtures("large_leaves")
@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize("rows_each", [70, 250, 10**6])
def test_every_leaf_is_read_once(table: str, analyzed: bool, rows_each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sources.postgres.keyset.MAX_WALKED_ROWS", 10)
    monkeypatch.setattr("penstock.sources.postgres.keyset.LONG_SLICE_FACTOR", 1)
    if analyzed:
        execute(table, "ANALYZE t")
    load = by_leaf(table, rows_each).run()
    assert sorted(load.rows) == numbers(table)
    assert set(load.by_load) == {True}
    assert len(leaves(load.slices[-1])) == 5


def test_a_small_leaf_is_one_part_and_an_empty_one_none(table: str) -> None:
    load = by_leaf(table, 10**6).run()
    assert [sorted(map(len, parts)) for parts in load.parts] == [[101, 199, 300]]
    assert [len(parts) for parts in by_leaf(table, 10**6, said={"connections": 1}).run().parts] == [1, 1, 1]


@pytest.mark.usefixtures("large_leaves")
def test_marks_are_told_in_words(table: str) -> None:
    assert by_leaf(table, 210).run().words == [
        "first load, up to region 1, id 210 of public.t1",
        "first load, up to region 2, id 420 of public.t2_low, after 1 of 5 partitions",
        "up to c 2024-01-01 00:10:00+00, region 2, id 600",
    ]
    assert by_leaf(table, 250).run().words[1] == "first load, 2 of 5 partitions"


@pytest.mark.usefixtures("large_leaves")
def test_rows_come_while_it_is_loaded(table: str) -> None:
    number = iter(range(601, 2000, 10))

    def fire() -> None:
        start = next(number)
        grow(table, f"{start}, {start + 9}", region="1 + g % 5", at="now()")

    load = by_leaf(table, 100).run(fire)
    while load.begin().turn():
        pass
    assert sorted(load.rows) == numbers(table)


@pytest.mark.usefixtures("large_leaves")
def test_a_leaf_that_is_attached_later_gets_a_load_of_its_own(table: str) -> None:
    older(table, "t7", "2001, 2400", 7)
    load = by_leaf(table, 250).run()
    known = leaves(load.slices[-1])
    attach(table, "t7", 7)
    execute(table, "UPDATE t SET c = now() WHERE n = 2400")
    before = len(load.slices)
    load.run()
    assert sorted(load.rows) == numbers(table)
    assert load.by_load[before:] == [True, True, False]
    assert set(leaves(load.slices[-1])) - set(known) == {str(rows(table, "SELECT 't7'::regclass::oid")[0][0])}
    assert load.run().slices[-1] == load.slices[-1]
    execute(table, "ALTER TABLE t DETACH PARTITION t7")
    attach(table, "t7", 7)
    assert load.plan() is None


def test_also_where_the_first_load_went_along_the_cursor(table: str) -> None:
    older(table, "t7", "2001, 2400", 7)
    load = by_leaf(table, 10**6, first_load="cursor").run()
    assert load.by_load == [False]
    attach(table, "t7", 7)
    assert sorted(load.run().rows) == numbers(table)


@pytest.mark.usefixtures("large_leaves")
def test_also_without_a_key_for_it_and_with_rows_that_have_no_cursor(database: str) -> None:
    execute(
        database,
        "CREATE TABLE t (n int, id int NOT NULL, region int NOT NULL, c timestamptz) PARTITION BY LIST (region);"
        "CREATE UNIQUE INDEX ON t (c, region, id); CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)",
    )
    grow(database, "1, 300", region="1")
    older(database, "t7", "2001, 2400", 7)
    execute(database, "UPDATE t7 SET c = NULL WHERE n % 2 = 0", "UPDATE t SET c = NULL WHERE n % 2 = 0")
    load = by_leaf(database, 300, first_load="auto", nulls="skip").run()
    attach(database, "t7", 7)
    load.run()
    assert sorted(load.rows) == [n for n in numbers(database) if n % 2]
    assert load.by_load == [False, True]


@pytest.mark.usefixtures("large_leaves")
def test_also_if_it_is_attached_during_the_load(table: str) -> None:
    older(table, "t7", "2001, 2400", 7)
    load = by_leaf(table, 100).begin()
    assert load.turn()
    attach(table, "t7", 7)
    load.begin()
    while load.turn():
        pass
    assert sorted(load.rows) == numbers(table)


def test_a_leaf_that_is_attached_between_plan_and_read_is_not_read_twice(table: str) -> None:
    older(table, "t7", "2001, 2400", 7)
    load = by_leaf(table, 10**6).run()
    grow(table, "3001, 3100", region="1", at="now()")
    execute(table, "UPDATE t7 SET c = '2025-01-01Z' WHERE n > 2300")
    slice_ = load.begin().plan()
    assert slice_
    attach(table, "t7", 7)
    load.keep(slice_, load.read(slice_))
    assert sorted(load.run().rows) == numbers(table)


def test_a_new_leaf_without_old_rows_is_just_read_on(table: str) -> None:
    """As when tomorrow's partition is made: no load, and one slice."""
    load = by_leaf(table, 10**6).run()
    execute(table, "CREATE TABLE t7 PARTITION OF t FOR VALUES IN (7)")
    assert load.begin().plan() is None
    grow(table, "3001, 3100", region="7", at="now()")
    assert load.run().by_load[1:] == [False]
    assert sorted(load.rows) == numbers(table)


@pytest.mark.usefixtures("large_leaves")
def test_leaves_that_go_are_no_error(table: str) -> None:
    load = by_leaf(table, 250).begin()
    assert load.turn()
    execute(table, "DROP TABLE t3", "ALTER TABLE t2 DETACH PARTITION t2_high")
    slice_ = load.plan()
    assert slice_
    execute(table, "ALTER TABLE t DETACH PARTITION t1")
    load.keep(slice_, load.read(slice_))
    load.begin()
    while load.turn():
        pass
    assert sorted(load.rows) == [*range(1, 251), *range(301, 500)]
    execute(table, "DROP TABLE t1")
    grow(table, "3001, 3100", region="4", at="now()")
    assert sorted(load.run().rows)[-100:] == list(range(3001, 3101))


@pytest.mark.usefixtures("large_leaves")
def test_a_leaf_of_another_name_is_the_same(table: str) -> None:
    load = by_leaf(table, 250).begin()
    assert load.turn()
    slice_ = load.plan()
    assert slice_
    execute(table, "ALTER TABLE t1 RENAME TO first_one; CREATE SCHEMA other; ALTER TABLE first_one SET SCHEMA other")
    load.keep(slice_, load.read(slice_))
    while load.turn():
        pass
    assert sorted(load.rows) == numbers(table)


class TestPermissions:
    @pytest.fixture
    def reader(self, table: str) -> str:
        """Someone who may read the table, but not its leaves by their own names."""
        name = table.rpartition("/")[2]
        execute(table, f"CREATE ROLE {name} LOGIN PASSWORD 'x'; GRANT SELECT ON t TO {name}")
        return table.replace("penstock:penstock@", f"{name}:x@")

    def test_leaves_that_may_not_be_read_by_name(self, table: str, reader: str) -> None:
        with pytest.raises(StreamRefused) as refused:
            by_leaf(reader, 250).begin()
        name = table.rpartition("/")[2]
        assert refused.value.what == (
            f"`first_load: keys`: user {name} may not read public.t1 directly, and partitions are loaded one by one"
        )
        assert refused.value.next_step == f"GRANT SELECT ON public.t1 TO {name}; or set `first_load: cursor`"
        load = by_leaf(reader, 10**6, first_load="auto").run()
        assert sorted(load.rows) == numbers(table)
        assert load.by_load == [False]

    def test_a_new_leaf_that_may_not_be_read_by_name_is_read_on(self, table: str, reader: str) -> None:
        load = by_leaf(reader, 10**6, first_load="auto").run()
        execute(table, "CREATE TABLE t7 PARTITION OF t FOR VALUES IN (7)")
        grow(table, "3001, 3100", region="7", at="now()")
        assert sorted(load.run().rows) == numbers(table)

    def test_old_rows_of_a_leaf_that_may_not_be_read_are_not_passed_over(self, table: str, reader: str) -> None:
        load = by_leaf(reader, 10**6, first_load="auto").run()
        older(table, "t7", "2001, 2400", 7)
        attach(table, "t7", 7)
        with pytest.raises(StreamRefused) as refused:
            load.begin().plan()
        name = table.rpartition("/")[2]
        assert refused.value.what == (
            f"the partition public.t7 was attached to public.t with rows below the mark, and loading them "
            f"requires that user {name} may read it directly"
        )
        grant = f"GRANT SELECT ON public.t7 TO {name};"
        step = f"{grant} or set `hidden_partitions: skip` on the stream to leave these rows out"
        assert refused.value.next_step == step
        execute(table, grant)
        assert sorted(load.run().rows) == numbers(table)

    def test_unless_they_are_left_out_knowingly(self, table: str, reader: str) -> None:
        load = by_leaf(reader, 10**6, first_load="auto", hidden_partitions="skip").run()
        older(table, "t7", "2001, 2400", 7)
        attach(table, "t7", 7)
        name = table.rpartition("/")[2]
        assert load.begin().ceiling
        assert load.last
        assert load.ceiling
        left = load.open().remaining("t", load.content, load.last.mark, load.ceiling)
        assert left.warning == (
            f"rows below the mark are left out (`hidden_partitions: skip`): user {name} may not read public.t7 "
            "directly, which was attached since"
        )
        assert load.ceiling["held"], "a run says it although nothing moves"
        grow(table, "3001, 3100", region="7", at="now()")
        assert sorted(load.run().rows) == [n for n in numbers(table) if not 2001 <= n <= 2400]

    def test_check_says_what_becomes_of_them(self, table: str, reader: str) -> None:
        def said() -> list[str]:
            load = by_leaf(reader, 10**6, first_load="auto").begin()
            return [remark.text for remark in load.open().explain("t", load.content) if "partition" in remark.text]

        name = table.rpartition("/")[2]
        assert said() == [
            f"user {name} may not read partitions directly (public.t1, public.t2_low, public.t2_high and 2 "
            "more): one that is attached with rows below the mark stops the stream, or its rows are left out with "
            "`hidden_partitions: skip`. Grant SELECT on each, and on future ones by ALTER DEFAULT PRIVILEGES"
        ]
        execute(table, f"REVOKE SELECT ON t FROM {name}; GRANT SELECT (n, id, region, c) ON t TO {name}")
        assert said() == [
            "a partition that is attached with rows below the mark is not noticed: user "
            f"{name} may read only columns on public.t"
        ]

    def test_columns_alone_do_not_tell_leaves_apart(self, table: str, reader: str) -> None:
        name = table.rpartition("/")[2]
        execute(table, f"REVOKE SELECT ON t FROM {name}; GRANT SELECT (n, id, region, c) ON t TO {name}")
        load = by_leaf(reader, 10**6, first_load="auto").run()
        assert sorted(load.rows) == numbers(table)
        assert leaves(load.slices[-1]) == ()
        grow(table, "3001, 3100", region="4", at="now()")
        assert sorted(load.run().rows) == numbers(table)

    @pytest.fixture(autouse=True)
    def _gone(self, table: str) -> Any:
        yield
        name = table.rpartition("/")[2]
        with connect(table, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {name}".encode())
            connection.execute(f"DROP ROLE {name}".encode())

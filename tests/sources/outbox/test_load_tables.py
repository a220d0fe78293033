"""First loads of tables of every kind: by which columns they are read, and that the triggers agree with them."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.sources.outbox.shops import IMAGES, SCHEMA, TRUTH, Shop, mark_of
from tests.sources.outbox.test_awkward import VALUES
from tests.sources.outbox.test_concurrent import write
from tests.sources.outbox.test_loads import FILL, finish, states

from penstock.core.ranges import Range
from penstock.core.slices import following
from penstock.errors import PenstockError, StreamRefused
from penstock.links.postgres.key_walk import range_condition
from penstock.ports import Budget
from penstock.sources.outbox.load import planning
from penstock.sources.outbox.marks import OutboxMark

Declaration = dict[str, Any]
FEW = Budget(1 << 20, rows=4, workers=2)


def direct(table: str, key: Any, **more: Any) -> Declaration:
    return {"direct": [{"table": table, "key": key, "columns": ["body"], "creates": True, **more}]}


def ranges_of(shop: Shop, stream: str = "s") -> dict[str, tuple[str, ...]]:
    """By table, the columns whose ranges were read."""
    return {each.name: each.columns for each in OutboxMark.of(mark_of(shop, stream)).loads}


def bodies(shop: Shop) -> list[tuple[Any, Any]]:
    return sorted((key, record.scalars["body"]) for key, record in shop.folded("s").entities.items())


KEYED = [
    ("id int PRIMARY KEY", "id", "n", ("id",)),
    ("id text PRIMARY KEY", "id", "'k''' || n || E'\\\\'", ("id",)),
    ("id uuid PRIMARY KEY", "id", "md5(n::text)::uuid", ("id",)),
    ("id timestamptz PRIMARY KEY", "id", "'2020-01-01'::timestamptz + n * interval '1 hour'", ("id",)),
    ("id numeric PRIMARY KEY", "id", "n / 3.0", ("id",)),
    ("id name, PRIMARY KEY (id)", "id", "('k' || n)::name", ("id",)),
    ('id int, "B b" text, PRIMARY KEY ("B b", id)', ["id", "B b"], "n % 4, 'b' || n", ("B b", "id")),
    ("no int PRIMARY KEY, id int UNIQUE", "id", "n, n + 1", ("id",)),
    ("id int", "id", "n; CREATE UNIQUE INDEX ON t (id DESC)", ("id",)),
    ("id text COLLATE folded PRIMARY KEY", "id", "'k' || n", ("id",)),
]
COLLATION = "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"


@pytest.mark.parametrize(("columns", "key", "values", "by"), KEYED, ids=[each[0] for each in KEYED])
def test_keys_of_every_kind(
    database: str, monkeypatch: pytest.MonkeyPatch, columns: str, key: Any, values: str, by: tuple[str, ...]
) -> None:
    monkeypatch.setattr(planning, "PART_BYTES", 1)
    shop = Shop(database, {"s": direct("t", key)}, first_load=True)
    values, _, more = values.partition(";")
    shop.execute(
        COLLATION,
        f"CREATE TABLE t ({columns}, body text)",
        f"INSERT INTO t SELECT {values}, 'body ' || n FROM generate_series(1, 15) n",
        more or "SELECT",
    )
    shop.apply()
    while shop.read("s", FEW, most=1):
        pass
    assert ranges_of(shop) == {"public.t": by}
    loaded = [document for _, document in shop.documents["s"] if document["ops"][0]["op"] != "clear"]
    assert len(loaded) == 15
    shop.execute("CREATE TABLE copy AS SELECT * FROM t; DELETE FROM t")
    shop.forget()
    shop.execute("INSERT INTO t SELECT * FROM copy")
    assert sorted(map(json.dumps, loaded)) == sorted(map(json.dumps, shop.written("s")))


def texts_of(shop: Shop, stream: str) -> list[str]:
    """The texts of what a load delivers, but for what it clears."""
    source = shop.source()
    content = source.content(stream)
    ceiling = source.ceiling(stream, content, "run")
    assert ceiling is not None
    planned = source.plan(stream, content, None, ceiling, Budget(1 << 24))
    assert planned is not None
    slice_ = following(None, pipeline="shop", stream=stream, upto=planned.upto, content=content, plan=planned.plan)
    with source.reading(slice_) as reading:
        tables = [reading.reader.open(part).read_all() for part in reading.parts[1:]]
    return sorted(text for table in tables for text in table.column("document").to_pylist())


def test_a_load_is_what_the_triggers_wrote_byte_by_byte(database: str) -> None:
    """Values of every type, NULLs, names that need escapes, more columns than a function has arguments, composite
    keys and matches, subqueries."""
    columns = [f"c{number}" for number in range(len(VALUES))]
    many = [f"m{number}" for number in range(250)]
    odd = ["per cent %s", "quote \"'", "ümläut \\", "k" * 40]
    declared: Declaration = {
        "direct": [
            {"table": "t", "key": ["a", "b"], "columns": [*columns, *many], "creates": True},
            {"table": "extra", "key": ["a", "b"], "columns": odd, "computed": {'say "%s"': "{a} || '%s'"}},
        ],
        "multi_value": [
            {"table": "flags", "key": ["a", "b"], "field": "flags", "value": "flag", "where": "{flag} <> '%'"}
        ],
        "fan_out": [
            {
                "table": "posts",
                "match": "c7 eq {c7} and c2 eq {c2}",
                "values": "SELECT name AS author, NULL::int AS nobody FROM public.users WHERE id = {c2}",
            }
        ],
    }
    shop = Shop(database, {"s": declared}, first_load=True)
    defined = ", ".join(f"{name} {type_}" for name, (type_, _, _) in zip(columns, VALUES, strict=True))
    given = ", ".join(value for _, value, _ in VALUES)
    odd_columns = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(name)) for name in odd).as_string(None)
    shop.execute(
        "CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TYPE pair AS (a int, b int);"
        "CREATE DOMAIN positive AS int CHECK (value > 0)",
        f"CREATE TABLE t (a int, b text, {defined}, {', '.join(f'{n} int' for n in many)}, PRIMARY KEY (a, b))",
        f"CREATE TABLE extra (a int, b text, {odd_columns}, PRIMARY KEY (a, b))",
        "CREATE TABLE flags (a int, b text, flag text, PRIMARY KEY (a, b, flag))",
        "CREATE TABLE posts (c7 text, c2 bigint PRIMARY KEY); CREATE TABLE users (id bigint, name text)",
    )
    shop.apply()
    shop.execute(
        f"INSERT INTO t VALUES (1, 'x', {given}), (2, E'\\t\"\\\\ü', {given})",
        "INSERT INTO t (a, b, m0, m249) VALUES (3, '', 1, 2)",
        "INSERT INTO extra VALUES (1, 'x', 'a', NULL, E'\\n', 'd')",
        "INSERT INTO flags VALUES (1, 'x', 'f'), (1, 'x', '%'), (2, 'y', 'null')",
        "INSERT INTO users VALUES (5, 'ada'); INSERT INTO posts VALUES ('a', 5), (NULL, 6), ('b', 7)",
    )
    written = [text for (text,) in shop.rows("SELECT document::text FROM penstock_outbox.outbox")]
    shop.forget()
    assert len(written) == 8
    assert texts_of(shop, "s") == sorted(written)


def test_a_partitioned_table_while_rows_change_partitions(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PART_BYTES", 1)
    shop = Shop(database, {"s": direct("t", "id")}, first_load=True)
    shop.execute(
        "CREATE TABLE t (id int PRIMARY KEY, body text) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (100) TO (200)",
        "INSERT INTO t SELECT n * 7, 'body ' || n FROM generate_series(1, 25) n",
    )
    shop.apply()
    moves = iter(range(7, 1000, 14))
    while shop.read(
        "s", FEW, most=2, meanwhile=lambda: shop.execute(f"UPDATE t SET id = 199 - id WHERE id = {next(moves)}")
    ):
        pass
    assert ranges_of(shop) == {"public.t": ("id",)}
    assert bodies(shop) == sorted((str(key), body) for key, body in shop.rows("SELECT id, body FROM t"))


def test_a_table_with_heirs_is_one_range(database: str) -> None:
    shop = Shop(database, {"s": direct("t", "id")}, first_load=True)
    shop.execute(
        "CREATE TABLE t (id int PRIMARY KEY, body text); CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (t)",
        "INSERT INTO t SELECT n, 'own' FROM generate_series(1, 9) n",
        "INSERT INTO heir SELECT n, 'of the heir' FROM generate_series(11, 19) n",
    )
    shop.apply()
    shop.read("s", FEW)
    assert ranges_of(shop) == {"public.t": ()}
    assert len(bodies(shop)) == 18


def test_a_fan_out_without_an_index_is_one_range_and_said_to_be(database: str) -> None:
    posts = {"table": "posts", "match": "post_id eq {number}", "computed": {"post_title": "{title}"}}
    declared = {**direct("t", "id", columns=["post_id"]), "fan_out": [posts]}
    shop = Shop(database, {"s": declared}, first_load=True)
    shop.execute(
        "CREATE TABLE t (id int PRIMARY KEY, post_id int)",
        "CREATE TABLE posts (id int PRIMARY KEY, number int, title text)",
        "INSERT INTO t SELECT n, n % 3 FROM generate_series(1, 9) n",
        "INSERT INTO posts SELECT n, n, 'title ' || n FROM generate_series(1, 5) n",
    )
    shop.apply()
    shop.read("s", FEW)
    assert ranges_of(shop) == {"public.t": ("id",), "public.posts": ()}
    titles = {record.scalars.get("post_title") for record in shop.folded("s").entities.values()}
    assert titles == {"title 1", "title 2", None}
    source = shop.source()
    said = [remark.text for remark in source.explain("s", source.content("s"))]
    assert any("public.posts has no index that begins with number" in text for text in said)
    assert any("public.t (about 9 rows)" in text for text in said)


def test_a_subquery_and_an_expression_with_names_of_its_own(database: str) -> None:
    posts = {
        "table": "posts",
        "match": "post_id eq {id}",
        "values": "SELECT t.name AS author FROM public.users t WHERE t.id = {user_id} -- of the post",
    }
    shop = Shop(
        database,
        {
            "s": {**direct("t", "id", columns=["post_id"], computed={"late": "{at} AT TIME ZONE 'Asia/Tokyo'"})}
            | {"fan_out": [posts]}
        },
        first_load=True,
    )
    shop.execute(
        "CREATE TABLE t (id int PRIMARY KEY, post_id int, at timestamptz)",
        "CREATE TABLE posts (id int PRIMARY KEY, user_id int); CREATE TABLE users (id int PRIMARY KEY, name text)",
        "INSERT INTO users VALUES (1, 'ada'); INSERT INTO posts VALUES (5, 1), (6, 2)",
        "INSERT INTO t VALUES (1, 5, '2026-01-01 00:00Z'), (2, 6, NULL)",
    )
    shop.apply()
    shop.read("s")
    found = {key: dict(record.scalars) for key, record in shop.folded("s").entities.items()}
    assert found == {"1": {"post_id": 5, "author": "ada", "late": "2026-01-01T09:00:00"}, "2": {"post_id": 6}}


def test_a_range_of_a_composite_key_is_looked_up(database: str) -> None:
    """The planner would scan the whole table for each range, if it took the two ends of one for independent."""
    shop = Shop(database, first_load=True)
    shop.execute(
        "CREATE TABLE tags (a int, b int, filler text DEFAULT repeat('x', 200), PRIMARY KEY (a, b))",
        "INSERT INTO tags SELECT n / 3, n % 3 FROM generate_series(1, 20000) n",
        "ANALYZE tags",
    )
    names = [sql.Identifier(name) for name in ("a", "b")]
    where = range_condition(names, ["integer", "integer"], Range(("3000", "1"), ("3300", "2"))).as_string(None)
    assert len(shop.rows(f"SELECT FROM tags WHERE {where}")) == 901
    [(plan,)] = shop.rows(f"EXPLAIN (FORMAT json) SELECT * FROM tags WHERE {where}")
    assert plan[0]["Plan"]["Plan Rows"] < 1000


def test_tables_without_rows(database: str) -> None:
    shop = Shop(database, first_load=True)
    shop.execute(SCHEMA)
    shop.apply()
    assert shop.read() == 2, "what was there before is cleared"
    assert set(states(shop).values()) == {"complete"}
    assert shop.current() == []
    assert shop.read() == 0


def test_a_role_that_may_not_read_a_table(database: str) -> None:
    shop = Shop(database, {"s": direct("t", "id")}, first_load=True)
    shop.execute("CREATE TABLE t (id int PRIMARY KEY, body text)")
    shop.apply()
    with suppress(psycopg.errors.DuplicateObject):
        shop.execute("CREATE ROLE loader LOGIN PASSWORD 'loader'")
    shop.execute(
        "ALTER TABLE t OWNER TO loader; REVOKE ALL ON t FROM loader",
        "GRANT USAGE ON SCHEMA penstock_outbox TO loader; GRANT ALL ON ALL TABLES IN SCHEMA penstock_outbox TO loader",
    )
    poor = Shop(database.replace("penstock:penstock@", "loader:loader@"), {"s": direct("t", "id")}, first_load=True)
    with pytest.raises(StreamRefused, match=r"user loader may not read public\.t, whose rows are to be loaded") as no:
        poor.read("s")
    assert "GRANT SELECT ON public.t TO loader" in no.value.next_step
    assert "`first_load: false`" in no.value.next_step


def test_an_expression_that_fails_for_a_row_names_the_table(database: str) -> None:
    shop = Shop(database, {"s": direct("t", "id", computed={"part": "10 / {n}"})}, first_load=True)
    shop.execute("CREATE TABLE t (id int PRIMARY KEY, body text, n int); INSERT INTO t VALUES (1, 'x', 0)")
    shop.apply()
    with pytest.raises(PenstockError, match=r"public\.t.*division by zero"):
        shop.read("s")


def test_many_writers_while_two_pipelines_load(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late commits, savepoints, rollbacks and prepared transactions of eight writers."""
    monkeypatch.setattr(planning, "PART_BYTES", 1)
    shop = Shop(database, first_load=True, keep_hours=0)
    shop.execute(SCHEMA, *FILL)
    shop.apply()
    other = Shop(database, {"images": IMAGES}, pipeline="other", first_load=True, keep_hours=0)
    other.apply()
    ended = threading.Event()

    def read(each: Shop) -> None:
        while not ended.is_set():
            each.read(budget=Budget(1 << 20, rows=9, workers=2))

    with ThreadPoolExecutor(2) as readers, ThreadPoolExecutor(8) as writers:
        reading = [readers.submit(read, each) for each in (shop, other)]
        counts = [writers.submit(write, shop, 7000 + number) for number in range(8)]
        try:
            assert sum(each.result() for each in counts) > 8
        finally:
            ended.set()
        for each in reading:
            each.result()
    for shop_ in (shop, other):
        finish(shop_)
        assert shop_.current() == shop_.rows(TRUTH)

"""Tables of every awkward kind: names, keys, types, partitions, inheritance, many columns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.sources.outbox.shops import Shop

from penstock.core.content import Content
from penstock.core.ops import Layout, refusal

NAMES = """
CREATE SCHEMA "My Schema";
CREATE TABLE "My Schema"."Sel""ect.%s {x}" (
    "ID" uuid, "when" date, "per cent %s" text, "quote ""'" int, "{brace}" int, PRIMARY KEY ("ID", "when")
);
CREATE TABLE "My Schema"."order" ("user" uuid, "when" date, "end" boolean, PRIMARY KEY ("user", "when", "end"));
"""
TABLE = '"My Schema"."Sel""ect.%s {x}"'


def test_names_that_need_quotes_and_composite_keys(database: str) -> None:
    shop = Shop(
        database,
        {
            "it's {a} stream": {
                "direct": [
                    {
                        "table": TABLE,
                        "key": ["ID", "when"],
                        "columns": ["per cent %s", "quote \"'"],
                        "computed": {"100% {{sure}}": "{quote \"'} || '%s $$ $penstock$ {{}} \\'"},
                        "creates": True,
                    }
                ],
                "multi_value": [
                    {"table": '"My Schema".order', "key": ["user", "when"], "field": "ends", "value": "end"}
                ],
            }
        },
        pipeline="it's % mine",
        outbox_schema='out "box" %s',
    )
    shop.execute(NAMES)
    shop.apply()
    assert shop.compare().changes == ()
    key = "11111111-2222-3333-4444-555555555555"
    shop.execute(
        f"""INSERT INTO {TABLE} VALUES ('{key}', '2026-01-02', 'it''s', 5, 6)""",
        f"""INSERT INTO "My Schema"."order" VALUES ('{key}', '2026-01-02', true)""",
        f"""UPDATE {TABLE} SET "when" = '2026-01-03'""",
    )
    assert shop.read("it's {a} stream") == 4
    documents = [document for _, document in shop.documents["it's {a} stream"]]
    assert [refusal(document) for document in documents] == [None] * 4
    assert [document["key"] for document in documents] == [[key, "2026-01-02"]] * 3 + [[key, "2026-01-03"]]
    assert documents[0]["table"] == TABLE.replace('"My Schema"', "My Schema")
    values = {op["field"]: op["value"] for op in documents[3]["ops"]}
    assert values == {"per cent %s": "it's", "quote \"'": 5, "100% {{sure}}": "5%s $$ $penstock$ {} \\"}
    assert documents[1]["ops"] == [{"op": "add", "field": "ends", "value": True}]


VALUES: list[tuple[str, str, Any]] = [
    ("bool", "true", True),
    ("smallint", "-5", -5),
    ("bigint", "9007199254740993", 9007199254740993),
    ("real", "'1.5'", 1.5),
    ("double precision", "'Infinity'", "Infinity"),
    ("numeric", "123456789012345678901234567890.10", "123456789012345678901234567890.10"),
    ("numeric(5,2)", "1.5", "1.50"),
    ("text", "'a\\b\"c'", 'a\\b"c'),
    ("char(4)", "'ab'", "ab  "),
    ("date", "'2026-01-02'", "2026-01-02"),
    ("date", "'infinity'", "infinity"),
    ("timestamp", "'2026-01-02 03:04:05.5'", "2026-01-02T03:04:05.5"),
    ("timestamptz", "'2026-01-02 03:04:05+02'", "2026-01-02T01:04:05+00:00"),
    ("time", "'24:00'", "24:00:00"),
    ("interval", "'1 day 2 hours'", "P1DT2H"),
    ("bytea", "'\\x00ff'", "\\x00ff"),
    ("json", """'{"b": 1, "a": 1.10}'""", '{"b": 1, "a": 1.10}'),
    ("jsonb", "'null'", "null"),
    ("uuid", "'11111111-2222-3333-4444-555555555555'", "11111111-2222-3333-4444-555555555555"),
    ("int[]", "'{1,NULL,3}'", "{1,NULL,3}"),
    ("timestamptz[]", "'{2026-01-02 03:04:05+02}'", '{"2026-01-02 01:04:05+00"}'),
    ("inet", "'10.0.0.1/8'", "10.0.0.1/8"),
    ("point", "'(1,2)'", "(1,2)"),
    ("xml", "'<a/>'", "<a/>"),
    ("mood", "'glad'", "glad"),
    ("pair", "ROW(1, NULL)", "(1,)"),
    ("pair", "ROW(NULL, NULL)", "(,)"),
    ("positive", "7", 7),
    ("oid", "4294967295", 4294967295),
    ("int4range", "'[1,5)'", "[1,5)"),
    ("money", "'12.5'", "$12.50"),
]


def test_values_of_every_type_whatever_the_session_is_set_to(database: str) -> None:
    columns = [f"c{number}" for number in range(len(VALUES))]
    shop = Shop(database, {"images": {"direct": [{"table": "t", "key": "id", "columns": columns, "creates": True}]}})
    defined = ", ".join(f"{name} {type_}" for name, (type_, _, _) in zip(columns, VALUES, strict=True))
    shop.execute(
        "CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TYPE pair AS (a int, b int);"
        "CREATE DOMAIN positive AS int CHECK (value > 0)",
        f"CREATE TABLE t (id int PRIMARY KEY, {defined})",
    )
    shop.apply()
    with shop.connect() as connection:
        connection.execute(
            "SET TimeZone TO 'Asia/Tokyo'; SET DateStyle TO 'SQL, DMY'; SET IntervalStyle TO 'postgres';"
            "SET bytea_output TO 'escape'; SET extra_float_digits TO -10"
        )
        given = ", ".join(value for _, value, _ in VALUES)
        connection.execute(f"INSERT INTO t VALUES (1, {given})".encode())
        connection.execute("INSERT INTO t VALUES (2)")
        connection.execute("UPDATE t SET id = id")
        for name, (_, value, _) in zip(columns, VALUES, strict=True):
            connection.execute(f"UPDATE t SET {name} = {value} WHERE id = 2".encode())
    first, second, *others = shop.written()
    assert {op["field"]: op["value"] for op in first["ops"]} == dict(
        zip(columns, (value for _, _, value in VALUES), strict=True)
    )
    assert {op["value"] for op in second["ops"]} == {None}
    assert [(document["ops"][0]["field"], document["ops"][0]["value"]) for document in others] == list(
        zip(columns, (value for _, _, value in VALUES), strict=True)
    )
    assert shop.read() == len(VALUES) + 2
    layout = Layout.of(Content.parse(shop.last["images"].content).entities or {})
    assert {column.name: str(column.type) for column in layout.scalars if column.name in ("c2", "c6", "c12")} == {
        "c2": "int64",
        "c6": "decimal(5,2)",
        "c12": "timestamptz",
    }


def test_a_table_with_more_columns_than_a_function_has_arguments(database: str) -> None:
    names = [f"c{number}" for number in range(250)]
    shop = Shop(database, {"images": {"direct": [{"table": "t", "key": "id", "columns": names, "creates": True}]}})
    shop.execute(f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(f'{name} int' for name in names)})")
    shop.apply()
    shop.execute(f"INSERT INTO t VALUES (1, {', '.join(map(str, range(250)))})", "UPDATE t SET c249 = 0")
    assert {op["field"]: op["value"] for op in shop.written()[0]["ops"]} == {f"c{n}": n for n in range(250)}
    assert len(shop.written()[1]["ops"]) == 1


PARTS = {"direct": [{"table": "parts", "key": "id", "columns": ["url"], "creates": True}]}
PARTITIONED = """
CREATE TABLE parts (id int PRIMARY KEY, url text) PARTITION BY RANGE (id);
CREATE TABLE low (url text, gone int, id int NOT NULL);
ALTER TABLE low DROP gone;
ALTER TABLE parts ATTACH PARTITION low FOR VALUES FROM (0) TO (10);
CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (100) PARTITION BY RANGE (id);
CREATE TABLE higher PARTITION OF high FOR VALUES FROM (10) TO (100);
"""


def current(shop: Shop) -> list[tuple[int, str]]:
    entities = shop.folded().entities
    return sorted((json.loads(key), record.scalars["url"]) for key, record in entities.items())


@pytest.mark.parametrize("replica", [False, True], ids=["by an application", "by a replayed log"])
def test_partitions_of_partitions(database: str, replica: bool) -> None:
    shop = Shop(database, {"images": PARTS})
    shop.execute(PARTITIONED)
    shop.apply()
    assert shop.compare().changes == ()
    with shop.connect(autocommit=True) as connection:
        connection.execute(f"SET session_replication_role TO '{'replica' if replica else 'origin'}'".encode())
        for statement in (
            "INSERT INTO parts SELECT n, 'u' || n FROM generate_series(1, 20) n",
            "UPDATE parts SET id = 50 WHERE id = 1",
            "DELETE FROM higher WHERE id = 11",
            "UPDATE low SET url = 'x' WHERE id = 2",
            "TRUNCATE high",
            "INSERT INTO higher VALUES (99, 'last')",
        ):
            connection.execute(statement.encode())
    shop.read()
    assert current(shop) == shop.rows("SELECT id, url FROM parts ORDER BY id")
    assert shop.rows("SELECT count(*) FROM parts") == [(9,)]
    shop.execute("TRUNCATE parts")
    shop.read()
    assert current(shop) == []


def test_a_partition_that_comes_later_has_the_row_trigger_and_lacks_the_other(database: str) -> None:
    shop = Shop(database, {"images": PARTS})
    shop.execute(PARTITIONED)
    shop.apply()
    shop.execute("CREATE TABLE top PARTITION OF parts FOR VALUES FROM (100) TO (200); INSERT INTO parts VALUES (150)")
    assert len(shop.written()) == 1
    assert ["top" in each.about for each in shop.compare().changes] == [True]
    shop.apply()
    assert shop.compare().changes == ()


def test_tables_that_inherit(database: str) -> None:
    shop = Shop(database, {"images": PARTS})
    shop.execute(
        "CREATE TABLE parts (id int PRIMARY KEY, url text);"
        "CREATE TABLE child (more int, PRIMARY KEY (id)) INHERITS (parts)"
    )
    shop.apply()
    shop.execute(
        "INSERT INTO parts VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO child VALUES (3, 'c', 1), (4, 'd', 1)",
        "UPDATE parts SET url = url || '!'",
        "DELETE FROM parts WHERE id = 4",
    )
    shop.read()
    assert current(shop) == [(1, "a!"), (2, "b!"), (3, "c!")] == shop.rows("SELECT id, url FROM parts ORDER BY id")
    shop.execute("TRUNCATE ONLY parts")
    shop.read()
    assert current(shop) == [(3, "c!")]

"""Generated triggers: what each change of a row writes into the outbox."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sources.outbox.shops import IMAGES, SCHEMA, TRUTH, Shop

from penstock.core.ops import refusal


@pytest.fixture
def shop(database: str) -> Shop:
    shop = Shop(database)
    shop.execute(SCHEMA)
    shop.apply()
    return shop


def last(shop: Shop) -> dict[str, Any]:
    document = shop.written()[-1]
    assert refusal(document) is None
    return document


def test_an_inserted_row_sets_every_field_and_creates(shop: Shop) -> None:
    shop.execute("INSERT INTO images VALUES (7, 'a.png', NULL, 1.5)")
    assert last(shop) == {
        "v": 1,
        "table": "public.images",
        "key": 7,
        "creates": True,
        "ops": [
            {"op": "set", "field": "url", "value": "a.png"},
            {"op": "set", "field": "post_id", "value": None},
            {"op": "set", "field": "size", "value": "1.50"},
            {"op": "set", "field": "url_length", "value": 5},
        ],
    }


def test_an_update_says_only_what_changed_with_the_old_value(shop: Shop) -> None:
    shop.execute("INSERT INTO images VALUES (7, 'a.png')", "UPDATE images SET url = 'b.png', size = NULL")
    assert last(shop) == {
        "v": 1,
        "table": "public.images",
        "key": 7,
        "ops": [{"op": "set", "field": "url", "value": "b.png", "old": "a.png"}],
    }
    shop.forget()
    shop.execute("UPDATE images SET url = url")
    assert shop.written() == []


def test_a_delete_and_a_change_of_the_key(shop: Shop) -> None:
    shop.execute("INSERT INTO images VALUES (7, 'a.png')", "UPDATE images SET id = 8", "DELETE FROM images")
    said = [(each["key"], each.get("creates", False), each["ops"][0]["op"]) for each in shop.written()]
    assert said == [(7, True, "set"), (7, False, "delete"), (8, True, "set"), (8, False, "delete")]


def test_a_row_that_begins_or_ceases_to_fulfil_the_condition(shop: Shop) -> None:
    shop.execute("INSERT INTO images (id) VALUES (7), (8)")
    shop.forget()
    shop.execute(
        "INSERT INTO image_tags VALUES (7, 3, 'user'), (7, 4, 'auto')",
        "UPDATE image_tags SET kind = 'auto' WHERE tag_id = 3",
        "UPDATE image_tags SET kind = 'user' WHERE tag_id = 4",
        "UPDATE image_tags SET tag_id = 5 WHERE tag_id = 4",
        "UPDATE image_tags SET image_id = 8 WHERE tag_id = 5",
        "DELETE FROM image_tags",
    )
    said = [(each["key"], op["op"], op["value"]) for each in shop.written() for op in each["ops"]]
    assert said == [
        *((7, "add", 3), (7, "remove", 3), (7, "add", 4), (7, "remove", 4), (7, "add", 5)),
        *((7, "remove", 5), (8, "add", 5), (8, "remove", 5)),
    ]


def test_a_fan_out_names_its_match_and_sets_what_changed(shop: Shop) -> None:
    shop.execute("INSERT INTO posts VALUES (5, 'x')", "UPDATE posts SET title = 'y'", "DELETE FROM posts")
    found = shop.ops()
    assert [op["op"] for op in found] == ["query_op_set"] * 3
    assert [op["where"] for op in found] == [{"field": "post_id", "eq": 5}] * 3
    values = [{op["field"]: op["value"] for op in each["ops"]} for each in found]
    assert values == [
        {"nsfw": False, "post_title": "x"},
        {"post_title": "y"},
        {"nsfw": None, "post_title": None},
    ]


def test_a_fan_out_whose_match_changes_leaves_the_old_one(shop: Shop) -> None:
    shop.execute("INSERT INTO posts VALUES (5, 'x')")
    shop.forget()
    shop.execute("UPDATE posts SET id = 6")
    said = [(op["where"]["eq"], {each["field"]: each["value"] for each in op["ops"]}) for op in shop.ops()]
    assert said == [(5, {"nsfw": None, "post_title": None}), (6, {"nsfw": False, "post_title": "x"})]


def test_a_subquery_supplies_values_when_its_columns_change(database: str) -> None:
    fan_out = {
        "table": "posts",
        "match": "post_id eq {id}",
        "values": "SELECT u.name AS author, u.age FROM public.users u WHERE u.id = {user_id} -- or nobody",
    }
    shop = Shop(database, {"images": {**IMAGES, "fan_out": [fan_out]}})
    shop.execute(
        SCHEMA,
        "ALTER TABLE posts ADD user_id int; CREATE TABLE users (id int, name text, age int);"
        "INSERT INTO users VALUES (1, 'Ana', 40)",
    )
    shop.apply()
    shop.execute(
        "INSERT INTO posts VALUES (5, 'x', false, 1)",
        "UPDATE posts SET title = 'y'",
        "UPDATE posts SET user_id = 2",
    )
    values = [{each["field"]: each["value"] for each in op["ops"]} for op in shop.ops()]
    assert values == [{"author": "Ana", "age": 40}, {"author": None, "age": None}]


def test_truncate_clears_entities_fields_and_fan_outs(shop: Shop) -> None:
    shop.execute("TRUNCATE image_tags")
    assert last(shop)["ops"] == [{"op": "clear", "field": "tags"}]
    shop.execute("TRUNCATE images CASCADE")
    assert {"op": "clear"} in shop.ops()
    shop.forget()
    shop.execute("TRUNCATE posts CASCADE")
    fields = [
        op.get("field") for document in shop.written() for op in document["ops"] if document["table"] == "public.posts"
    ]
    assert fields == ["nsfw", "post_title"]


def test_writers_need_no_right_on_the_outbox_and_settings_do_not_matter(shop: Shop) -> None:
    role = f"writer_{shop.rows('SELECT pg_backend_pid()')[0][0]}"
    shop.execute(f"CREATE ROLE {role}; GRANT SELECT, INSERT ON images TO {role}")
    try:
        with shop.connect() as connection:
            connection.execute(f"SET LOCAL ROLE {role}".encode())
            connection.execute("SET LOCAL search_path TO pg_temp")
            connection.execute("SET LOCAL DateStyle TO 'German'")
            connection.execute("INSERT INTO public.images VALUES (7, 'a.png')")
        assert last(shop)["key"] == 7
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_triggers_fire_in_sessions_that_replay_a_log(shop: Shop) -> None:
    with shop.connect() as connection:
        connection.execute("SET session_replication_role TO 'replica'")
        connection.execute("INSERT INTO images VALUES (7, 'a.png')")
        connection.execute("TRUNCATE image_tags")
    assert [op["op"] for op in shop.ops()] == ["set"] * 4 + ["clear"]


def test_a_text_that_a_collation_calls_equal_is_a_change(database: str) -> None:
    shop = Shop(database)
    shop.execute(
        SCHEMA,
        "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
        "ALTER TABLE images ALTER url TYPE text COLLATE blind",
    )
    shop.apply()
    shop.execute("INSERT INTO images VALUES (7, 'a.png')", "UPDATE images SET url = 'A.png'")
    assert last(shop)["ops"] == [{"op": "set", "field": "url", "value": "A.png", "old": "a.png"}]


def test_join_rows_that_come_before_their_entity_and_cascades(database: str) -> None:
    """A deferred foreign key, statements that write both tables, and keys that cascade, folded as SQL has them."""
    shop = Shop(database)
    deferred = "REFERENCES images ON DELETE CASCADE ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED"
    shop.execute(SCHEMA.replace("REFERENCES images ON DELETE CASCADE ON UPDATE CASCADE", deferred))
    shop.apply()
    with shop.connect() as connection:
        connection.execute("INSERT INTO image_tags VALUES (7, 1)")
        connection.execute("INSERT INTO images (id, url) VALUES (7, 'a')")
    shop.execute(
        "WITH i AS (INSERT INTO images (id) VALUES (8) RETURNING id) INSERT INTO image_tags SELECT id, 2 FROM i",
        "INSERT INTO posts VALUES (1, 'one')",
        "UPDATE images SET post_id = 1",
        "UPDATE posts SET id = 2",
        "UPDATE images SET id = id + 10",
        "INSERT INTO images (id) VALUES (9)",
        "DELETE FROM images WHERE id = 18",
    )
    shop.read()
    assert shop.current() == shop.rows(TRUTH)
    assert len(shop.current()) == 2
    assert shop.folded().early == {}

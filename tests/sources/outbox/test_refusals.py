"""What triggers could not be made for is refused before anything is made: each with the table, the column, and the
nearest name.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError
from tests.sources.outbox.shops import IMAGES, SCHEMA, Shop

from penstock.errors import StreamRefused
from penstock.sources.outbox import StreamOptions

DIRECT: dict[str, Any] = {"table": "images", "key": "id", "columns": ["url"], "creates": True}
TAGS: dict[str, Any] = IMAGES["multi_value"][0]
POSTS: dict[str, Any] = {"table": "posts", "match": "post_id eq {id}", "computed": {"post_title": "{title}"}}
WITH_POST = {**DIRECT, "columns": ["url", "post_id"]}


def stream(direct: Any = DIRECT, **more: Any) -> dict[str, Any]:
    return {"direct": [direct], **more}


REFUSED = [
    (stream({**DIRECT, "table": "imagse"}), "there is no table public.imagse; did you mean 'images'?"),
    (stream({**DIRECT, "columns": ["ulr"]}), "public.images has no column ulr; did you mean 'url'?"),
    (
        stream({**DIRECT, "key": "url", "columns": "size"}),
        "public.images has no unique index on url (its primary key: id)",
    ),
    (stream({**DIRECT, "table": "keyless"}), "public.keyless has no unique index on id: two rows could belong"),
    (stream({**DIRECT, "table": "some_view"}), "public.some_view is a view, and triggers that see its rows"),
    (stream({**DIRECT, "table": "part_one"}), "public.part_one is a partition"),
    (
        stream({**DIRECT, "computed": {"n": "length({ulr})"}}),
        "public.images has no column ulr, which `computed` field n names; did you mean 'url'?",
    ),
    (
        stream({**DIRECT, "computed": {"n": "lenght({url})"}}),
        "`computed` field n does not compile: function lenght(text) does not exist",
    ),
    (stream({**DIRECT, "computed": {"n": "count({url})"}}), "aggregate functions are not allowed in WHERE"),
    (stream({**DIRECT, "computed": {"n": "1); DROP TABLE posts; SELECT (1"}}), "does not compile"),
    (stream(multi_value=[{**TAGS, "where": "{tag_id}"}]), "argument of WHERE must be type boolean"),
    (stream(multi_value=[{**TAGS, "table": "loose_tags"}]), "public.loose_tags has no unique index on (image_id, kind"),
    (
        stream(multi_value=[{**TAGS, "table": "text_tags"}]),
        "public.text_tags.image_id is text, and the key id is bigint",
    ),
    (stream(multi_value=[TAGS, TAGS]), "field 'tags' is declared twice"),
    (stream(fan_out=[POSTS]), "fan-out public.posts names 'post_id', which is no scalar field"),
    (
        stream(WITH_POST, fan_out=[{**POSTS, "match": "url eq {id}"}]),
        "public.posts.id is bigint, and field url is text: the same value would be written in two ways",
    ),
    (
        stream(WITH_POST, fan_out=[{**POSTS, "values": "SELECT name FROM public.nobody WHERE id = {id}"}]),
        '`values` does not compile: relation "public.nobody" does not exist',
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_declaration_that_cannot_be_carried_out(database: str, options: dict[str, Any], message: str) -> None:
    shop = Shop(database, {"images": options})
    shop.execute(
        SCHEMA,
        "CREATE TABLE keyless (id bigint, url text); CREATE VIEW some_view AS SELECT * FROM images;"
        "CREATE TABLE whole (id bigint PRIMARY KEY, url text) PARTITION BY RANGE (id);"
        "CREATE TABLE part_one PARTITION OF whole FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE loose_tags (image_id bigint, tag_id int, kind text);"
        "CREATE TABLE text_tags (image_id text, tag_id int, kind text, PRIMARY KEY (image_id, tag_id))",
    )
    with pytest.raises(StreamRefused, match=re.escape(message)) as no:
        shop.apply()
    assert no.value.stream == "images"
    assert no.value.next_step
    assert shop.rows("SELECT count(*) FROM pg_namespace WHERE nspname = 'penstock_outbox'") == [(0,)]
    assert shop.rows("SELECT count(*) FROM posts") == [(0,)]


def test_every_problem_of_a_stream_is_listed(database: str) -> None:
    shop = Shop(database, {"images": stream({**DIRECT, "columns": ["ulr"]}, multi_value=[{**TAGS, "value": "tga_id"}])})
    shop.execute(SCHEMA)
    with pytest.raises(StreamRefused) as no:
        shop.compare()
    said = [each.what for each in (no.value, *no.value.others)]
    assert said == [
        "public.images has no column ulr; did you mean 'url'?",
        "public.image_tags has no column tga_id; did you mean 'tag_id'?",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direct": []}, "exactly one table of `direct` must have `creates: true` (none does)"),
        (stream({**DIRECT, "creates": False}), "exactly one table of `direct` must have `creates: true`"),
        ({"direct": [DIRECT, {**DIRECT, "table": "b"}]}, "exactly one table"),
        (stream({**DIRECT, "columns": ["id"]}), "column 'id' is in `key`"),
        (stream({**DIRECT, "columns": ["a", "a"]}), "names a twice"),
        (stream({**DIRECT, "computed": {"n": "{url"}}), "has no partner"),
        (stream({**DIRECT, "computed": {"url": "{url}"}}), "both in `columns` and in `computed`"),
        (stream(fan_out=[{**POSTS, "match": "post_id = {id}"}]), "is no match"),
        (stream(fan_out=[{**POSTS, "match": "a eq {id} and a eq {n}"}]), "compares a field twice"),
        (stream(fan_out=[{"table": "posts", "match": "a eq {id}"}]), "it sets no field"),
        (stream({**DIRECT, "on_delete": "remove"}), "Input should be 'delete', 'clear' or 'ignore'"),
    ],
)
def test_a_declaration_that_contradicts_itself(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        StreamOptions.model_validate(options)

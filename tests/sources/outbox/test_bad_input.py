"""What people get wrong, and what happens behind our back: each message word for word.

The rest of the list: a state table that is not ours and a field whose type changed are refused by the sinks
(tests/sinks/postgres/state/test_refusals.py, tests/lake/test_state_tables.py); documents of an unknown version are in
tests/core/test_ops_wire.py.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.sources.outbox.shops import IMAGES, SCHEMA, Shop
from tests.sources.outbox.test_refusals import DIRECT, stream

from penstock.errors import NotComparable, PenstockError
from penstock.ports import ComparingSource, capability

MORE = (
    "CREATE TABLE keyless (id bigint, url text); CREATE VIEW some_view AS SELECT * FROM images;"
    "CREATE TABLE whole (id bigint, url text, PRIMARY KEY (id)) PARTITION BY RANGE (id);"
    "CREATE TABLE part_one PARTITION OF whole FOR VALUES FROM (0) TO (10);"
    "CREATE TABLE part_two (id bigint NOT NULL PRIMARY KEY, url text); INSERT INTO part_two VALUES (15, 'before')"
)
WHOLE = {"images": {"direct": [{**DIRECT, "table": "whole"}]}}


def told(error: PenstockError) -> str:
    """The message without hashes and numbers of a run."""
    return re.sub(r"penstock_[0-9a-f]{16}", "penstock_…", str(error))


REFUSED = [
    (
        stream({**DIRECT, "columns": ["ulr"]}),
        "images: public.images has no column ulr; did you mean 'url'?\n"
        "Nothing was read or written.\nNext: correct the name",
    ),
    (
        stream({**DIRECT, "computed": {"n": "lenght({url})"}}),
        "images: public.images `computed` field n does not compile: function lenght(text) does not exist\n"
        "Nothing was read or written.\nNext: correct 'lenght({url})'; columns stand in braces, and functions outside "
        "pg_catalog need their schema",
    ),
    (
        stream({**DIRECT, "table": "keyless"}),
        "images: public.keyless has no unique index on id: two rows could belong to one entity\n"
        "Nothing was read or written.\nNext: name columns that are unique as `key`, or create a unique index on them",
    ),
    (
        stream({**DIRECT, "table": "some_view"}),
        "images: public.some_view is a view, and triggers that see its rows change need a table\n"
        "Nothing was read or written.\nNext: name the tables that it is made of",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=["column", "expression", "key", "view"])
def test_a_declaration(database: str, options: dict[str, Any], message: str) -> None:
    shop = Shop(database, {"images": options})
    shop.execute(SCHEMA, MORE)
    with pytest.raises(PenstockError) as no:
        shop.apply()
    assert told(no.value) == message


@pytest.fixture
def shop(database: str) -> Shop:
    shop = Shop(database, keep_hours=0)
    shop.execute(SCHEMA, MORE)
    shop.apply()
    return shop


def refused(shop: Shop) -> str:
    with pytest.raises(PenstockError) as no:
        shop.read()
    return told(no.value)


OUTDATED = "images: the triggers in the database are not those of the pipeline file: "
APPLY = (
    "Changes may be missing in the outbox\nNothing was read or written.\n"
    "Next: `penstock triggers plan FILE` shows the difference, `penstock triggers apply FILE` removes it"
)


def test_no_permission_to_create_triggers(shop: Shop) -> None:
    role = f"poor_{shop.rows('SELECT pg_backend_pid()')[0][0]}"
    shop.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'penstock'; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    try:
        other = Shop(shop.url.replace("//penstock:", f"//{role}:"), {"images": stream()})
        with pytest.raises(PenstockError) as no:
            other.apply()
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert told(no.value).replace(role, "poor") == (
        "images: role poor does not own public.images: only its owner can create a trigger there that always fires "
        "(ENABLE ALWAYS)\nNothing was read or written.\nNext: connect as the owner, or let the owner run this: "
        "GRANT the owner's role TO poor"
    )


BEHIND = [
    (
        "CREATE OR REPLACE FUNCTION penstock_outbox.{0}() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RETURN NULL; END$$",
        f"{OUTDATED}replace function penstock_…: for public.images; it was changed by hand. {APPLY}",
    ),
    (
        "DROP TABLE images CASCADE;CREATE TABLE images (id bigint PRIMARY KEY, url text, post_id bigint, size numeric)",
        f"{OUTDATED}create trigger penstock_… on public.images: it does not exist; the table was dropped and created "
        "again: its changes since then are not in the outbox; create trigger penstock_…_truncate on public.images: it "
        "does not exist; the table was dropped and created again: its changes since then are not in the outbox. "
        f"{APPLY}",
    ),
    (
        "ALTER TABLE images RENAME TO pictures",
        "images: there is no table public.images; did you mean 'image_tags'?\nNothing was read or written.\n"
        "Next: correct `table`, or create it",
    ),
    (
        "DROP VIEW some_view; ALTER TABLE images ALTER size TYPE text USING size::text",
        f"{OUTDATED}create function penstock_…: for public.images; create trigger penstock_… on public.images: it does "
        f"not exist; create trigger penstock_…_truncate on public.images: it does not exist. {APPLY}",
    ),
    (
        "ALTER TABLE penstock_outbox.outbox DISABLE TRIGGER ALL; TRUNCATE penstock_outbox.outbox RESTART IDENTITY",
        "images: the outbox has given ids up to 0, and the stream was read up to 3: its sequence was restarted, or the "
        "database was restored\nNothing was read or written.\nNext: `penstock state reset FILE --stream images` starts "
        "from what this outbox has; what was written between the two is not in it",
    ),
]


@pytest.mark.parametrize(
    ("done", "message"), BEHIND, ids=["by hand", "made again", "renamed", "type", "truncated or restored"]
)
def test_behind_our_back(shop: Shop, done: str, message: str) -> None:
    shop.execute("INSERT INTO images SELECT n FROM generate_series(1, 3) n")
    shop.read()
    [(name,)] = shop.rows(
        "SELECT DISTINCT p.proname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid "
        "WHERE t.tgrelid = 'images'::regclass AND p.proname LIKE 'penstock%'"
    )
    shop.execute(done.format(name))
    assert refused(shop) == message


def test_the_outbox_is_not_truncated(shop: Shop) -> None:
    with pytest.raises(Exception, match="truncated") as no:
        shop.execute("TRUNCATE penstock_outbox.outbox")
    assert str(no.value).splitlines()[:2] == [
        "the outbox is not truncated: documents that no pipeline has read would be lost",
        "HINT:  Runs of penstock delete what all pipelines have read; `penstock triggers drop` removes all of it.",
    ]


def test_partitions_with_rows_come_and_go(database: str) -> None:
    """No trigger fires for them: the run stops, and says how their rows are delivered or removed."""
    shop = Shop(database, WHOLE, first_load=True)
    shop.execute(SCHEMA, MORE)
    shop.apply()
    shop.execute("INSERT INTO whole VALUES (1, 'one')")
    shop.read()
    shop.execute("ALTER TABLE whole ATTACH PARTITION part_two FOR VALUES FROM (10) TO (20)")
    again = "`penstock loads start FILE --table public.whole`"
    assert refused(shop) == (
        f"{OUTDATED}create trigger penstock_…_truncate on public.part_two: it does not exist; if the partition was "
        f"attached with rows in it, {again} delivers them. {APPLY}"
    )
    shop.apply()
    shop.read()
    shop.execute("ALTER TABLE whole DETACH PARTITION part_one")
    assert refused(shop) == (
        f"{OUTDATED}drop trigger penstock_…_truncate on public.part_one: the pipeline file does not ask for it on this "
        f"table; if it was a partition of public.whole and was detached with rows in it, {again} removes them. {APPLY}"
    )
    shop.apply()
    assert shop.read() == 0


def test_two_pipelines_that_generate_triggers_for_one_table(shop: Shop) -> None:
    other = Shop(shop.url, {"images": {**IMAGES, "fan_out": [], "direct": [DIRECT]}}, pipeline="other")
    with pytest.raises(PenstockError) as no:
        other.apply()
    assert told(no.value) == (
        "other: public.images has triggers of pipeline 'shop', which declares it otherwise: one outbox has one "
        "function for each table\nNothing was read or written.\nNext: declare the table alike in both pipelines, "
        "for all streams that it feeds, release it with `penstock triggers drop FILE --of shop --table public.images`, "
        "and apply both; or set `outbox_schema` of this source to another schema than penstock_outbox"
    )


def test_a_consumer_that_is_gone(shop: Shop) -> None:
    """The outbox grows because of it: a run warns, with the command that drops it."""
    shop.execute(
        "INSERT INTO penstock_outbox.consumers VALUES ('gone', 'images', 1, 0)",
        "INSERT INTO images VALUES (1)",
        "UPDATE penstock_outbox.outbox SET created_at = now() - interval '3 days'",
    )
    shop.read()
    source = shop.source()
    content, last = source.content("images"), shop.last["images"].mark
    ceiling = source.ceiling("images", content, "run", last)
    assert ceiling is not None
    assert source.remaining("images", content, last, ceiling).warning == (
        "pipeline 'gone' has not read documents that are 3.0 days old: the outbox keeps them and all later ones. If "
        "it is gone, `penstock triggers drop FILE --of gone` removes its registration"
    )


def test_verify_says_what_to_use_instead(shop: Shop) -> None:
    source = shop.source()
    reading = capability(source, ComparingSource)
    assert reading is not None
    with pytest.raises(NotComparable) as no:
        reading.compared_columns("images", source.content("images"))
    assert told(no.value) == (
        "images: cannot be compared, because an outbox has changes of rows, and not the rows themselves\n"
        "Nothing was read or written.\nNext: compare with a query over the stream's tables; `penstock loads start FILE "
        "--stream images` reads them again, corrects what differs, and removes what they no longer have"
    )

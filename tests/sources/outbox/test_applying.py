"""Plan, apply, drop: what is created, replaced, enabled and dropped; and what two pipelines do to one table."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.sources.outbox.shops import IMAGES, SCHEMA, Shop
from tests.sources.outbox.test_loads import finish

from penstock.errors import InputError, StreamFailed, StreamRefused
from penstock.sources.outbox.applying import drop_triggers
from penstock.sources.outbox.server import Server

TRIGGERS = (
    "SELECT tgrelid::regclass::text, tgname::text, tgenabled::text FROM pg_trigger "
    "WHERE tgname LIKE 'penstock%' ORDER BY 1, 2"
)
FUNCTIONS = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'penstock%'"


@pytest.fixture
def shop(database: str) -> Shop:
    shop = Shop(database)
    shop.execute(SCHEMA)
    shop.apply()
    return shop


def changes(shop: Shop) -> list[str]:
    """What `apply` would do, without the hashes."""
    found = []
    for each in shop.compare().changes:
        kind, _, where = each.about.partition(" on ")
        found.append(" ".join([each.what, *kind.split()[:1], *([where] if where else [])]))
    return found


def drop(shop: Shop, *tables: str) -> list[str]:
    server = Server(shop.options, shop.context)
    try:
        return [each.what for each in drop_triggers(server.writing, shop.options, shop.pipeline, tables or None)]
    finally:
        server.close()


def narrower(**without: Any) -> dict[str, Any]:
    return {"images": {**IMAGES, **without}}


def test_applying_again_changes_nothing_and_waits_for_nobody(shop: Shop) -> None:
    before = shop.rows("SELECT xmin::text, ctid::text FROM pg_trigger") + shop.rows("SELECT xmin::text FROM pg_proc")
    with shop.connect() as writer:
        writer.execute("INSERT INTO images VALUES (1)")
        assert shop.apply() == ()
    after = shop.rows("SELECT xmin::text, ctid::text FROM pg_trigger") + shop.rows("SELECT xmin::text FROM pg_proc")
    assert after == before


def test_every_trigger_fires_always(shop: Shop) -> None:
    found = shop.rows(TRIGGERS)
    assert [row[0] for row in found] == ["image_tags"] * 2 + ["images"] * 2 + ["posts"] * 2
    assert {row[2] for row in found} == {"A"}
    assert shop.rows(FUNCTIONS) == [(3,)]


def test_what_changed_in_the_file_is_replaced_and_what_left_it_is_dropped(shop: Shop) -> None:
    shop.execute("INSERT INTO images VALUES (1, 'a')")
    direct = [{"table": "images", "key": "id", "columns": ["url"], "creates": True}]
    other = Shop(shop.url, narrower(direct=direct, fan_out=[]))
    assert sorted(changes(other)) == sorted(
        [
            *("create function", "create trigger public.images", "create trigger public.images"),
            *("drop trigger public.images", "drop trigger public.images"),
            *("drop trigger public.posts", "drop trigger public.posts", "drop function", "drop function"),
        ]
    )
    other.apply()
    assert changes(other) == []
    assert shop.rows(FUNCTIONS) == [(2,)]
    shop.execute("UPDATE images SET url = 'b', size = 2", "INSERT INTO posts VALUES (1)")
    assert [op["field"] for op in shop.written()[-1]["ops"]] == ["url"]


@pytest.mark.parametrize(
    ("done", "found", "says"),
    [
        ("ALTER TABLE images DISABLE TRIGGER ALL", ["enable trigger public.images"] * 2, "it is disabled"),
        (
            "ALTER TABLE images DISABLE TRIGGER {0}; ALTER TABLE images ENABLE TRIGGER {0}",
            ["enable trigger public.images"],
            "does not fire in every session",
        ),
        ("DROP TRIGGER {0} ON images", ["create trigger public.images"], "it does not exist"),
        (
            "CREATE OR REPLACE FUNCTION penstock_outbox.{0}() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RETURN NULL; END$$",
            ["replace function"],
            "it was changed by hand",
        ),
        ("ALTER FUNCTION penstock_outbox.{0}() SECURITY INVOKER", ["replace function"], "it was changed by hand"),
        (
            "DROP TRIGGER {0} ON images; CREATE TRIGGER {0} AFTER INSERT ON images FOR EACH ROW "
            "EXECUTE FUNCTION penstock_outbox.{0}()",
            ["replace trigger public.images"],
            "it was changed by hand",
        ),
        (
            "ALTER TABLE images RENAME TO old; CREATE TABLE images (LIKE old INCLUDING ALL)",
            ["create trigger public.images"] * 2 + ["drop trigger public.old"] * 2,
            "the table was dropped and created again",
        ),
    ],
)
def test_what_somebody_did_is_found_stops_a_run_and_is_put_right(
    shop: Shop, done: str, found: list[str], says: str
) -> None:
    [name] = {row[1] for row in shop.rows(TRIGGERS) if row[0] == "images" and "truncate" not in row[1]}
    shop.execute(done.format(name))
    assert sorted(changes(shop)) == sorted(found)
    with pytest.raises(StreamRefused, match="the triggers in the database are not those of the pipeline file") as no:
        shop.read()
    assert says in no.value.what
    assert "penstock triggers apply FILE" in no.value.next_step
    shop.apply()
    assert changes(shop) == []
    shop.execute("INSERT INTO images VALUES (1, 'a')")
    assert shop.read() == 1


def test_two_pipelines_that_declare_a_table_alike_share_its_trigger(shop: Shop) -> None:
    other = Shop(shop.url, pipeline="other")
    assert other.apply() == ()
    shop.execute("INSERT INTO images VALUES (1, 'a')")
    assert (shop.read(), other.read()) == (1, 1)
    assert drop(shop) == [], "the other one uses all of it"
    shop.execute("INSERT INTO images VALUES (2, 'b')")
    assert other.read() == 1
    assert drop(other) == ["drop"] * 10
    assert shop.rows(TRIGGERS) == []
    assert shop.rows("SELECT count(*) FROM pg_class WHERE relnamespace = 'penstock_outbox'::regnamespace") == [(0,)]


def test_two_pipelines_that_declare_a_table_otherwise(shop: Shop) -> None:
    direct = [{"table": "images", "key": "id", "columns": ["url"], "creates": True}]
    other = Shop(shop.url, narrower(direct=direct, fan_out=[]), pipeline="other")
    with pytest.raises(InputError, match="has triggers of pipeline 'shop', which declares it otherwise"):
        other.apply()
    apart = Shop(shop.url, narrower(direct=direct, fan_out=[]), pipeline="other", outbox_schema="my outbox")
    apart.apply()
    shop.execute("INSERT INTO images VALUES (1, 'a')")
    assert [len(each["ops"]) for each in shop.written()] == [4]
    assert (shop.read(), apart.read()) == (1, 1)


def test_a_table_of_two_pipelines_is_changed(shop: Shop) -> None:
    """One releases the table, the other one changes it, and the first follows. Changes are recorded all the time."""
    other = Shop(shop.url, pipeline="other", first_load=True)
    other.apply()
    shop.execute("INSERT INTO images VALUES (1, 'a')")
    assert shop.read() == 1
    finish(other)
    direct = [{"table": "images", "key": "id", "columns": ["url", "post_id"], "creates": True}]
    changed = narrower(direct=direct)
    first = Shop(shop.url, changed)
    with pytest.raises(InputError, match=r"penstock triggers drop FILE --of other --table public\.images"):
        first.apply()
    assert drop(other, "public.images") == [], "the triggers are in use"
    first.apply()
    shop.execute("INSERT INTO images VALUES (2, 'b')")
    with pytest.raises(InputError, match="has triggers of pipeline 'shop', which declares it otherwise"):
        other.read()
    then = Shop(shop.url, changed, pipeline="other", first_load=True)
    then.last, then.documents = other.last, other.documents
    assert then.apply() == ()
    finish(then)
    assert [each["key"] for id_, each in then.documents["images"] if id_ < 0 and each.get("creates")] == [1, 1, 2]
    assert drop(first, "public.posts", "public.images") == []
    assert sorted(set(drop(then, "public.posts"))) == ["drop"]
    assert shop.rows("SELECT count(*) FROM penstock_outbox.consumers") == [(2,)]


def test_a_writer_that_does_not_end_is_not_waited_for_long(shop: Shop) -> None:
    shop.execute("ALTER TABLE images DISABLE TRIGGER ALL")
    impatient = Shop(shop.url, lock_timeout=0.2)
    with shop.connect() as writer:
        writer.execute("INSERT INTO posts VALUES (1)")
        with pytest.raises(StreamFailed, match="the triggers cannot be applied: timed out waiting for a lock"):
            impatient.apply()
    assert changes(shop) == ["enable trigger public.images"] * 2, "nothing was changed"


def test_a_role_that_does_not_own_the_tables(shop: Shop) -> None:
    role = f"reader_{shop.rows('SELECT pg_backend_pid()')[0][0]}"
    shop.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'penstock'; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    try:
        other = Shop(shop.url.replace("//penstock:", f"//{role}:"))
        with pytest.raises(StreamRefused, match=f"role {role} does not own public.images: only its owner"):
            other.compare()
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_role_that_may_not_create_a_schema(database: str) -> None:
    owner = Shop(database)
    role = f"owner_{owner.rows('SELECT pg_backend_pid()')[0][0]}"
    owner.execute(SCHEMA, f"CREATE ROLE {role} LOGIN PASSWORD 'penstock'")
    owner.execute(*(f"ALTER TABLE {name} OWNER TO {role}" for name in ("posts", "images", "image_tags")))
    try:
        other = Shop(database.replace("//penstock:", f"//{role}:"))
        with pytest.raises(StreamRefused, match="the triggers cannot be applied: permission denied") as no:
            other.apply()
        assert no.value.safe == "Nothing was changed."
    finally:
        owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_deadlock_with_a_writer_is_no_end(shop: Shop) -> None:
    """The writer has one table, apply waits for it with the other one in its hands: the server ends apply, once."""
    drop(shop)
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
    with shop.connect() as writer, ThreadPoolExecutor(1) as pool:
        writer.execute("SET deadlock_timeout = '60s'")
        writer.execute("INSERT INTO posts VALUES (1, 'one')")
        applying = pool.submit(shop.apply)
        while shop.rows(waits) == [(0,)]:
            assert not applying.done(), applying.result()
        # From here on each waits for the other one; only apply looks for a deadlock.
        writer.execute("INSERT INTO images VALUES (1)")
        writer.commit()
        assert "create" in {each.what for each in applying.result(60)}
    assert shop.compare().changes == ()

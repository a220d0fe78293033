"""What was there before, what changes between slices, and who else writes: right, or refused with the way out."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from tests.sinks.postgres.deliveries import Deliveries
from tests.sinks.postgres.state.entities import (
    CLEAR,
    INFO,
    PLAIN,
    STREAM,
    Entities,
    add,
    document,
    fan_out,
    put,
)

from penstock.core.content import Column, Content
from penstock.core.ops import FEED_COLUMNS, FanOut, Layout
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind
from penstock.core.types import Plain
from penstock.errors import StreamFailed, StreamRefused, StreamStopped
from penstock.ports import StreamInfo
from penstock.sinks.postgres import StreamOptions

MADE = [document(put("post", key), add("x"), key=key, creates=True) for key in (1, 2)]


def refusals(entities: Entities, content: Content | None = None) -> list[str]:
    """Every problem that a check finds."""
    with closing(entities.open()) as sink:
        sink.begin_run([INFO])
        with pytest.raises(StreamRefused) as caught:
            sink.check(INFO, content or entities.content)
    return [f"{each.what}; {each.next_step}" for each in (caught.value, *caught.value.others)]


# ---------------------------------------------------------------- options and content


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"key": ["post"]}, "`key` names (post), and the key of the entity is (id)"),
        ({"newer_than": "post"}, "`newer_than` has no meaning with `mode: state`"),
        ({"guard": ["post"]}, "`guard` has no meaning with `mode: state`"),
        ({"volatile": ["post"]}, "`volatile` has no meaning with `mode: state`"),
        ({"deletes": "soft"}, "`deletes: soft` is not possible with `mode: state`"),
        ({"deletes": "ignore"}, "`deletes: ignore` is not possible with `mode: state`"),
        ({"bad_rows": "quarantine"}, "`bad_rows: quarantine` is not possible with `mode: state`"),
        ({"create": False}, "there is no table public.images"),
        ({"into": "nowhere.images"}, "there is no schema nowhere"),
    ],
)
def test_options_that_do_not_go_with_it(database: str, options: dict[str, Any], what: str) -> None:
    assert any(each.startswith(what) for each in refusals(Entities(database, options=options)))


def test_rows_that_are_no_documents(database: str) -> None:
    entities = Entities(database)
    (found,) = refusals(entities, replace(entities.content, entities=None))
    assert "the rows of this stream are not documents of ops; use `mode: append`" in found
    (found,) = refusals(entities, replace(entities.content, columns=FEED_COLUMNS[:2]))
    assert "leave out `shape` on the stream" in found
    (found,) = refusals(Entities(database, replace(PLAIN, scalars=(*PLAIN.scalars, Column("gap", Plain.TIME_NS)))))
    assert "field gap is time_ns, which has no form in Postgres" in found


def test_an_age_of_early_ops_belongs_to_state_tables(database: str) -> None:
    orders = Deliveries(database, {"early_for": "7d"})
    with pytest.raises(StreamRefused, match="`early_for` has no meaning without `mode: state`"):
        orders.deliver(pa.table({"id": [1]}))
    assert StreamOptions.model_validate({"early_for": "1h30m"}).early_for is not None


# ---------------------------------------------------------------- what was there before


def test_a_table_with_rows_of_others(database: str) -> None:
    entities = Entities(database)
    entities.run(f"CREATE TABLE {STREAM} (id bigint PRIMARY KEY, mine text)")
    entities.run(f"INSERT INTO {STREAM} VALUES (1, 'a'), (9, 'b')")
    (found,) = refusals(entities)
    assert found == (
        "public.images holds rows that this stream did not write: it cannot know what ops have led to them; set "
        "`replace_existing: true` on the stream if the rows of public.images may be deleted; otherwise name another "
        "table with `into`"
    )
    entities.options = {"replace_existing": True}
    assert entities.deliver(*MADE) == Outcome(created=2, deleted=2)
    assert entities.differences() == []
    entities.run(f"INSERT INTO {STREAM} (id) VALUES (50)")
    assert entities.deliver(document(put("size", 5), key=1)) == Outcome(updated=1), "only the first slice replaces"
    assert entities.rows(f"SELECT count(*) FROM {STREAM} WHERE id = 50") == [(1,)]


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ("(id bigint, post bigint)", "has no unique index on the key (id)"),
        ("(id bigint PRIMARY KEY, post date)", "field post is bigint, and its column in public.images is date"),
        ("(id bigint PRIMARY KEY, tags text)", "field tags holds several values, and column tags of public.images is"),
        ("(id bigint PRIMARY KEY, post bigint GENERATED ALWAYS AS (id) STORED)", "cannot be written"),
        ("(id bigint PRIMARY KEY, other text NOT NULL)", "column other of public.images is NOT NULL without a default"),
    ],
)
def test_a_table_that_does_not_fit(database: str, table: str, what: str) -> None:
    entities = Entities(database)
    entities.run(f"CREATE TABLE {STREAM} {table}")
    assert any(what in each for each in refusals(entities))


def test_a_view_is_no_table(database: str) -> None:
    entities = Entities(database)
    entities.run(f"CREATE VIEW {STREAM} AS SELECT 1 AS id")
    assert "public.images is a view" in refusals(entities)[0]


def test_a_table_of_another_pipeline(database: str) -> None:
    first, second = Entities(database), Entities(database, pipeline="other")
    first.deliver(*MADE)
    assert any("public.images is filled by shop/images too" in each for each in refusals(second))
    # Another one that came to the table in the meantime is noticed too.
    first.run(
        "INSERT INTO penstock_sink.ledger SELECT 'late', stream, target, table_oid, refreshed, number, id, previous, "
        "kind, after, upto, content, spool, rows, bytes, outcome, at FROM penstock_sink.ledger"
    )
    with pytest.raises(StreamRefused, match=r"public\.images is filled by late/images too"):
        first.deliver(document(put("size", 5), key=1))


def test_another_mode_before(database: str) -> None:
    entities = Entities(database, options={"mode": "append", "into": "log"})
    with closing(entities.open()) as sink:
        sink.begin_run([INFO])
        sink.check(INFO, entities.content)
        slice_ = entities.slice()
        schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("document", pa.string())])
        rows = pa.table([[1], [datetime(2026, 1, 1, tzinfo=UTC)], ["{}"]], schema=schema)
        from penstock.testing.contracts.delivery import stage_parts

        sink.commit(slice_, "a1", stage_parts(sink, slice_, rows))
    entities.options = {"into": "log"}
    (found,) = refusals(entities)
    assert "the stream was delivered to public.log in another mode" in found
    assert "penstock state reset FILE --stream images" in found


def test_back_to_another_mode(database: str) -> None:
    entities = Entities(database)
    entities.deliver(*MADE)
    entities.options = {"mode": "append"}
    assert any("public.images has entities of this stream, in `mode: state`" in each for each in refusals(entities))


# ---------------------------------------------------------------- what changes behind our back


def test_a_table_that_was_made_again(database: str) -> None:
    entities = Entities(database)
    entities.deliver(*MADE)
    entities.run(f"DROP TABLE {STREAM}")
    with pytest.raises(StreamStopped, match=r"the table public\.images is gone"):
        entities.check()
    entities.run(f"CREATE TABLE {STREAM} (id bigint PRIMARY KEY)")
    with pytest.raises(StreamStopped, match=r"the table public\.images is another one than before"):
        entities.check()


def test_a_column_that_was_dropped_comes_back_and_fills_again(database: str) -> None:
    entities = Entities(database)
    entities.deliver(*MADE)
    entities.run(f"ALTER TABLE {STREAM} DROP COLUMN size")
    assert entities.deliver(document(put("size", 5), key=1)) == Outcome(updated=1)
    assert entities.differences() == []


def test_rows_that_somebody_deletes_or_adds(database: str) -> None:
    entities = Entities(database)
    entities.deliver(*MADE)
    entities.run(f"DELETE FROM {STREAM} WHERE id = 1")
    assert entities.deliver(document(put("size", 5), key=1)) == Outcome(equal=1), "it waits for its entity"
    assert entities.rows("SELECT key FROM penstock_sink.early_ops") == [(["1"],)]
    entities.run(f"INSERT INTO {STREAM} VALUES (1)")
    assert entities.deliver(document(put("post", 7), key=1)) == Outcome(updated=1)
    assert entities.rows(f"SELECT post, size FROM {STREAM} WHERE id = 1") == [(7, None)]
    assert entities.rows("SELECT count(*) FROM penstock_sink.early_ops") == [(0,)]


def test_a_trigger_that_keeps_rows_out(database: str) -> None:
    entities = Entities(database)
    entities.deliver(*MADE)
    entities.run("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    entities.run(f"CREATE TRIGGER no BEFORE INSERT ON {STREAM} FOR EACH ROW EXECUTE FUNCTION no()")
    with pytest.raises(StreamFailed, match=r"did not take 1 of 1 rows: its trigger no \(BEFORE INSERT\) returns NULL"):
        entities.deliver(document(key=3, creates=True))
    entities.options = {"triggers": False}
    assert entities.deliver(document(key=3, creates=True)) == Outcome(created=1)


def test_a_role_without_temporary_tables(database: str) -> None:
    name = urlsplit(database).path.removeprefix("/")
    entities = Entities(database)
    entities.run("DO $$ BEGIN CREATE ROLE eve LOGIN PASSWORD 'eve'; EXCEPTION WHEN duplicate_object THEN END $$")
    entities.run(f"REVOKE TEMPORARY ON DATABASE {name} FROM public")
    entities.run(f"GRANT CREATE ON DATABASE {name} TO eve")
    entities.run("GRANT CREATE ON SCHEMA public TO eve")
    parts = urlsplit(database)
    entities.url = f"postgresql://eve:eve@{parts.hostname}:{parts.port}{parts.path}"
    (found,) = refusals(entities)
    assert f"GRANT TEMPORARY ON DATABASE {name} TO eve;" in found


# ---------------------------------------------------------------- a declaration that changes


def changed(layout: Layout, **columns: Column) -> Layout:
    return replace(layout, scalars=tuple(columns.get(each.name, each) for each in layout.scalars))


def test_fields_that_are_added_and_removed(database: str) -> None:
    entities = Entities(database, replace(PLAIN, scalars=PLAIN.scalars[:1], fan_outs=(), multi=()))
    entities.deliver(document(put("post", 1), key=1, creates=True), document(put("post", 2), key=8))
    entities.layout = PLAIN
    posts = fan_out("posts", {"field": "post", "eq": 1}, put("title", "one"))
    entities.deliver(posts, document(put("size", 3), add("x"), key=1), document(key=8, creates=True))
    assert entities.differences() == []
    entities.layout = replace(PLAIN, scalars=PLAIN.scalars[:1], fan_outs=())
    assert entities.deliver(document(put("size", 4), put("post", 7), key=1)) == Outcome(updated=1, quarantined=1)
    assert entities.rows(f"SELECT post, size, title, tags FROM {STREAM} WHERE id = 1") == [(7, 3, "one", ["x"])]
    assert entities.rows("SELECT count(*) FROM penstock_sink.fan_out_values") == [(0,)]


def test_a_fan_out_that_matches_on_another_field_begins_without_values(database: str) -> None:
    entities = Entities(database)
    posts = fan_out("posts", {"field": "post", "eq": 1}, put("title", "one"))
    entities.deliver(posts, document(put("post", 5), put("size", 1), key=1, creates=True))
    entities.layout = replace(PLAIN, fan_outs=(FanOut("posts", ("size",), ("title",)),))
    entities.deliver(document(put("size", 1), key=1))
    assert entities.rows(f"SELECT title FROM {STREAM}") == [(None,)]


def test_a_type_that_becomes_wider(database: str) -> None:
    narrow = changed(
        PLAIN, post=Column("post", Plain.STRING, "numeric(4,1)"), size=Column("size", Plain.INT32, "integer")
    )
    entities = Entities(database, narrow)
    posts = fan_out("posts", {"field": "post", "eq": "1.5"}, put("title", "one"))
    entities.deliver(posts, document(put("post", "1.5"), put("size", 3), key=1, creates=True))
    entities.layout = changed(narrow, post=Column("post", Plain.STRING, "numeric(9,3)"), size=PLAIN.scalars[1])
    outcome = entities.deliver(document(put("size", 2**40), key=1), document(put("post", "1.5"), key=2, creates=True))
    assert outcome == Outcome(created=1, updated=1)
    assert entities.rows(f"SELECT post::text, size, title FROM {STREAM} ORDER BY id") == [
        ("1.500", 2**40, "one"),
        ("1.500", None, "one"),
    ]
    entities.layout = changed(narrow, post=Column("post", Plain.STRING, "uuid"))
    found = refusals(entities)
    assert any("field post is uuid, and its column in public.images is numeric(9,3)" in each for each in found)


def test_another_key(database: str) -> None:
    entities = Entities(database)
    entities.deliver(*MADE)
    entities.layout = replace(PLAIN, key=(Column("no", Plain.INT64, "bigint"),))
    found = refusals(entities)
    assert any("the key of the entity was (id) and is (no) now" in each for each in found)
    assert any("penstock state reset FILE --stream images" in each for each in found)


# ---------------------------------------------------------------- the operator's commands, and age


def test_a_new_start_forgets_what_was_kept(database: str) -> None:
    entities = Entities(database)
    posts = fan_out("posts", {"field": "post", "eq": 1}, put("title", "one"))
    entities.deliver(*MADE, posts, document(add("y"), key=40))
    with closing(entities.open()) as sink:
        sink.begin_run([INFO])
        (line,) = sink.archive(STREAM, "one")
    assert "images_before_one" in line
    for table in ("states", "early_ops", "fan_out_values"):
        assert entities.rows(f"SELECT count(*) FROM penstock_sink.{table}") == [(0,)]
    again = Entities(database)
    again.deliver(document(put("post", 1), key=40, creates=True))
    assert again.differences() == []
    with closing(again.open()) as sink:
        sink.begin_run([INFO])
        again.run("DROP TABLE images")
        assert sink.recover(STREAM) == ["slice 1 was withdrawn from the ledger"]
    assert again.rows("SELECT count(*) FROM penstock_sink.states") == [(0,)]


def test_early_ops_that_wait_for_too_long(database: str) -> None:
    entities = Entities(database, options={"early_for": "5s"})
    entities.deliver(document(add("x"), key=1), document(add("x"), key=2))
    assert entities.said == ["2 ops came before the entity"]
    entities.said.clear()
    fill = [document(CLEAR | {"field": "size"}) for _ in range(3)]
    entities.deliver(*fill, document(add("y"), key=2), document(add("y"), key=3))
    assert entities.said == [
        "2 ops came before the entity",
        "ops of 1 entity were dropped: the entity has not come for 5s",
    ]
    assert entities.rows("SELECT key, fields FROM penstock_sink.early_ops ORDER BY key") == [
        (["2"], {"scalars": {}, "multi": {"tags": ["x", "y"]}}),
        (["3"], {"scalars": {}, "multi": {"tags": ["y"]}}),
    ]


def test_a_stream_that_replaces_everything_is_no_stream_of_ops(database: str) -> None:
    entities = Entities(database)
    info = StreamInfo(STREAM, Kind.REFRESH)
    with closing(entities.open()) as sink:
        sink.begin_run([info])
        with pytest.raises(StreamRefused, match="`mode: state` applies ops in their order"):
            sink.check(info, entities.content)


def test_what_is_explained(database: str) -> None:
    entities = Entities(database, options={"early_for": "30d", "triggers": False})

    def explained() -> list[str]:
        with closing(entities.open()) as sink:
            sink.begin_run([INFO])
            return [remark.text for remark in sink.explain(INFO, entities.content)]

    first = explained()
    assert first[0] == "lands in public.images: one row for each entity, each slice in one transaction"
    assert "ops whose entity has not come after 30d are dropped" in first
    entities.deliver(*MADE)
    assert explained() == first
    entities.run("DROP INDEX images_post_idx")
    assert any("CREATE INDEX ON public.images (post);" in text for text in explained())


def test_a_stream_that_begins_elsewhere(database: str) -> None:
    """A slice without rows comes first."""
    entities = Entities(database)
    slice_ = replace(entities.slice(), kind=Kind.REWIND)
    with closing(entities.open()) as sink:
        sink.begin_run([INFO])
        sink.commit(slice_, "a1", [])
    entities.last = slice_.position
    entities.deliver(*MADE)
    assert entities.differences() == []


def test_a_role_that_does_not_own_the_tables_beside(database: str) -> None:
    """Another role has created them, and granted what a check asks for."""
    owner = Entities(database)
    owner.deliver(*MADE)
    owner.run("DO $$ BEGIN CREATE ROLE eve LOGIN PASSWORD 'eve'; EXCEPTION WHEN duplicate_object THEN END $$")
    owner.run("GRANT ALL ON SCHEMA penstock_sink TO eve")
    owner.run("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock_sink TO eve")
    owner.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {STREAM} TO eve")
    parts = urlsplit(database)
    owner.url = f"postgresql://eve:eve@{parts.hostname}:{parts.port}{parts.path}"
    assert owner.deliver(document(put("size", 5), key=1), document(add("y"), key=9)) == Outcome(updated=1, equal=1)
    owner.layout = replace(PLAIN, scalars=(*PLAIN.scalars, Column("more", Plain.INT64, "bigint")))
    (found,) = refusals(owner)
    assert "public.images has no column more: only its owner may add it" in found
    assert "ALTER TABLE public.images ADD COLUMN more bigint;" in found

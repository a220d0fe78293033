"""A declaration that changes, a table that comes, goes or is made again: what is loaded again, and what is cleared."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.sources.outbox.shops import IMAGES, SCHEMA, TRUTH, Shop, deliver, mark_of
from tests.sources.outbox.test_loads import FILL, finish, states

from penstock.core.marks import Mark, Position
from penstock.core.ops import State
from penstock.core.slices import following
from penstock.errors import StreamFailed, StreamRefused
from penstock.ports import Budget
from penstock.sources.outbox.load import declared
from penstock.sources.outbox.load.planning import choose_columns
from penstock.sources.outbox.marks import OutboxMark
from penstock.sources.outbox.source import OutboxSource

Declaration = dict[str, Any]
KINDS = "SELECT i.id, max(i.note), array_agg(t.tag_id ORDER BY t.tag_id) FILTER (WHERE t.kind = '{}') FROM images i"
KINDS += " LEFT JOIN image_tags t ON t.image_id = i.id GROUP BY i.id ORDER BY i.id"


@pytest.fixture
def shop(database: str) -> Shop:
    shop = Shop(database, first_load=True, keep_hours=0)
    shop.execute(SCHEMA, "ALTER TABLE images ADD note text DEFAULT 'noted'", *FILL)
    shop.apply()
    return shop


def changed(shop: Shop, change: Callable[[Declaration], object]) -> Shop:
    """The same pipeline with another declaration; not applied yet."""
    declaration: Declaration = copy.deepcopy(IMAGES)
    change(declaration)
    other = Shop(shop.url, {"images": declaration}, first_load=True, keep_hours=0)
    other.last, other.documents = dict(shop.last), {name: list(each) for name, each in shop.documents.items()}
    return other


def add_note(declaration: Declaration) -> None:
    declaration["direct"][0]["columns"].append("note")


def count_auto(declaration: Declaration) -> None:
    declaration["multi_value"][0]["where"] = "{kind} = 'auto'"


def without_tags(declaration: Declaration) -> None:
    declaration["multi_value"] = []


def tables_read(shop: Shop, before: int) -> dict[str, int]:
    """Documents by table, of those delivered since then; the ones that clear are not counted."""
    found: dict[str, int] = {}
    for _, document in shop.documents["images"][before:]:
        if document["ops"] and document["ops"][0]["op"] != "clear":
            found[document["table"]] = found.get(document["table"], 0) + 1
    return found


def notes_and_tags(shop: Shop, kind: str) -> list[tuple[Any, ...]]:
    return [(key, note, tags or None) for key, note, tags in shop.rows(KINDS.format(kind))]


def folded_notes(shop: Shop) -> list[tuple[Any, ...]]:
    return [(key, scalars.get("note"), tags or None) for key, scalars, tags in shop.current()]


def test_a_column_that_is_added_loads_its_table_alone(shop: Shop) -> None:
    shop.read()
    other = changed(shop, add_note)
    with pytest.raises(StreamRefused, match="are not those of the pipeline file"):
        other.read()
    other.apply()
    before = len(other.documents["images"])
    other.read()
    assert tables_read(other, before) == {"public.images": 30}
    assert folded_notes(other) == notes_and_tags(other, "user")
    assert other.read() == 0
    # The field was cleared, in case another table had set it before; the entities were not.
    assert other.documents["images"][before][1]["ops"] == [{"op": "clear", "field": "note"}]


def again_under_the_old_function(shop: Shop) -> Shop:
    """A row is deleted and inserted by a function that does not know the column; then the column is declared."""
    shop.read()
    shop.execute("DELETE FROM images WHERE id = 5; INSERT INTO images VALUES (5, 'again')")
    other = changed(shop, add_note)
    other.apply()
    finish(other)
    return other


def test_what_an_old_function_wrote_comes_before_the_load(shop: Shop) -> None:
    other = again_under_the_old_function(shop)
    assert folded_notes(other) == notes_and_tags(other, "user")


def test_a_load_before_what_an_old_function_wrote_is_seen(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = OutboxSource.plan

    def load_first(
        self: OutboxSource, stream: str, content: Any, after: Mark | None, ceiling: Any, budget: Budget
    ) -> Any:
        at = OutboxMark.of(after) if after is not None else None
        early = self._plan_load(stream, at, at, ceiling, budget) if at and at.window is None else None
        return early or plan(self, stream, content, after, ceiling, budget)

    monkeypatch.setattr(OutboxSource, "plan", load_first)
    other = again_under_the_old_function(shop)
    assert folded_notes(other) != notes_and_tags(other, "user")


def test_a_ceiling_of_another_declaration_loads_nothing(shop: Shop) -> None:
    source = shop.source()
    content = source.content("images")
    ceiling = source.ceiling("images", content, "run")
    assert ceiling is not None
    other = changed(shop, add_note)
    other.apply()
    assert other.source().plan("images", content, None, ceiling, Budget(1 << 20)) is None


def test_values_that_no_longer_count_go(shop: Shop) -> None:
    shop.read()
    other = changed(shop, count_auto)
    other.apply()
    before = len(other.documents["images"])
    other.read()
    assert set(tables_read(other, before)) == {"public.image_tags"}
    assert [tags for *_, tags in folded_notes(other)] == [tags for *_, tags in notes_and_tags(other, "auto")]


def away_and_back(shop: Shop) -> Shop:
    """A table leaves the file and comes back, without a run in between; its rows change meanwhile."""
    shop.read()
    changed(shop, without_tags).apply()
    shop.execute("DELETE FROM image_tags WHERE tag_id = 2", "INSERT INTO image_tags VALUES (1, 9)")
    other = changed(shop, lambda declaration: None)
    other.apply()
    finish(other)
    return other


def test_a_table_that_leaves_the_file_and_comes_back(shop: Shop) -> None:
    other = away_and_back(shop)
    assert other.current() == other.rows(TRUTH)


def test_a_table_that_leaves_drops_out_of_the_mark(shop: Shop) -> None:
    shop.read()
    other = changed(shop, without_tags)
    other.apply()
    other.read()
    assert set(states(other)) == {"public.images", "public.posts"}
    assert all(state == "complete" for state in states(other).values())


def disabled_and_applied(shop: Shop) -> None:
    shop.read()
    shop.execute("ALTER TABLE images DISABLE TRIGGER USER; UPDATE images SET url = 'unseen'; DELETE FROM images")
    shop.execute("INSERT INTO images VALUES (77, 'unseen')")
    shop.apply()
    finish(shop)


def test_what_a_disabled_trigger_missed_is_loaded_after_apply(shop: Shop) -> None:
    disabled_and_applied(shop)
    assert shop.current() == shop.rows(TRUTH)


@pytest.mark.parametrize("scenario", [disabled_and_applied, away_and_back])
def test_an_apply_that_does_not_look_for_gaps_is_seen(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Shop], Shop | None]
) -> None:
    loads_of = declared.loads_of
    monkeypatch.setattr(
        "penstock.sources.outbox.source.loads_of", lambda entity, tables, since: loads_of(entity, tables, {})
    )
    other = scenario(shop) or shop
    assert other.current() != other.rows(TRUTH)


def test_apply_without_a_difference_loads_nothing(shop: Shop) -> None:
    shop.read()
    assert shop.apply() == ()
    assert shop.read() == 0


def test_a_table_that_is_made_again_while_it_is_loaded(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sources.outbox.load.planning.PART_BYTES", 1)
    few = Budget(1 << 20, rows=10)
    shop.read(budget=few, most=1)
    source = shop.source()
    content, last = source.content("images"), shop.last["images"]
    ceiling = source.ceiling("images", content, "run")
    assert ceiling is not None
    planned = source.plan("images", content, last.mark, ceiling, few)
    assert planned is not None
    slice_ = following(last, pipeline="shop", stream="images", upto=planned.upto, content=content, plan=planned.plan)
    shop.execute(
        "DROP TABLE image_tags, images",
        SCHEMA.partition(";")[2],
        "ALTER TABLE images ADD note text",
        "INSERT INTO images VALUES (500, 'of the new table', 2)",
    )
    with pytest.raises(StreamFailed, match="dropped and created again") as no:
        deliver(source, slice_)
    assert "penstock state recover FILE --stream images" in no.value.next_step
    with pytest.raises(StreamRefused, match="are not those of the pipeline file"):
        shop.read()
    shop.apply()
    finish(shop)
    assert [row[0] for row in shop.current()] == [500]
    assert shop.current() == shop.rows(TRUTH)


def test_a_reset_removes_what_is_gone(shop: Shop) -> None:
    """A stream that begins again over an old state: what was deleted unseen goes."""
    shop.read()
    shop.execute("ALTER TABLE images DISABLE TRIGGER USER", "DELETE FROM images WHERE id = 7")
    shop.apply()
    last = shop.last["images"]
    shop.last["images"] = Position(last.number + 1, "reset", None, last.content)
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)


def test_a_mark_without_loads_loads_everything(shop: Shop) -> None:
    """The form of a mark before there were first loads; and one that is neither."""
    changes = Shop(shop.url, {"images": IMAGES}, keep_hours=0)
    changes.read(prepared=lambda: changes.execute("UPDATE images SET url = 'seen' WHERE id = 2"))
    last = changes.last["images"]
    document = mark_of(changes).document
    assert document.pop("loads") == []
    assert document.pop("load_slices") == 0
    shop.last["images"] = Position(last.number, last.id, Mark.of(document), last.content)
    shop.documents = changes.documents
    finish(shop)
    assert shop.current() == shop.rows(TRUTH)
    almost = {**OutboxMark.of(mark_of(shop)).loads[0].document(), "state": "almost"}
    wrongs: list[Any] = [[1], [{}], [almost]]
    for wrong in wrongs:
        with pytest.raises(StreamRefused, match="is not one of an outbox"):
            OutboxMark.of(Mark.of({**mark_of(shop).document, "loads": wrong}))


def test_only_changes_from_now_on(shop: Shop) -> None:
    changes = Shop(shop.url, {"images": IMAGES}, keep_hours=0)
    assert changes.read() == 0
    changes.execute("UPDATE images SET url = 'seen' WHERE id = 2")
    assert changes.read() == 1
    assert mark_of(changes).document["loads"] == []
    assert changes.folded() == State(early=changes.folded().early, early_since=changes.folded().early_since)


def test_two_pipelines_load_from_one_outbox(shop: Shop) -> None:
    other = Shop(shop.url, pipeline="other", first_load=True, keep_hours=0)
    other.apply()
    shop.read(budget=Budget(1 << 20, rows=20), most=2)
    other.read(meanwhile=lambda: shop.execute("UPDATE images SET url = url || '+' WHERE id % 5 = 0"))
    for each in (shop, other):
        finish(each)
        assert each.current() == each.rows(TRUTH)


@pytest.mark.parametrize(
    "gap",
    [
        "ALTER TABLE posts DISABLE TRIGGER USER; DELETE FROM posts WHERE id = 1",
        "ALTER TABLE images DROP CONSTRAINT images_post_id_fkey; DROP TABLE posts; "
        "CREATE TABLE posts (id bigint PRIMARY KEY, title text, nsfw boolean NOT NULL DEFAULT false);"
        "INSERT INTO posts VALUES (2, 'of the new table')",
    ],
    ids=["disabled", "made again"],
)
def test_a_gap_that_another_pipeline_closed(shop: Shop, gap: str) -> None:
    """The other one applies its triggers; this one finds nothing to apply, and loads the table all the same."""
    other = Shop(shop.url, pipeline="other", first_load=True, keep_hours=0)
    other.apply()
    for each in (shop, other):
        each.read()
    before = len(shop.documents["images"])
    shop.execute("ALTER TABLE images DROP CONSTRAINT images_post_id_fkey" if "DISABLE" in gap else "SELECT", gap)
    other.apply()
    assert shop.compare().changes == ()
    for each in (shop, other):
        finish(each)
        assert each.current() == each.rows(TRUTH)
    assert set(tables_read(shop, before)) == {"public.posts"}


# ------------------------------------------------------------ by which columns

STATS = """
CREATE TABLE stats (id int PRIMARY KEY, image_id bigint NOT NULL UNIQUE, views int);
INSERT INTO stats SELECT n, n, n FROM generate_series(1, 30) n
"""


def with_stats(declaration: Declaration) -> None:
    declaration["direct"].append({"table": "stats", "key": "image_id", "columns": ["views"]})


def move(shop: Shop) -> None:
    """The last row gets the first number: no field changes, so the outbox says nothing."""
    shop.execute("UPDATE stats SET id = 0 WHERE id = 30")


def load_stats(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    shop.execute(STATS)
    other = changed(shop, with_stats)
    other.apply()
    budget = Budget(1 << 20, rows=10)
    while states(other).get("public.stats") != "loading" if other.last else True:
        assert other.read(budget=budget, most=1)
    move(other)
    finish(other)
    return [scalars.get("views") for _, scalars, _ in other.current()]


def test_a_row_that_moves_without_a_word(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_stats(shop, monkeypatch) == list(range(1, 31))


def test_ranges_of_the_primary_key_would_lose_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "penstock.sources.outbox.load.planning.choose_columns",
        lambda run, load: ("id",) if str(load.table) == "public.stats" else choose_columns(run, load),
    )
    monkeypatch.setattr(
        "penstock.sources.outbox.load.planning.types_of", lambda load, columns: ["bigint"] * len(columns)
    )
    assert load_stats(shop, monkeypatch) == [*range(1, 30), None]

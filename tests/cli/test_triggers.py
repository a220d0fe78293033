"""`penstock triggers`: plan prints SQL that does what apply does, status tells drift, drop asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.harness.faults import Command, Outcome
from tests.sources.outbox.shops import IMAGES, SCHEMA
from tests.sources.tables import execute, rows

FILE = """\
pipelines:
  images:
    source: {{type: outbox, url: "{url}"}}
    sink: {{type: files, directory: out}}
    streams: {streams}
  shop:
    source: {{type: postgres, url: "{url}"}}
    sink: {{type: files, directory: out}}
"""
TRIGGERS = "SELECT tgrelid::regclass::text, tgname, tgenabled::text FROM pg_trigger WHERE tgname LIKE 'penstock%'"


class Shop:
    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.command = url, Command(folder)
        execute(url, SCHEMA)
        (folder / "shop.yaml").write_text(FILE.format(url=url, streams=json.dumps({"images": IMAGES})))

    def triggers(self, verb: str, *words: str, code: int = 0) -> Outcome:
        done = self.command.run("triggers", verb, "shop.yaml", "--pipeline", "images", *words)
        assert done.code == code, done.out + done.err
        return done


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Shop:
    return Shop(database, tmp_path)


def test_the_sql_of_a_plan_does_what_apply_does(shop: Shop) -> None:
    planned = shop.triggers("plan").out
    assert "-- create trigger penstock_" in planned
    assert rows(shop.url, TRIGGERS) == [], "a plan changes nothing"
    execute(shop.url, *(f"BEGIN; {planned}; COMMIT",))
    made = sorted(rows(shop.url, TRIGGERS))
    assert len(made) == 6
    assert "The triggers in the database are those of the file." in shop.triggers("plan").out
    assert "made" not in shop.triggers("apply").out
    assert sorted(rows(shop.url, TRIGGERS)) == made


def test_apply_says_what_it_did_and_status_what_differs(shop: Shop) -> None:
    assert "outbox in schema penstock_outbox: it does not exist" in shop.triggers("status", code=2).out
    applied = shop.triggers("apply").out
    assert "create outbox in schema penstock_outbox: it does not exist" in applied
    assert applied.splitlines()[-1] == "images: made 10 changes to the triggers of 3 tables"
    fine = shop.triggers("status").out
    assert fine.splitlines()[:3] == [f"public.{name}: as in the file" for name in ("image_tags", "images", "posts")]
    execute(shop.url, "ALTER TABLE images DISABLE TRIGGER ALL; INSERT INTO posts VALUES (1)")
    said = shop.triggers("status", code=2).out
    assert "public.images: 2 differences" in said
    assert "on public.images: it is disabled" in said
    assert "images: no pipeline reads it" in said
    document = json.loads(shop.triggers("status", "--json", code=2).out)
    assert [each["what"] for each in document["changes"]] == ["enable", "enable"]
    assert document["outbox"]["unread"] == ["images"]
    assert document["outbox"]["blocker"] is None


def test_drop_asks_first_and_leaves_nothing(shop: Shop) -> None:
    shop.triggers("apply")
    execute(shop.url, "INSERT INTO posts VALUES (1)")
    asked = shop.triggers("drop", code=2)
    assert "images: the triggers on public.image_tags, public.images, public.posts are dropped." in asked.out
    assert "The outbox is dropped, with about" in asked.out
    assert "add --yes to the command" in asked.err
    assert len(rows(shop.url, TRIGGERS)) == 6
    shop.triggers("drop", "--yes")
    assert rows(shop.url, TRIGGERS) == []
    assert rows(shop.url, "SELECT to_regclass('penstock_outbox.outbox')") == [(None,)]
    assert "there is nothing to drop" in shop.triggers("drop", "--yes").out


def test_drop_of_one_table_and_of_a_pipeline_that_is_gone(shop: Shop) -> None:
    shop.triggers("apply")
    gone = "INSERT INTO penstock_outbox.{} SELECT 'gone', {} FROM penstock_outbox.{}"
    execute(
        shop.url,
        gone.format(
            "triggers", "relation, relation_oid, function, applied_at", "triggers WHERE relation <> 'public.posts'"
        ),
        "INSERT INTO penstock_outbox.consumers VALUES ('gone', 'images', 1, 0, now() - interval '2 days')",
        "INSERT INTO posts VALUES (1)",
    )
    said = shop.triggers("status").out
    assert "if it is gone, `penstock triggers drop FILE --of gone` removes its registration" in said
    asked = shop.triggers("drop", "--table", "posts", "--table", "images", code=2).out
    assert asked.splitlines() == [
        "images: the triggers on public.posts are dropped.",
        "images: the triggers on public.images stay: gone use them.",
    ]
    shop.triggers("drop", "--table", "posts", "--table", "images", "--yes")
    assert len(rows(shop.url, TRIGGERS)) == 4
    assert "public.posts: 3 differences" in shop.triggers("status", code=2).out
    no = shop.triggers("drop", "--table", "post", code=2).err
    assert "pipeline 'images' has no triggers on public.post; tables: public.image_tags" in no
    no = shop.triggers("drop", "--of", "goen", code=2).err
    assert "no pipeline 'goen' uses the outbox; did you mean 'gone'?" in no
    asked = shop.triggers("drop", "--of", "gone", code=2).out
    assert asked.splitlines() == [
        "gone: the triggers on public.images are dropped.",
        "gone: the triggers on public.image_tags stay: images use them.",
        "gone: its registration for images is removed.",
        "The outbox stays: images use it.",
    ]
    assert "gone: made 3 changes" in shop.triggers("drop", "--of", "gone", "--yes").out
    assert rows(shop.url, "SELECT pipeline, relation FROM penstock_outbox.triggers") == [
        ("images", "public.image_tags")
    ]


def test_a_pipeline_that_is_not_filled_by_triggers(shop: Shop) -> None:
    done = shop.command.run("triggers", "plan", "shop.yaml", "--pipeline", "shop")
    assert done.code == 2
    assert "pipeline 'shop' has a source of type postgres: only an outbox is filled by triggers" in done.err
    unnamed = shop.command.run("triggers", "plan", "shop.yaml")
    assert "penstock triggers plan shop.yaml --pipeline images" in unnamed.err


def test_a_run_before_apply_says_what_to_do(shop: Shop) -> None:
    done = shop.command.run("run", "shop.yaml", "images")
    assert done.code == 2
    assert "there is no outbox in schema penstock_outbox" in done.out + done.err
    assert "penstock triggers apply shop.yaml --pipeline images" in done.out + done.err

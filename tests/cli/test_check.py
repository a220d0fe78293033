"""`penstock check`: what a run would find, stream by stream, and which guarantee each has. Writes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.acceptance.shop import Shop
from tests.cli.looked import Looking, document, rows, tree
from tests.harness.faults import Outcome

from penstock.cli.check.text import split_statements

KEYED = """
pipelines:
  shop:
    source: {{type: postgres, url: "${{DATABASE_URL}}"}}
    sink: {sink}
    streams:
      orders: {{cursor: updated_at, tiebreaker: id, {stream}}}
"""
SECOND = "      orders: {cursor: updated_at, tiebreaker: id}\n"


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Shop:
    return Shop.open(database, tmp_path, rows=50)


def check(shop: Shop, *words: str) -> Outcome:
    """The command; proves that it changed nothing."""
    before, had = tree(shop.folder), rows(shop.url)
    done = Looking(shop.folder, shop.url).run("check", "shop.yaml", *words)
    assert (tree(shop.folder), rows(shop.url)) == (before, had)
    return done


def streams(done: Outcome) -> dict[str, dict[str, Any]]:
    [pipeline] = document(done)["pipelines"]
    return {stream["stream"]: stream for stream in pipeline["streams"]}


def test_a_stream_that_is_fine_has_its_guarantees_and_gaps(shop: Shop) -> None:
    done = check(shop, "--json")
    assert done.code == 0, done.err
    found = streams(done)["orders"]
    assert (found["how"], found["order"]) == ("by updated_at, id", ["updated_at", "id"])
    said = {(remark["side"], remark["kind"]) for remark in found["remarks"]}
    assert said >= {("source", "guarantee"), ("source", "gap"), ("sink", "guarantee"), ("sink", "gap")}
    texts = " ".join(remark["text"] for remark in found["remarks"])
    assert "delivered exactly once" in texts
    assert "deletes are not seen" in texts
    assert "commits late" in texts
    assert str(shop.folder / "out" / "orders") in texts


def test_the_same_as_text(shop: Shop) -> None:
    done = check(shop)
    assert done.code == 0
    assert "✓ orders: by updated_at, id, 5 columns; not started" in done.out
    assert "! deletes are not seen" in done.out
    assert "delivered exactly once" not in done.out, "short unless it is asked for more"
    assert "1 stream can be synced; --verbose shows 2 guarantees and 1 piece of advice" in done.out
    assert "store: none at" in done.out
    assert done.out.endswith("Next: penstock run shop.yaml\n")


def test_statements_stand_on_lines_of_their_own(shop: Shop) -> None:
    text = check(shop, "--verbose").out
    assert "✓ every row that is visible in the stream's order is delivered exactly once" in text
    advice, function, trigger = text[text.index("· so that this is proven:") :].splitlines()[:3]
    assert advice == "· so that this is proven:"
    assert function.strip().startswith("CREATE OR REPLACE FUNCTION")
    assert function.endswith("$$;")
    assert trigger.strip().startswith("CREATE TRIGGER")


@pytest.mark.parametrize(
    ("text", "words", "statements"),
    [
        ("set `table: orders`", "set `table: orders`", []),
        ("GRANT SELECT ON a TO b;", "run this:", ["GRANT SELECT ON a TO b;"]),
        ("run as its owner: ALTER TABLE a; GRANT b;", "run as its owner:", ["ALTER TABLE a;", "GRANT b;"]),
        ("ALTER ROLE a BYPASSRLS; or set `b`", "run this, or set `b`:", ["ALTER ROLE a BYPASSRLS;"]),
        ("x: CREATE FUNCTION f() AS $$ a; b; $$; then y", "x, then y:", ["CREATE FUNCTION f() AS $$ a; b; $$;"]),
    ],
)
def test_statements_apart_from_words(text: str, words: str, statements: list[str]) -> None:
    assert split_statements(text) == (words, statements)


def test_types_that_become_strings_and_rows_that_stay_are_said(shop: Shop) -> None:
    """Of a row that leaves `where`, a sink that keeps one row for each key keeps the last version."""
    strings = "strings here, of another type at the source: ref (uuid), took (interval)"
    stays = "a row that no longer meets `where` after an update is not delivered: its last version stays"
    with psycopg.connect(shop.url, autocommit=True) as db:
        db.execute("ALTER TABLE orders ADD ref uuid, ADD took interval, ADD short varchar(5)")
    file = shop.folder / "shop.yaml"
    assert strings in check(shop).out
    looking = Looking(shop.folder, shop.url)
    with psycopg.connect(shop.url, autocommit=True) as db:
        db.execute("CREATE SCHEMA copies")
    for sink, mode in (
        ('{type: postgres, url: "${DATABASE_URL}"}', "into: copies.orders"),
        ("{type: lake}", "mode: merge"),
    ):
        for where in ("id > 5", None):
            file.write_text(KEYED.format(sink=sink, stream=f"{mode}, where: {where}" if where else mode))
            found = looking.run("check", "shop.yaml")
            assert found.code == 0, found.out
            assert (stays in found.out) is (where is not None)
            assert (strings in found.out) is ("lake" in sink), "Postgres has the source's own types"
    file.write_text(KEYED.format(sink=sink, stream=f'{mode}, shape: {{where: "id > 5"}}'))
    assert stays in looking.run("check", "shop.yaml").out


def test_it_goes_on_after_a_stream_that_is_refused(shop: Shop) -> None:
    file = shop.folder / "shop.yaml"
    more = "      gone: {table: ordres}\n      wrong: {table: orders, cursor: updatet_at, tiebreaker: id}\n"
    file.write_text(file.read_text() + more)
    done = check(shop, "--json")
    found = streams(done)
    assert done.code == document(done)["exit_code"] == 2
    assert found["orders"]["problem"] is None
    assert "did you mean public.orders?" in found["gone"]["problem"]["what"]
    assert "did you mean 'updated_at'?" in found["wrong"]["problem"]["what"]
    text = check(shop).out
    assert "✗ gone: there is no table public.ordres" in text
    assert "    Next: set `table: public.orders`" in text
    assert "1 stream can be synced, 2 cannot" in text


ALL_AT_ONCE = {
    "files": (
        "{type: files, directory: out, format: csv}",
        "partition_by: [day(amount)]",
        (
            "partition 'day(amount)': column 'amount' is",
            "column 'photo' is binary, which csv cannot hold exactly",
            "column 'tags' is list<string>, which csv cannot hold exactly",
            "holds a full refresh (`current`), and slices beside it would show readers both",
        ),
    ),
    "lake": (
        "{type: lake}",
        "mode: merge, key: [idd, custmer], newer_than: tags",
        (
            "the column name '_ingest_seq' is reserved by the lake",
            "key names the column 'idd', which the stream does not have",
            "key names the column 'custmer', which the stream does not have",
            "`newer_than` is the column 'tags' of type list<string>, whose values have no order",
        ),
    ),
}


@pytest.mark.parametrize("name", ALL_AT_ONCE)
def test_all_that_is_wrong_with_a_stream_is_listed_at_once(shop: Shop, name: str) -> None:
    sink, stream, wrong = ALL_AT_ONCE[name]
    with psycopg.connect(shop.url, autocommit=True) as db:
        db.execute("ALTER TABLE orders ADD photo bytea, ADD tags text[], ADD _ingest_seq int")
    folder = shop.folder / "out" / "orders"
    folder.mkdir(parents=True)
    (folder / "current").symlink_to(".")
    (shop.folder / "shop.yaml").write_text(KEYED.format(sink=sink, stream=stream))
    done = check(shop, "--json")
    assert done.code == 2
    problems = [problem["what"] for problem in streams(done)["orders"]["problems"]]
    assert [text for text in wrong if not any(text in problem for problem in problems)] == []
    assert len(problems) == len(wrong)


def test_a_database_that_does_not_answer_is_3_and_keeps_its_password(shop: Shop) -> None:
    url = "postgresql://ann:hunter2@127.0.0.1:1/shop"
    done = Looking(shop.folder, url).run("check", "shop.yaml")
    assert done.code == 3
    assert "127.0.0.1:1" in done.out
    assert "hunter2" not in done.out + done.err


def test_a_store_that_does_not_belong_to_the_sink_is_1_with_the_way_out(shop: Shop) -> None:
    assert shop.command.run("run", "shop.yaml").code == 0
    shutil.rmtree(shop.folder / ".penstock")
    done = check(shop)
    assert done.code == 1
    assert "✗ orders: the store knows nothing of this stream" in done.out
    assert "penstock state recover shop.yaml --stream orders" in done.out


def test_a_mark_that_does_not_fit_any_more_is_refused(shop: Shop) -> None:
    assert shop.command.run("run", "shop.yaml").code == 0
    file = shop.folder / "shop.yaml"
    file.write_text(file.read_text().replace(SECOND, "      orders: {cursor: id, unique: true}\n"))
    done = check(shop, "--json")
    assert done.code == 2
    assert "penstock state reset shop.yaml --stream orders" in streams(done)["orders"]["problem"]["next_step"]


def test_a_store_that_cannot_be_read_is_told_and_the_streams_all_the_same(shop: Shop) -> None:
    store = shop.folder / ".penstock" / "store.db"
    store.parent.mkdir()
    store.write_text("not a store")
    done = check(shop)
    assert done.code == 2
    assert "orders: by updated_at, id" in done.out
    assert "store: " in done.out
    assert "is not a SQLite database" in done.out


def test_who_holds_the_pipeline_is_named(shop: Shop) -> None:
    with shop.command.frozen("run", "shop.yaml", point="gate.moved") as running:
        found = document(Looking(shop.folder, shop.url).run("check", "shop.yaml", "--json"))
    assert running.end().code == 0
    assert found["pipelines"][0]["held_by"]["pid"] == running.process.pid
    assert found["pipelines"][0]["held_by"]["state"] == "running"
    assert found["exit_code"] == 0


def test_what_is_said_of_many_streams_is_said_once(shop: Shop) -> None:
    file = shop.folder / "shop.yaml"
    more = "".join(f"      copy{n}: {{table: orders, cursor: updated_at, tiebreaker: id}}\n" for n in range(4))
    file.write_text(file.read_text() + more)
    text = check(shop).out
    assert text.count("deletes are not seen") == 1
    assert "For orders, copy0, copy1, copy2, copy3:" in text


def test_an_override_is_checked_as_the_file_is(shop: Shop) -> None:
    done = check(shop, "--set", "streams.orders.cursor=nothing")
    assert done.code == 2
    assert "has no column nothing" in done.out


def test_a_lake_that_is_not_there_yet_is_not_made_by_a_look(shop: Shop) -> None:
    sets = ("--set", "sink={type: lake, warehouse: lake}")
    done = check(shop, *sets)
    assert done.code == 0, done.out + done.err
    assert not (shop.folder / "lake").exists()

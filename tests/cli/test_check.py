"""`penstock check`: what a run would find, stream by stream, and which guarantee each has. Writes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.shop import Shop
from tests.cli.looked import Looking, document, rows, tree

from penstock.testing.faults import Outcome

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
    assert "✓ orders: by updated_at, id, 5 columns; not begun" in done.out
    assert "! deletes are not seen" in done.out
    assert "store: there is none at" in done.out
    assert done.out.endswith("Next: penstock run shop.yaml\n")


def test_it_goes_on_after_a_stream_that_is_refused(shop: Shop) -> None:
    file = shop.folder / "shop.yaml"
    more = "      gone: {table: ordres}\n      wrong: {table: orders, cursor: updatet_at, tiebreaker: id}\n"
    file.write_text(file.read_text() + more)
    done = check(shop, "--json")
    found = streams(done)
    assert done.code == document(done)["exit_code"] == 2
    assert found["orders"]["problem"] is None
    assert "did you mean public.orders?" in found["gone"]["problem"]["what"]
    assert "did you mean updated_at?" in found["wrong"]["problem"]["what"]
    text = check(shop).out
    assert "✗ gone: there is no table public.ordres" in text
    assert "    Next: set `table: public.orders`" in text
    assert "1 stream can be synced, 2 cannot" in text


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

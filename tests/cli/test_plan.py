"""`penstock plan`: says what a run would do, does nothing itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import psycopg
from tests.acceptance.shop import Shop
from tests.cli.looked import Looking, document, rows, tree


def plan(shop: Shop, *words: str, code: int = 0) -> dict[str, Any]:
    """The plan of the orders; proves that nothing was changed by it."""
    before, had = tree(shop.folder), rows(shop.url)
    done = Looking(shop.folder, shop.url).run("plan", "shop.yaml", "--json", *words)
    assert done.code == code, done.err
    assert (tree(shop.folder), rows(shop.url)) == (before, had)
    [pipeline] = document(done)["pipelines"]
    [stream] = pipeline["streams"]
    assert isinstance(stream, dict)
    return stream


def counted(stream: dict[str, Any]) -> dict[str, Any]:
    """What is left, without the words for what that rests on."""
    left = dict(stream["left"])
    assert left.pop("proven") is False
    assert "assumed" in left.pop("horizon")
    return left


def test_the_slices_ahead_are_all_rows_each_once(database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=3000)
    stream = plan(shop, "--slices", "100")
    slices = stream["slices"]
    assert len(slices) > 2
    assert sum(slice_["rows"] for slice_ in slices) == 3000
    assert all(before["upto"] == after["after"] for before, after in zip(slices, slices[1:], strict=False))
    assert [slice_["slice"] for slice_ in slices] == list(range(1, len(slices) + 1))
    assert counted(stream) == {"rows": 3000, "exact": True, "held_back": None, "blocker": None}
    assert not stream["more"]
    assert plan(shop, "--slices", "2")["more"]


def test_the_next_slice_is_the_one_that_a_run_then_moves(database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=3000)
    for number in (1, 2):
        [ahead] = plan(shop, "--slices", "1")["slices"]
        shop.command.kill_at("gate.intended", "run", "shop.yaml")
        opened = plan(shop)["open"]
        assert (opened["slice"], opened["upto"], opened["rows"]) == (ahead["slice"], ahead["upto"], ahead["rows"])
        assert shop.command.run("run", "shop.yaml").code == 0
        shop.change(3, number)


def test_after_a_run_nothing_is_new_and_a_change_is(database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=500)
    assert shop.command.run("run", "shop.yaml").code == 0
    stream = plan(shop)
    assert (stream["slices"], stream["left"], stream["open"]) == ([], None, None)
    shop.change(10, 1)
    assert counted(plan(shop)) == {"rows": 50, "exact": True, "held_back": None, "blocker": None}
    text = Looking(tmp_path, database).run("plan", "shop.yaml").out
    assert "50 rows to read" in text
    assert "slice " in text


def test_an_open_slice_comes_first_and_the_others_after_it(database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=3000)
    shop.command.kill_at("gate.moved", "run", "shop.yaml", nth=2)
    stream = plan(shop, "--slices", "100")
    opened, slices = stream["open"], stream["slices"]
    assert opened["slice"] == 2
    assert slices[0]["slice"] == 3
    assert slices[0]["after"] == opened["upto"]
    done = sum(slice_["rows"] for slice_ in slices) + opened["rows"]
    assert 0 < done < 3000
    assert "slice 2 is open and is finished first" in Looking(tmp_path, database).run("plan", "shop.yaml").out


def test_a_lost_sink_is_told_and_nothing_is_stopped_by_looking(database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=500)
    assert shop.command.run("run", "shop.yaml").code == 0
    shutil.rmtree(tmp_path / "out")
    stream = plan(shop, code=1)
    problem = stream["problem"]
    assert "the sink is behind the store" in problem["what"]
    assert "penstock state recover shop.yaml" in problem["next_step"]
    assert stream["slices"] == []


def test_a_reset_that_is_wanted_is_planned_from_the_beginning(database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=500)
    assert shop.command.run("run", "shop.yaml").code == 0
    shop.command.kill_at("engine.reset_wanted", "state", "reset", "shop.yaml", "--stream", "orders", "--yes")
    stream = plan(shop)
    assert stream["reset_wanted"]
    assert counted(stream) == {"rows": 500, "exact": True, "held_back": None, "blocker": None}


def test_a_table_that_is_read_whole_is_one_slice(database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=500)
    file = tmp_path / "shop.yaml"
    file.write_text(file.read_text().replace("{cursor: updated_at, tiebreaker: id}", "{}"))
    stream = plan(shop)
    [slice_] = stream["slices"]
    assert (slice_["upto"], slice_["rows"], slice_["exact"]) == ("the whole table", 500, False)
    assert "~500 rows" in Looking(tmp_path, database).run("plan", "shop.yaml").out


def test_a_refused_stream_says_why(database: str, tmp_path: Path) -> None:
    shop = Shop.open(database, tmp_path, rows=10)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("ALTER TABLE orders RENAME COLUMN updated_at TO changed_at")
    problem = plan(shop, code=2)["problem"]
    assert "has no column updated_at" in problem["what"]


def test_an_unknown_stream_is_refused_with_the_nearest(database: str, tmp_path: Path) -> None:
    Shop.open(database, tmp_path, rows=10)
    done = Looking(tmp_path, database).run("plan", "shop.yaml", "--stream", "order")
    assert done.code == 2
    assert "there is no stream 'order'; did you mean 'orders'?" in done.out

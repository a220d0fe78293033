"""`penstock state history`, `undo` and `reset` with a source in memory, a real store and a real folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.harness.doubles import LoopMover, MemorySource, Rows
from typer.testing import CliRunner, Result

from penstock import wiring
from penstock.cli import app
from penstock.core.marks import Mark
from penstock.errors import ConnectionFailed

FILE = """\
pipelines:
  shop:
    source: {type: postgres, url: "postgresql://db/x"}
    sink: {type: files, directory: out, format: ndjson}
    streams: {orders: {}, items: {}}
"""
STAYS = "Rows delivered so far stay in the sink.\n"
TWICE = "The files sink appends: rows delivered again are duplicated.\n"
ON = ", the mark at version"


class Places(MemorySource):
    """Says the beginning as other sources do."""

    def describe(self, mark: Mark | None) -> str:
        return super().describe(mark) if mark else "the beginning"


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Rows]:
    """Streams of five and of three rows, two a slice, all delivered."""
    streams = {"orders": Rows(), "items": Rows()}
    for name, count in (("orders", 5), ("items", 3)):
        for key in range(count):
            streams[name].arrive(key)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wiring, "build_source", lambda *_, **__: Places(streams))
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    Path("shop.yaml").write_text(FILE)
    assert penstock("run", "shop.yaml").exit_code == 0
    return streams


def penstock(*words: str) -> Result:
    return CliRunner().invoke(app, words, prog_name="penstock")


def undo(*words: str) -> Result:
    return penstock("state", "undo", "shop.yaml", "--stream", "orders", *words)


def delivered(stream: str = "orders") -> list[int]:
    lines = [line for path in Path("out", stream).iterdir() for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["place"] for line in lines)


def history(*words: str) -> dict[str, Any]:
    done = penstock("state", "history", "shop.yaml", "--json", *words)
    assert done.exit_code == 0, done.stderr
    (pipeline,) = json.loads(done.stdout)["pipelines"]
    return {stream["stream"]: stream["changes"] for stream in pipeline["streams"]}


# ---------------------------------------------------------------- history


def test_history_lists_every_change_newest_first_and_how_to_undo(rows: dict[str, Rows]) -> None:
    done = penstock("state", "history", "shop.yaml", "--stream", "orders")
    assert (done.exit_code, done.stderr) == (0, "")
    first, *changes, last = done.stdout.splitlines()
    assert (first, last) == (
        "shop/orders:",
        "To go back to an earlier mark: penstock state undo shop.yaml --stream orders --to 2",
    )
    told = [line.split("UTC")[1].split("; run")[0] for line in changes]
    assert told == [
        "  advance, slice 3, 1 row; mark: place 5",
        "  advance, slice 2, 2 rows; mark: place 4",
        "  advance, slice 1, 2 rows; mark: place 2",
    ]
    assert [line.split()[1] for line in changes] == ["3", "2", "1"]


def test_history_for_machines(rows: dict[str, Rows]) -> None:
    found = history("--most", "1")
    assert list(found) == ["orders", "items"]
    (change,) = found["orders"]
    assert (change["version"], change["reason"], change["slice"], change["rows"]) == (3, "advance", 3, 1)
    assert (change["mark"], change["mark_in_words"]) == ({"place": 5}, "place 5")
    assert change["run"] == history()["items"][0]["run"]
    undo("--yes")
    assert [c["reason"] for c in history("--stream", "orders")["orders"]] == ["undo", *["advance"] * 3]


def test_history_of_what_is_not_there(rows: dict[str, Rows]) -> None:
    done = penstock("state", "history", "shop.yaml", "--stream", "order")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no stream 'order'; did you mean 'orders'?")
    Path("other.yaml").write_text("store: elsewhere.db\n" + FILE)
    done = penstock("state", "history", "other.yaml")
    assert (done.exit_code, done.stdout.split(" at ")[0]) == (0, "There is no store")
    assert not Path("elsewhere.db").exists()


def test_history_of_a_stream_that_has_not_begun(rows: dict[str, Rows]) -> None:
    Path("shop.yaml").write_text(FILE.replace("items: {}", "items: {}, notes: {}"))
    done = penstock("state", "history", "shop.yaml", "--stream", "notes")
    assert done.stdout == "shop/notes: no changes yet\n"


# ---------------------------------------------------------------- undo


def test_undo_says_how_many_rows_come_again_and_goes_there(rows: dict[str, Rows]) -> None:
    done = undo("--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(
        f"shop/orders: from 'place 5' to 'place 4'{ON} 2; the next run delivers 1 row again\n{STAYS}{TWICE}"
    )
    assert penstock("run", "shop.yaml").exit_code == 0
    assert (delivered(), delivered("items")) == ([1, 2, 3, 4, 5, 5], [1, 2, 3])


def test_undo_to_a_version_counts_all_since_then(rows: dict[str, Rows]) -> None:
    done = undo("--to", "1")
    assert done.exit_code == 2
    assert done.stdout == (
        f"shop/orders: from 'place 5' to 'place 2'{ON} 1; the next run delivers 3 rows again\n{STAYS}{TWICE}"
    )
    assert "there is no terminal to ask on" in done.stderr
    assert history("-s", "orders")["orders"][0]["version"] == 3


def test_undo_of_a_reset_says_that_nothing_is_read_again(rows: dict[str, Rows]) -> None:
    assert penstock("state", "reset", "shop.yaml", "--stream", "orders", "--yes").exit_code == 0
    done = undo("--yes")
    assert done.stdout.startswith(
        f"shop/orders: from 'the beginning' to 'place 5'{ON} 3; "
        f"nothing is read again: everything up to there was delivered\n{STAYS}shop: "
    )
    assert penstock("run", "shop.yaml").exit_code == 0
    assert delivered() == [1, 2, 3, 4, 5]


def test_undo_of_a_rewind_and_of_an_undo(rows: dict[str, Rows]) -> None:
    penstock("rewind", "shop.yaml", "--to", "1", "--stream", "orders", "--yes")
    assert "nothing is read again" in undo("--yes").stdout
    assert f"from 'place 5' to 'place 1'{ON} 4; the next run delivers the rows after it again" in undo("--yes").stdout
    assert "nothing is read again" in undo("--yes").stdout
    assert "from 'place 5' to 'place 4'" in undo("--to", "2", "--yes").stdout
    again = undo("--to", "2", "--yes")
    assert again.stdout.startswith("shop/orders: the mark is already that of version 2: place 4\n")
    assert "shop/orders: is at that place already\n" in again.stdout


def test_undo_where_something_is_open(rows: dict[str, Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    rows["orders"].arrive(6)

    class Broken(LoopMover):
        def move(self, *_: Any) -> Any:
            raise OSError("the worker died")

    with monkeypatch.context() as patch:
        patch.setattr(wiring, "make_mover", lambda *_, **__: Broken())
        assert penstock("run", "shop.yaml").exit_code == 1
        done = undo()
        assert done.stdout.startswith(
            f"shop/orders: slice 4 is open and is finished first; from 'place 6' to 'place 5'{ON} 3; "
            "the next run delivers the rows after it again\n"
        )
        assert penstock("state", "reset", "shop.yaml", "--stream", "orders", "--yes").exit_code == 1
    done = undo("--yes")
    assert done.stdout.startswith(
        "shop/orders: slice 4 is open and is finished first; a reset was requested and is carried out first; "
        f"from 'the beginning' to 'place 6'{ON} 4; nothing is read again"
    )
    assert done.exit_code == 0
    assert penstock("run", "shop.yaml").exit_code == 0
    assert delivered() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("words", "what", "step"),
    [
        (["--to", "0"], "it was at its beginning then", "`penstock state reset shop.yaml --stream orders` reads"),
        (["--to", "9"], "there is none; the newest is 3", "`penstock state history shop.yaml --stream orders` lists"),
    ],
)
def test_undo_that_is_refused_asks_nothing(rows: dict[str, Rows], words: list[str], what: str, step: str) -> None:
    done = undo(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: shop/orders: it cannot go back to version {words[1]}: {what}\n")
    assert f"Next: {step}" in done.stderr


def test_undo_in_another_source_is_refused(rows: dict[str, Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "build_source", lambda *_, **__: Places(rows, identity="elsewhere"))
    done = undo("--yes")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: shop/orders: another source\n")


def test_undo_of_a_stream_or_store_that_is_not_there(rows: dict[str, Rows]) -> None:
    done = penstock("state", "undo", "shop.yaml", "--stream", "order", "--yes")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: shop: there is no stream 'order'; did you mean 'orders'?")
    done = penstock("state", "undo", "shop.yaml", "--stream", "orders", "--set", "store=no.db", "--yes")
    assert done.exit_code == 2
    assert "so there is nothing to undo" in done.stderr
    assert not Path("no.db").exists()


def test_undo_for_machines(rows: dict[str, Rows]) -> None:
    done = undo("--yes", "--json")
    assert done.exit_code == 0
    assert done.stderr.startswith("shop/orders: from 'place 5' to 'place 4'")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert [message["type"] for message in messages] == ["catalog", *["progress"] * 3, "state", "eof"]
    assert (messages[-2]["reason"], messages[-2]["mark"]) == ("undo", '{"place":4}')


# ---------------------------------------------------------------- reset


def reset(*words: str) -> Result:
    return penstock("state", "reset", "shop.yaml", "--stream", "orders", *words)


def test_reset_says_what_is_read_again_and_what_the_sink_will_hold(rows: dict[str, Rows]) -> None:
    rows["orders"].arrive(6)
    done = reset("--stream", "items")
    assert done.exit_code == 2
    assert done.stdout == (
        "shop/orders: 5 rows delivered so far; mark: place 5.\n"
        "  Every row is read again from the beginning: 6 rows to read now.\n"
        "shop/items: 3 rows delivered so far; mark: place 3.\n"
        "  Every row is read again from the beginning: 3 rows to read now.\n"
        f"{STAYS}{TWICE}"
    )
    assert len(history()["orders"]) == 3


def test_reset_tells_also_when_the_source_cannot_be_reached(
    rows: dict[str, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(Places):
        def connect(self) -> None:
            raise ConnectionFailed("no route", next_step="call the network")

    monkeypatch.setattr(wiring, "build_source", lambda *_, **__: Away(rows))
    done = reset()
    assert done.exit_code == 2
    assert done.stdout == (
        "shop/orders: 5 rows delivered so far; mark: place 5.\n"
        "  Every row is read again from the beginning: the row count is unknown: no route.\n"
        f"{STAYS}{TWICE}"
    )

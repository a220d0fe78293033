"""`penstock rewind` with a source in memory, a real store and a real folder."""

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
from penstock.ports import StreamInfo

FILE = """\
pipelines:
  shop:
    source: {type: postgres, url: "postgresql://db/x"}
    sink: {type: files, directory: out, format: ndjson}
"""
STAYS = "Rows delivered so far stay in the sink.\n"


class Places(MemorySource):
    """Says the beginning as other sources do."""

    def catalog(self) -> list[StreamInfo]:
        skipped = StreamInfo("notes", next(iter(super().catalog())).kind, skipped="it has no key")
        return [*super().catalog(), skipped]

    def describe(self, mark: Mark | None) -> str:
        return super().describe(mark) if mark else "the beginning"


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Rows]:
    """Streams of five and of three rows, all delivered."""
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


def delivered(stream: str) -> list[int]:
    lines = [line for path in Path("out", stream).iterdir() for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["place"] for line in lines)


def state() -> dict[str, Any]:
    (pipeline,) = json.loads(penstock("status", "shop.yaml", "--json").stdout)["pipelines"]
    return {stream["stream"]: stream["at"] for stream in pipeline["streams"]}


def test_it_says_from_where_to_where_and_goes_there(rows: dict[str, Rows]) -> None:
    done = penstock("rewind", "shop.yaml", "--to", "2", "--stream", "orders", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (
        f"shop/orders: from place 5 to place 2; the next run continues from there\n{STAYS}"
        "shop: 1 stream: orders\n"
        "shop/orders: rewound; mark: place 2; the next run continues from there\n"
    )
    assert state() == {"items": "place 3", "orders": "place 2"}
    assert penstock("run", "shop.yaml").exit_code == 0
    assert (delivered("orders"), delivered("items")) == ([1, 2, 3, 3, 4, 4, 5, 5], [1, 2, 3])


def test_without_a_stream_all_that_are_synced(rows: dict[str, Rows]) -> None:
    done = penstock("rewind", "shop.yaml", "--to", "0", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == [
        "shop/orders: from place 5 to the beginning; the next run continues from there",
        "shop/items: from place 3 to the beginning; the next run continues from there",
    ]
    assert state() == {"items": "the beginning", "orders": "the beginning"}
    again = penstock("rewind", "shop.yaml", "--to", "0", "--yes", "--stream", "items", "--stream", "items")
    assert again.stdout == (
        f"shop/items: the stream is at its beginning: there is nothing to rewind\n{STAYS}"
        "shop: 1 stream: items\nshop/items: is at its beginning already\n"
    )
    assert penstock("run", "shop.yaml").exit_code == 0
    assert delivered("items") == [1, 1, 2, 2, 3, 3]


def test_a_place_where_it_stands(rows: dict[str, Rows]) -> None:
    done = penstock("rewind", "shop.yaml", "--to", "3", "-s", "items", "-y")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"shop/items: the mark is already there: place 3\n{STAYS}")


def test_without_a_terminal_it_needs_yes_and_changes_nothing(rows: dict[str, Rows]) -> None:
    done = penstock("rewind", "shop.yaml", "--to", "2", "--stream", "orders")
    assert done.exit_code == 2
    assert done.stdout == f"shop/orders: from place 5 to place 2; the next run continues from there\n{STAYS}"
    assert done.stderr == (
        "error: this command needs a confirmation, and there is no terminal to ask on\nNothing was read or written.\n"
        "Next: add --yes to the command\n"
    )
    assert state()["orders"] == "place 5"


@pytest.mark.parametrize(
    ("to", "what"),
    [("4", "cannot rewind forward: place 4 comes after place 3"), ("noon", "'noon' is not a place")],
)
def test_a_place_that_one_stream_does_not_know_changes_none(rows: dict[str, Rows], to: str, what: str) -> None:
    rows["items"], rows["orders"] = rows.pop("items"), rows.pop("orders")
    done = penstock("rewind", "shop.yaml", "--to", to, "--yes")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: shop/items: {what}\nNothing was lost: the mark has not moved.\nNext: give a number from 0 to 3\n"
    )
    assert state() == {"items": "place 3", "orders": "place 5"}


@pytest.mark.parametrize("name", ["order", "notes"])
def test_a_stream_that_is_not_there(rows: dict[str, Rows], name: str) -> None:
    done = penstock("rewind", "shop.yaml", "--to", "1", "--stream", name, "--yes")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: shop: there is no stream '{name}'; ")
    assert done.stderr.endswith("Nothing was read or written.\nNext: list the streams: `penstock status shop.yaml`\n")


def test_for_machines(rows: dict[str, Rows]) -> None:
    done = penstock("rewind", "shop.yaml", "--to", "2", "--stream", "orders", "--yes", "--json")
    assert done.exit_code == 0
    assert done.stderr == f"shop/orders: from place 5 to place 2; the next run continues from there\n{STAYS}"
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert [message["type"] for message in messages] == ["catalog", *["progress"] * 3, "state", "eof"]
    assert (messages[-2]["reason"], messages[-2]["mark"]) == ("rewind", '{"place":2}')
    refused = penstock("rewind", "shop.yaml", "--to", "9", "--stream", "orders", "--yes", "--json")
    eof = json.loads(refused.stdout.splitlines()[-1])
    assert (eof["type"], eof["exit_code"]) == ("eof", 2)


def test_an_open_slice_and_a_wanted_reset_are_told(rows: dict[str, Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    rows["orders"].arrive(6)

    class Broken(LoopMover):
        def move(self, *_: Any) -> Any:
            raise OSError("the worker died")

    with monkeypatch.context() as patch:
        patch.setattr(wiring, "make_mover", lambda *_, **__: Broken())
        assert penstock("run", "shop.yaml").exit_code == 1
        reset = penstock("state", "reset", "shop.yaml", "--stream", "orders", "--yes")
        assert reset.exit_code == 1
    done = penstock("rewind", "shop.yaml", "--to", "2", "--stream", "orders")
    assert done.stdout == (
        "shop/orders: slice 4 is open and is finished first; a reset was requested and is carried out; "
        f"then there is nothing to rewind\n{STAYS}"
    )
    assert penstock("rewind", "shop.yaml", "--to", "2", "--stream", "orders", "--yes").exit_code == 0
    assert state()["orders"] == "the beginning"

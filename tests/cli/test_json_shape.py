"""One shape in every verb: `streams` is a list, and each entry has the name of its `stream`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.harness.doubles import LoopMover, MemorySource, Rows
from typer.testing import CliRunner

from penstock import wiring
from penstock.cli import app

FILE = """\
pipelines:
  shop:
    source: {type: postgres, url: "postgresql://db/x"}
    sink: {type: files, directory: out, format: ndjson}
    streams: {orders: {}, items: {}}
"""
VERBS = (
    "run shop.yaml",
    "status shop.yaml",
    "state show shop.yaml",
    "state history shop.yaml",
    "check shop.yaml",
    "plan shop.yaml",
    "log run.ndjson",
    "state undo shop.yaml --stream orders --yes",
    "state reset shop.yaml --stream orders --yes",
    "state recover shop.yaml --yes",
    "state migrate shop.yaml --stream orders --yes",
    "rewind shop.yaml --stream orders --to 2 --yes",
)
#: those that need a real source or sink
OF_TABLES = (
    "run tables.yaml",
    "discover tables.yaml",
    "verify tables.yaml",
    "quarantine list tables.yaml",
)
TABLES = """\
pipelines:
  shop:
    source: {{type: postgres, url: "{url}"}}
    sink: {{type: postgres, url: "{url}", schema: copies}}
    streams: {{orders: {{cursor: id, unique: true}}, items: {{}}}}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Rows]:
    """Two streams, delivered; the run's messages are in run.ndjson."""
    streams = {"orders": Rows(), "items": Rows()}
    for key in range(5):
        streams["orders"].arrive(key)
    streams["items"].arrive(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wiring, "build_source", lambda *_, **__: MemorySource(streams))
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    Path("shop.yaml").write_text(FILE)
    Path("run.ndjson").write_text(said("run shop.yaml"))
    streams["orders"].arrive(5)
    return streams


def said(command: str) -> str:
    done = CliRunner().invoke(app, [*command.split(), "--json"], prog_name="penstock")
    assert done.exit_code == 0, done.output
    return done.stdout


def documents(text: str) -> list[Any]:
    """One document, or one a line."""
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def found_in(document: Any) -> Iterator[Any]:
    """Every value of a key `streams`, however deep."""
    if isinstance(document, list):
        for each in document:
            yield from found_in(each)
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "streams":
                yield value
            yield from found_in(value)


@pytest.mark.parametrize("command", VERBS)
def test_streams_are_a_list_and_each_has_its_name(shop: dict[str, Rows], command: str) -> None:
    found = list(found_in(documents(said(command))))
    assert found
    for streams in found:
        assert isinstance(streams, list)
        assert {stream["stream"] for stream in streams} <= {"orders", "items"}
    assert any(found)


@pytest.mark.parametrize("command", OF_TABLES)
def test_streams_of_tables_are_a_list_too(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
    Path("tables.yaml").write_text(TABLES.format(url=database))
    with psycopg.connect(database) as db:
        db.execute("CREATE SCHEMA copies")
        for table in ("orders", "items"):
            db.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, note text)".encode())
            db.execute(f"INSERT INTO {table} VALUES (1, 'one')".encode())
    if command != OF_TABLES[0]:
        said(OF_TABLES[0])
    found = list(found_in(documents(said(command))))
    assert found
    for streams in found:
        assert isinstance(streams, list)
        assert {stream["stream"] for stream in streams} <= {"orders", "items"}


def test_the_status_of_some_streams(shop: dict[str, Rows]) -> None:
    [pipeline] = json.loads(said("status shop.yaml --stream items"))["pipelines"]
    assert [stream["stream"] for stream in pipeline["streams"]] == ["items"]
    done = CliRunner().invoke(app, ["status", "shop.yaml", "--stream", "itmes"], prog_name="penstock")
    assert done.exit_code == 2
    assert "there is no stream 'itmes'; did you mean 'items'?" in done.stderr

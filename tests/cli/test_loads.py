"""`penstock loads`: lists the load of each table, before, while and after it is loaded; starts one again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.harness.faults import Command, Outcome
from tests.sources.outbox.shops import IMAGES, SCHEMA
from tests.sources.outbox.test_loads import FILL
from tests.sources.tables import execute

FILE = """\
store: .penstock/store.db
pipelines:
  images:
    source: {{type: outbox, url: "{url}"}}
    sink: {{type: files, directory: out, format: ndjson}}
    slice_bytes: 4096
    streams: {streams}
"""


class Shop:
    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.command = url, folder, Command(folder)
        execute(url, SCHEMA, *FILL)
        self.declare({"images": IMAGES})
        assert self.do("triggers", "apply").code == 0

    def declare(self, streams: Any) -> None:
        (self.folder / "images.yaml").write_text(FILE.format(url=self.url, streams=json.dumps(streams)))

    def do(self, *words: str, code: int = 0) -> Outcome:
        verbs, options = words[:2] if words[0] in ("loads", "triggers") else words[:1], words
        done = self.command.run(*verbs, "images.yaml", *options[len(verbs) :])
        assert done.code == code, done.out + done.err
        return done

    def states(self) -> dict[str, str]:
        listed = json.loads(self.do("loads", "list", "--json").out)
        return {each["table"]: each["state"] for each in listed["loads"]}

    def delivered(self) -> list[Any]:
        # A name has the slice, the attempt and the part.
        paths = (self.folder / "out" / "images").glob("*.ndjson")
        texts = [path.read_text() for path in sorted(paths, key=lambda path: path.stem.split("-")[::2])]
        return [json.loads(json.loads(line)["document"]) for text in texts for line in text.splitlines()]


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Shop:
    return Shop(database, tmp_path)


TABLES = ("public.images", "public.image_tags.tags", "public.posts")


def test_a_load_from_its_beginning_to_its_end(shop: Shop) -> None:
    assert shop.states() == dict.fromkeys(TABLES, "pending")
    shop.command.kill_at("gate.committed", "run", "images.yaml", nth=2)
    execute(shop.url, "ALTER TABLE posts DISABLE TRIGGER USER")
    shop.do("run", code=2)
    assert shop.states() == {**dict.fromkeys(TABLES, "pending"), "public.images": "failed"}
    shop.do("triggers", "apply")
    shop.do("run")
    assert shop.states() == dict.fromkeys(TABLES, "complete")
    lines = shop.do("loads", "list", "--table", "public.images").out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("images  public.images  complete  30 rows, ended 20")
    assert "no loads" in shop.do("loads", "list", "--table", "public.nothing").out


def test_status_says_how_much_is_left(shop: Shop) -> None:
    shop.command.kill_at("gate.advanced", "run", "images.yaml", nth=1)
    said = shop.do("status").out
    assert "public.images is being loaded, up to (id) = (" in said
    assert "of about 30 rows" in said
    assert "2 more are still to be loaded" in said
    assert shop.states() == {**dict.fromkeys(TABLES, "pending"), "public.images": "loading"}


def test_a_load_is_started_again(shop: Shop) -> None:
    shop.do("run")
    before = len(shop.delivered())
    asked = shop.do("loads", "start", "--table", "image_tags", code=2)
    assert "images: public.image_tags.tags: loaded again; until then, their fields are missing" in asked.out
    assert "add --yes to the command" in asked.err
    assert shop.states() == dict.fromkeys(TABLES, "complete")
    shop.do("loads", "start", "--table", "image_tags", "--yes")
    assert shop.states() == {**dict.fromkeys(TABLES, "complete"), "public.image_tags.tags": "pending"}
    shop.do("run")
    assert shop.states() == dict.fromkeys(TABLES, "complete")
    again = shop.delivered()[before:]
    assert again[0] == {"v": 1, "table": "public.image_tags", "ops": [{"op": "clear", "field": "tags"}]}
    assert {each["table"] for each in again} == {"public.image_tags"}
    assert "all tables are loaded again; until then, its entities are missing" in shop.do("loads", "start", "-y").out
    assert shop.states() == dict.fromkeys(TABLES, "pending")


def test_what_cannot_be_started(shop: Shop) -> None:
    no = shop.do("loads", "start", "--table", "image_tag", "--yes", code=2)
    assert "no stream is fed by a table public.image_tag; did you mean 'public.image_tags'?" in no.err
    shop.declare({"images": {**IMAGES, "first_load": False}})
    assert "no stream of the pipeline loads its tables" in shop.do("loads", "start", "--yes", code=2).err
    assert "`first_load: false` leaves out the rows" in shop.do("loads", "list").out
    shop.declare({"images": IMAGES})
    execute(shop.url, "DELETE FROM penstock_outbox.triggers")
    assert "have not all been applied" in shop.do("loads", "start", "--yes", code=2).err
    shop.do("triggers", "drop", "--yes")
    assert "there is no outbox" in shop.do("loads", "list", code=2).err

"""`penstock loads`: lists the load of each table, before, while and after it is loaded; starts one again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
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
    assert lines[0].startswith("images  public.images  complete  30 rows, 16.0 KiB, ended 20")
    assert "no loads" in shop.do("loads", "list", "--table", "public.nothing").out


def test_status_says_how_much_is_left(shop: Shop) -> None:
    shop.command.kill_at("gate.advanced", "run", "images.yaml", nth=1)
    said = shop.do("status").out
    assert "public.images is being loaded, up to (id) = (" in said
    assert "of about 30 rows, " in said
    assert "KiB of about 16.0 KiB; until it ends and the changes made meanwhile are read, older values may show" in said
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


def test_a_load_is_given_up_and_cleared(shop: Shop) -> None:
    shop.command.kill_at("gate.intended", "run", "images.yaml", nth=2)
    asked = shop.do("loads", "drop", "--table", "image_tags", code=2)
    assert "images: public.image_tags.tags: no more rows are loaded; what has been loaded stays" in asked.out
    shop.do("loads", "drop", "--table", "image_tags", "--yes")
    shop.do("run")
    assert shop.states() == {**dict.fromkeys(TABLES, "complete"), "public.image_tags.tags": "dropped"}
    lines = shop.do("loads", "list", "--table", "public.image_tags.tags").out.splitlines()
    assert [line.split() for line in lines] == [["images", "public.image_tags.tags", "dropped"]]
    before = len(shop.delivered())
    asked = shop.do("loads", "clear", "--table", "posts", "--stream", "images", code=2)
    assert "images: public.posts: their fields are removed, and not loaded again" in asked.out
    cleared = json.loads(shop.do("loads", "clear", "--table", "posts", "--yes", "--json").out)
    assert cleared == {"pipeline": "images", "cleared": {"images": ["public.posts"]}}
    shop.do("run")
    fields = [{"op": "clear", "field": "nsfw"}, {"op": "clear", "field": "post_title"}]
    assert [each["ops"] for each in shop.delivered()[before:]] == [fields]
    assert shop.states()["public.posts"] == "dropped"
    no = shop.do("loads", "drop", "--stream", "image", "--yes", code=2)
    assert "did you mean 'images'?" in no.err


@pytest.mark.parametrize("point", ["gate.intended", "gate.moved", "gate.committed"])
def test_a_request_while_a_slice_is_open(shop: Shop, point: str) -> None:
    """The open slice is finished as it was planned, and its rows are delivered once."""
    shop.command.kill_at(point, "run", "images.yaml", nth=2)
    shop.do("loads", "drop", "--yes")
    shop.do("run")
    assert set(shop.states().values()) == {"dropped"}
    keys = [each["key"] for each in shop.delivered() if each.get("creates")]
    assert sorted(set(keys)) == sorted(keys)
    assert 0 < len(keys) <= 30
    shop.do("loads", "start", "--yes")
    shop.do("run")
    assert set(shop.states().values()) == {"complete"}


def test_a_dump_that_was_made_elsewhere(shop: Shop) -> None:
    shop.do("run")
    no = shop.do(
        "loads", "start", "-t", "posts", "--from", "posts.csv", "--made-at", "2026-01-01T00:00:00Z", "-y", code=2
    )
    assert "there is no file posts.csv" in no.err
    (shop.folder / "posts.csv").write_text("id,title,nsfw\n1,from the file,t\n")
    files = ("--table", "posts", "--from", "posts.csv", "--made-at")
    no = shop.do("loads", "start", *files, "2026-01-01T00:00:00Z", "--yes", code=2)
    assert "stream images does not wait for files of public.posts: changes made between a dump and what" in no.err
    assert "run `penstock loads start images.yaml --await-files`, then make the dump" in no.err
    waits = shop.do("loads", "start", "--table", "posts", "--await-files", "--yes").out
    assert "images: public.posts: later changes stay in the outbox until the files of a dump are loaded" in waits
    assert "Make the dump now, then name its files with --from" in waits
    assert shop.states()["public.posts"] == "waiting"
    assert "the stream waits for a dump of public.posts; changes are kept in the outbox" in shop.do("run").err
    (shop.folder / "posts.csv").write_text("id,title,nsfw\n1,from the file,t\n2,not in a trial,f\n")
    no = shop.do("loads", "start", *files, "2026-01-01T00:00:00Z", "--yes", code=2)
    assert "the dump was begun at 2026-01-01 00:00:00+00:00, and the stream waits since " in no.err
    before = len(shop.delivered())
    shop.do("loads", "start", *files, datetime.now(UTC).isoformat(), "--limit", "1", "--yes")
    shop.command.kill_at("gate.moved", "run", "images.yaml")
    shop.do("run")
    assert shop.states()["public.posts"] == "trial"
    loaded = shop.delivered()[before:]
    assert [each["ops"][0].get("where") for each in loaded] == [None, {"field": "post_id", "eq": 1}]
    assert loaded[1]["ops"][0]["ops"] == [
        {"op": "set", "field": "nsfw", "value": True},
        {"op": "set", "field": "post_title", "value": "from the file"},
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "a.csv"), "--from needs --made-at: the time at which the dump was begun"),
        (("--limit", "3"), "--made-at and --limit belong to --from"),
        (("--from", "a.csv", "--made-at", "2026-01-01 00:00"), "is not a time with its zone"),
        (("--from", "a.csv", "--await-files"), "--await-files comes first, then the dump is made"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = Command(tmp_path).run("loads", "start", "images.yaml", *words)
    assert done.code == 2
    assert message in " ".join(done.err.replace("│", " ").split())


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

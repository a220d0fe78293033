"""`init --outbox` proposes an entity from foreign keys, and a file that `triggers plan` and `check` accept as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.docs.pages import TOP
from tests.harness.faults import Command, Outcome
from tests.harness.postgres import PostgresServer
from tests.sources.tables import execute

GALLERY = (TOP / "examples" / "gallery" / "tables.sql").read_text()


class Database:
    def __init__(self, url: str, sink: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.command = Command(folder, "loop", environment={"DATABASE_URL": url, "SINK_URL": sink})

    def init(self, *words: str, code: int = 0) -> Outcome:
        done = self.command.run("init", "--outbox", *words)
        assert done.code == code, done.out + done.err
        return done


@pytest.fixture
def there(database: str, postgres_server: PostgresServer, tmp_path: Path) -> Database:
    return Database(database, postgres_server.database(), tmp_path)


def test_the_gallery(there: Database) -> None:
    execute(there.url, GALLERY)
    said = there.init("--sink", "postgres", "--pipeline", "gallery", "--output", "gallery.yaml").out
    assert said.splitlines()[0] == "Wrote gallery.yaml: stream images, fed by 6 tables."
    text = (there.folder / "gallery.yaml").read_text()
    assert "# image_tags: each row is one value, because (image_id, tag) is unique." in text
    pipeline = yaml.safe_load(text)["pipelines"]["gallery"]
    assert pipeline["source"] == {"type": "outbox", "url": "${DATABASE_URL}", "schema": "public"}
    assert pipeline["streams"] == {
        "images": {
            "mode": "state",
            "direct": [
                {
                    "table": "images",
                    "key": "id",
                    "columns": ["post_id", "model_id", "version_id", "url"],
                    "creates": True,
                }
            ],
            "multi_value": [
                {"table": "image_tags", "key": "image_id", "field": "tags", "value": "tag"},
                {"table": "image_tools", "key": "image_id", "field": "tools", "value": "tool"},
            ],
            "fan_out": [
                {"table": "models", "match": "model_id eq {id}", "computed": {"model_name": "{name}"}},
                {"table": "posts", "match": "post_id eq {id}", "computed": {"post_title": "{title}"}},
                {"table": "versions", "match": "version_id eq {id}", "computed": {"version_name": "{name}"}},
            ],
        }
    }
    for words in (("triggers", "plan"), ("triggers", "apply"), ("check",), ("run",)):
        done = there.command.run(*words, "gallery.yaml")
        assert done.code == 0, (words, done.out + done.err)
    assert there.init("--output", "gallery.yaml", code=2).err.startswith("error: gallery.yaml already exists")


AWKWARD = """
CREATE TABLE people (id int PRIMARY KEY, name text, "a b" text, "with {brace}" text);
CREATE TABLE "Books" (
    isbn text, edition int, name text, "author ID" int REFERENCES people, editor_id int REFERENCES people,
    sequel_isbn text, sequel_edition int, PRIMARY KEY (isbn, edition),
    FOREIGN KEY (sequel_isbn, sequel_edition) REFERENCES "Books"
);
CREATE TABLE stock (
    isbn text, edition int, name text, count int, UNIQUE (isbn, edition), FOREIGN KEY (isbn, edition) REFERENCES "Books"
);
CREATE TABLE reviews (
    isbn text, edition int, reader int, stars int, UNIQUE (edition, isbn, reader),
    FOREIGN KEY (isbn, edition) REFERENCES "Books"
);
CREATE TABLE loose (isbn text, edition int, FOREIGN KEY (isbn, edition) REFERENCES "Books");
CREATE TABLE alone (id int PRIMARY KEY);
"""


def test_names_and_keys_that_are_awkward(there: Database) -> None:
    execute(there.url, AWKWARD)
    there.init("--output", "books.yaml", "--pipeline", "books")
    stream = yaml.safe_load((there.folder / "books.yaml").read_text())["pipelines"]["books"]["streams"]["Books"]
    assert stream["direct"][1] == {
        "table": "stock",
        "key": ["isbn", "edition"],
        "columns": ["count"],
        "computed": {"stock_name": "{name}"},
    }
    assert stream["multi_value"] == [
        {"table": "reviews", "key": ["isbn", "edition"], "field": "reviews", "value": "reader"}
    ]
    assert stream["fan_out"] == [
        {
            "table": "people",
            "match": "editor_id eq {id}",
            "computed": {"editor_name": "{name}", "editor_a b": "{a b}"},
        }
    ]
    assert "mode" not in stream, "files take a log"
    planned = there.command.run("triggers", "plan", "books.yaml")
    assert planned.code == 0, planned.err


def test_what_cannot_be_proposed(there: Database) -> None:
    execute(there.url, AWKWARD)
    assert "there is no table book; did you mean 'Books'?" in there.init("--entity", "book", code=2).err
    assert "table stock has no primary key" in there.init("--entity", "stock", code=2).err
    assert "omit --source, --path, --auth and --views" in there.init("--views", code=2).err
    no = there.init("--include", "alone", "--include", "loose", code=2).err
    assert "no table with a primary key is related to another one by a foreign key" in no
    assert "fed by 1 table" in there.init("--entity", "alone").out

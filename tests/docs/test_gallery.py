"""The gallery of the examples, on a real Postgres with the real command: its state tables equal what SQL says."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.docs.pages import TOP, blocks
from tests.docs.test_examples import rows, table
from tests.docs.test_walks import Walk
from tests.harness.postgres import PostgresServer

PAGE = TOP / "docs" / "state-tables.md"
GALLERY = TOP / "examples" / "gallery"
COLUMNS = (
    "id",
    "post_id",
    "model_id",
    "version_id",
    "url",
    "format",
    "tags",
    "tools",
    "post_title",
    "version",
    "model",
)
TRUTH = """
    SELECT i.id, i.post_id, i.model_id, i.version_id, i.url, right(i.url, 3),
           (SELECT array_agg(tag ORDER BY tag) FROM image_tags t WHERE t.image_id = i.id),
           (SELECT array_agg(tool ORDER BY tool) FROM image_tools t WHERE t.image_id = i.id),
           p.title, v.name, m.name
    FROM images i LEFT JOIN posts p ON p.id = i.post_id LEFT JOIN versions v ON v.id = i.version_id
    LEFT JOIN models m ON m.id = i.model_id ORDER BY i.id"""


@pytest.fixture
def walk(tmp_path: Path, database: str, postgres_server: PostgresServer) -> Iterator[Walk]:
    for path in GALLERY.iterdir():
        shutil.copy(path, tmp_path)
    store = postgres_server.database()
    yield Walk(tmp_path, database, store)
    postgres_server.drop(urlsplit(store).path.removeprefix("/"))


def test_images_are_put_together_from_six_tables(walk: Walk) -> None:
    walk.sql((GALLERY / "tables.sql").read_text())
    with psycopg.connect(walk.store_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA gallery")
    for pipeline in ("images-to-lake", "images-to-postgres"):
        walk.penstock("triggers", "apply", "gallery.yaml", "--pipeline", pipeline)
    walk.penstock("run", "gallery.yaml")
    _equal(walk, images=3)
    walk.sql((GALLERY / "changes.sql").read_text())
    walk.penstock("run", "gallery.yaml")
    _equal(walk, images=2)
    [second] = [row for row in rows(walk.url, TRUTH) if row[0] == 2]
    assert second[4:8] == ("lake.png", "png", ["blue", "calm"], ["brush", "mask"])
    assert second[8:] == ("Evening", "1.5", "Aurora XL")
    assert "nothing new" in walk.penstock("run", "gallery.yaml")


def test_the_page(walk: Walk) -> None:
    (file,) = blocks(PAGE, "yaml")
    (walk.folder / "gallery.yaml").write_text(file.text)
    for session in blocks(PAGE, "console"):
        for line in session.text.splitlines():
            _do(walk, shlex.split(line.removeprefix("$ ")))
    (row,) = re.findall(r"^\| 2 \| .*", PAGE.read_text(), re.MULTILINE)
    query = "SELECT id, post_id, url, tags, tools, post_title, version, model FROM gallery.images WHERE id = 2"
    found = rows(walk.store_url, query.replace("tags, tools", "tags::text, tools::text"))
    assert [" | ".join(map(str, each)) for each in found] == [row.strip("| ")]


def _do(walk: Walk, words: list[str]) -> None:
    """A line of the page."""
    if words[0] == "penstock":
        walk.penstock(*words[1:])
        return
    url = {"$DATABASE_URL": walk.url, "$STORE_URL": walk.store_url}[words[1]]
    text = (walk.folder / words[3]).read_text() if words[2] == "-f" else words[3]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(text.encode())


def _equal(walk: Walk, images: int) -> None:
    truth = [tuple(value or None for value in row) for row in rows(walk.url, TRUTH)]
    assert len(truth) == images
    query = f"SELECT {', '.join(COLUMNS)} FROM gallery.images ORDER BY id"
    in_postgres = [tuple(_plain(value) for value in row) for row in rows(walk.store_url, query)]
    assert in_postgres == truth
    found = [row for row in table(walk, "lake", "gallery.images") if not row["_tombstone"]]
    in_lake = sorted(tuple(_plain(row[each]) for each in COLUMNS) for row in found)
    assert in_lake == truth


def _plain(value: object) -> object:
    """Values of a set have no order, and an empty set is as none."""
    return (sorted(value) or None) if isinstance(value, list) else value

"""SIGKILL at every point of a run that reads an outbox; the application goes on writing before the restart."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.core.ops import FanOut, Row, Shape, State, fold
from tests.acceptance.matrix import ONCE
from tests.harness.faults import RUN_POINTS, Command
from tests.sources.outbox.shops import IMAGES, SCHEMA, TRUTH
from tests.sources.tables import execute, rows

FILE = """\
store: .penstock/store.db
pipelines:
  images:
    source: {{type: outbox, url: "{url}", keep_hours: 0}}
    sink: {{type: files, directory: out, format: ndjson}}
    slice_bytes: 4096
    streams: {streams}
"""
SHAPE = Shape(
    frozenset({"url", "post_id", "size", "url_length", "nsfw", "post_title"}),
    frozenset({"tags"}),
    (FanOut("public.posts", ("post_id",), ("nsfw", "post_title")),),
)


@dataclass
class Gallery:
    """Images that an application changes, and the pipeline that delivers what it did."""

    folder: Path
    url: str
    command: Command
    images: int = 0

    def write(self, count: int) -> None:
        """Insert, tag, update, fan out and delete."""
        first, self.images = self.images + 1, self.images + count
        new = f"generate_series({first}, {self.images}) n"
        execute(
            self.url,
            f"INSERT INTO images SELECT n, 'image ' || n, 1 + n % 2 FROM {new}",
            f"INSERT INTO image_tags SELECT n, n % 5 FROM {new}",
            f"UPDATE images SET url = url || '!' WHERE id % 3 = 0 AND id >= {first}",
            f"UPDATE posts SET title = 'title {first}' WHERE id = 1",
            f"DELETE FROM images WHERE id % 7 = 0 AND id >= {first}",
        )

    def documents(self) -> list[tuple[int, Any]]:
        # A name has the slice, the attempt and the part: parts are in order, attempts are not.
        paths = sorted(
            (self.folder / "out" / "images").glob("*.ndjson"), key=lambda path: [*path.stem.split("-")[::2], path.stem]
        )
        found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        return [(each["id"], json.loads(each["document"])) for each in found]

    def current(self) -> list[tuple[Any, ...]]:
        """The fold of everything that was delivered, as rows of the query that tells the truth."""
        state = fold(State(), SHAPE, (Row(id_, document) for id_, document in self.documents())).state
        found = []
        for key, record in state.entities.items():
            tags = sorted(json.loads(value) for value in record.multi.get("tags", ()))
            found.append((json.loads(key), dict(record.scalars), tags))
        return sorted(found, key=lambda row: row[0])


def gallery_in(folder: Path, url: str, command: Command, stream: dict[str, Any]) -> Gallery:
    """The tables and the pipeline file."""
    execute(url, SCHEMA)
    (folder / "images.yaml").write_text(FILE.format(url=url, streams=json.dumps({"images": stream})))
    return Gallery(folder, url, command)


@pytest.fixture
def gallery(tmp_path: Path, database: str) -> Gallery:
    """Two posts before the triggers, which are loaded; images after them."""
    gallery = gallery_in(tmp_path, database, Command(tmp_path), IMAGES)
    execute(database, "INSERT INTO posts VALUES (1, 'one'), (2, 'two')")
    applied = gallery.command.run("triggers", "apply", "images.yaml")
    assert applied.code == 0, applied.err
    return gallery


@pytest.mark.parametrize("point", RUN_POINTS)
def test_killed_at(point: str, gallery: Gallery) -> None:
    gallery.write(40)
    nth = 1 if point in ONCE else 2
    assert gallery.command.kill_at(point, "run", "images.yaml", nth=nth)["point"] == point
    gallery.write(20)
    for verb in ("check", "run"):
        done = gallery.command.run(verb, "images.yaml")
        assert done.code == 0, (verb, done.err)
    ids = [id_ for id_, _ in gallery.documents()]
    assert len(set(ids)) == len(ids), "each document once"
    assert gallery.current() == rows(gallery.url, TRUTH)
    assert rows(gallery.url, "SELECT count(*) FROM penstock_outbox.outbox") == [(0,)], "what was read is deleted"

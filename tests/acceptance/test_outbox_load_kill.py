"""SIGKILL at every point of a run that loads tables; the application goes on writing before the restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.matrix import ONCE
from tests.acceptance.test_outbox_kill import Gallery, gallery_in
from tests.harness.faults import RUN_POINTS, Command
from tests.sources.outbox.shops import IMAGES, TRUTH
from tests.sources.tables import execute, rows


@pytest.fixture
def gallery(tmp_path: Path, database: str) -> Gallery:
    """Sixty images, two posts and tags, and then triggers."""
    gallery = gallery_in(tmp_path, database, Command(tmp_path, "loop"), IMAGES)
    execute(database, "INSERT INTO posts VALUES (1, 'one'), (2, 'two')")
    gallery.write(60)
    applied = gallery.command.run("triggers", "apply", "images.yaml")
    assert applied.code == 0, applied.err
    return gallery


@pytest.mark.parametrize("point", RUN_POINTS)
def test_killed_at(point: str, gallery: Gallery) -> None:
    nth = 1 if point in ONCE else 3
    assert gallery.command.kill_at(point, "run", "images.yaml", nth=nth)["point"] == point
    gallery.write(10)
    execute(
        gallery.url, "UPDATE images SET id = id + 1000 WHERE id % 10 = 1", "DELETE FROM image_tags WHERE tag_id = 2"
    )
    done = gallery.command.run("run", "images.yaml")
    assert done.code == 0, done.err
    assert gallery.current() == rows(gallery.url, TRUTH)
    ids = [id_ for id_, _ in gallery.documents()]
    assert len(set(ids)) == len(ids), "each document once"
    assert rows(gallery.url, "SELECT count(*) FROM penstock_outbox.outbox") == [(0,)], "what was read is deleted"
    assert "is being loaded" not in gallery.command.run("status", "images.yaml").out

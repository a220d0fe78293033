"""SIGKILL while an outbox is applied to a state table, from its first load on; the application goes on writing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.acceptance.matrix import ONCE
from tests.acceptance.test_outbox_kill import Gallery
from tests.harness.faults import STATE_RUN_POINTS, Command
from tests.harness.postgres import PostgresServer
from tests.plain_spark import FOR_SMALL_TABLES
from tests.sources.outbox.shops import IMAGES, SCHEMA
from tests.sources.tables import execute, rows

FILE = """\
store: .penstock/store.db
spark: {{config: {spark}}}
pipelines:
  images:
    source: {{type: outbox, url: "{url}", keep_hours: 0}}
    sink: {sink}
    slice_bytes: {slice_bytes}
    streams: {streams}
"""
#: of the source, and of the copy
TRUTH = """
    SELECT i.id, i.url, i.post_id, i.size, length(i.url), p.nsfw, p.title,
           array(SELECT t.tag_id FROM image_tags t WHERE t.image_id = i.id AND t.kind = 'user' ORDER BY 1)
    FROM images i LEFT JOIN posts p ON p.id = i.post_id ORDER BY 1"""
NAMES = ("id", "url", "post_id", "size", "url_length", "nsfw", "post_title", "tags")
POINTS = tuple(
    point for point in STATE_RUN_POINTS if point.startswith(("postgres.", "gate.intended", "gate.moved", "gate.adv"))
)


def begin(folder: Path, url: str, sink: str, slice_bytes: int) -> Gallery:
    """Images that are there before the triggers."""
    gallery = Gallery(folder, url, Command(folder))
    execute(url, SCHEMA, "INSERT INTO posts VALUES (1, 'one'), (2, 'two')")
    gallery.write(30)
    streams = json.dumps({"images": {**IMAGES, "mode": "state"}})
    spark = json.dumps(FOR_SMALL_TABLES)
    text = FILE.format(url=url, sink=sink, streams=streams, slice_bytes=slice_bytes, spark=spark)
    (folder / "images.yaml").write_text(text)
    applied = gallery.command.run("triggers", "apply", "images.yaml")
    assert applied.code == 0, applied.err
    return gallery


@pytest.mark.parametrize("point", POINTS)
def test_into_postgres(point: str, database: str, postgres_server: PostgresServer, tmp_path: Path) -> None:
    store = postgres_server.database()
    gallery = begin(tmp_path, database, f'{{type: postgres, url: "{store}"}}', 4096)
    nth = 1 if point in ONCE else 2
    assert gallery.command.kill_at(point, "run", "images.yaml", nth=nth)["point"] == point
    gallery.write(20)
    for verb in ("check", "run", "run"):
        done = gallery.command.run(verb, "images.yaml")
        assert done.code == 0, (verb, done.err)
    assert rows(store, f"SELECT {', '.join(NAMES)} FROM images ORDER BY 1") == rows(database, TRUTH)


@pytest.mark.parametrize("point", ["lake.folded", "lake.side_staged"])
def test_into_a_lake(point: str, database: str, tmp_path: Path) -> None:
    gallery = begin(tmp_path, database, "{type: lake, warehouse: lake}", 1 << 20)
    assert gallery.command.kill_at(point, "run", "images.yaml")["point"] == point
    gallery.write(20)
    done = gallery.command.run("run", "images.yaml")
    assert done.code == 0, done.err
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    try:
        found = catalog.load_table("images.images").scan().to_arrow().to_pylist()
    finally:
        catalog.close()
    there = sorted(tuple(row[name] for name in NAMES) for row in found if not row["_tombstone"])
    assert there == rows(database, TRUTH)

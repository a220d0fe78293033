"""Documents of an outbox over HTTP to another penstock, from its log into a table: each once, in their order."""

from __future__ import annotations

import json
from pathlib import Path

from tests.acceptance.test_outbox_kill import Gallery
from tests.harness.faults import Command
from tests.harness.serving import serving
from tests.sources.outbox.shops import IMAGES, SCHEMA, TRUTH
from tests.sources.tables import execute, rows

SEND = """\
store: .penstock/store.db
pipelines:
  images:
    source: {{type: outbox, url: "{url}"}}
    sink: {{type: http, url: "{receiver}", chunk_rows: 20}}
    slice_bytes: 8192
    streams: {streams}
"""
LAND = """\
store: .penstock/store.db
pipelines:
  inbox:
    source: {type: wal, directory: wal}
    sink: {type: files, directory: out, format: ndjson}
    streams:
      images:
        entities:
          key: {id: int64}
          fields:
            {url: string, post_id: int64, size: "decimal(10,2)", url_length: int64, nsfw: bool, post_title: string}
          multi_value: {tags: int64}
          fan_out: [{table: public.posts, match: [post_id], fields: [nsfw, post_title]}]
"""


def test_they_arrive_at_the_other_penstock_as_they_were_written(database: str, tmp_path: Path) -> None:
    execute(database, SCHEMA)
    here, there = tmp_path / "here", tmp_path / "there"
    for each in (here, there):
        each.mkdir()
    (there / "inbox.yaml").write_text(LAND)
    sender, lander = Command(here), Command(there)
    gallery = Gallery(there, database, lander)
    with serving(Command(tmp_path), "--directory", "there/wal") as url:
        streams = json.dumps({"images": {**IMAGES, "first_load": False}})
        (here / "images.yaml").write_text(SEND.format(url=database, receiver=url, streams=streams))
        _run(sender, "triggers", "apply", "images.yaml")
        execute(database, "INSERT INTO posts VALUES (1, 'one'), (2, 'two')")
        gallery.write(30)
        # Killed in the middle of a slice: what was sent is sent again, and the receiver knows it.
        assert sender.kill_at("http.chunk_sent", "run", "images.yaml", nth=3)
        gallery.write(30)
        for _ in range(2):
            _run(sender, "run", "images.yaml")
            _run(lander, "run", "inbox.yaml")
            gallery.write(10)
        _run(sender, "run", "images.yaml")
        _run(lander, "run", "inbox.yaml")
    found = gallery.documents()
    assert [number for number, _ in found] == list(range(1, len(found) + 1)), "each once, numbered by the log"
    sent = rows(database, "SELECT document::text FROM penstock_outbox.outbox ORDER BY id")
    assert [document for _, document in found] == [json.loads(text) for (text,) in sent]
    assert gallery.current() == rows(database, TRUTH)


def _run(command: Command, *words: str) -> None:
    done = command.run(*words)
    assert done.code == 0, done.out + done.err

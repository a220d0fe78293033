"""Documents into a table of another database: each once, in the order of ids, as JSON that SQL can read."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness.faults import Command
from tests.harness.postgres import PostgresServer
from tests.sources.outbox.shops import IMAGES, SCHEMA
from tests.sources.tables import execute, rows

FILE = """\
store: .penstock/store.db
pipelines:
  images:
    source: {{type: outbox, url: "{url}"}}
    sink: {{type: postgres, url: "{into}"}}
    streams: {streams}
"""


def test_a_log_in_a_table(database: str, postgres_server: PostgresServer, tmp_path: Path) -> None:
    into, command = postgres_server.database(), Command(tmp_path)
    execute(database, SCHEMA)
    streams = json.dumps({"images": {**IMAGES, "mode": "append", "first_load": False}})
    (tmp_path / "images.yaml").write_text(FILE.format(url=database, into=into, streams=streams))
    for verb in ("triggers apply", "run"):
        done = command.run(*verb.split(), "images.yaml")
        assert done.code == 0, done.err
    for number in (1, 2):
        execute(database, f"INSERT INTO images VALUES ({number}, 'a')", "UPDATE images SET url = url || 'b'")
        done = command.run("run", "images.yaml")
        assert done.code == 0, done.out + done.err
    found = rows(into, "SELECT id, (document::jsonb)->>'key', at IS NOT NULL FROM images ORDER BY id")
    assert found == [(1, "1", True), (2, "1", True), (3, "2", True), (4, "1", True), (5, "2", True)]

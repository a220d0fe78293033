"""The pipeline file and the commands of the page are carried out: changes of five tables reach files."""

from __future__ import annotations

import json
from pathlib import Path

from tests.docs.pages import TOP, blocks
from tests.harness.faults import Command
from tests.sources.outbox.shops import SCHEMA
from tests.sources.tables import execute

PAGE = TOP / "docs" / "sources" / "outbox.md"


def test_the_file_of_the_page(database: str, tmp_path: Path) -> None:
    (block,) = blocks(PAGE, "yaml")
    (tmp_path / "images.yaml").write_text(block.text)
    execute(database, SCHEMA, "CREATE TABLE image_stats (image_id bigint PRIMARY KEY, views int)")
    command = Command(tmp_path, "loop", environment={"DATABASE_URL": database})
    session = blocks(PAGE, "console")[0]
    words = [line.removeprefix("$ penstock ").partition("#")[0].split() for line in session.text.splitlines()]
    assert [each[-1] for each in words] == ["images.yaml"] * 3
    for each in words:
        done = command.run(*each)
        assert done.code == 0, done.err
    execute(
        database,
        "INSERT INTO posts VALUES (1, 'one')",
        "INSERT INTO images VALUES (7, 'a.png', 1)",
        "INSERT INTO image_stats VALUES (7, 100)",
        "INSERT INTO image_tags VALUES (7, 3)",
        "DELETE FROM images",
    )
    assert command.run("run", "images.yaml").code == 0
    paths = sorted((tmp_path / "out" / "images").glob("*.ndjson"))
    found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    assert [each["id"] for each in found] == sorted(each["id"] for each in found)
    documents = [json.loads(each["document"]) for each in found if each["id"] > 0]
    loaded = [json.loads(each["document"])["ops"][0]["op"] for each in found if each["id"] < 0]
    assert loaded == ["clear", "clear"], "there were no rows before the triggers"
    said = [(each["table"], each["ops"][0]["op"]) for each in documents]
    assert said[:4] == [
        ("public.posts", "query_op_set"),
        ("public.images", "set"),
        ("public.image_stats", "set"),
        ("public.image_tags", "add"),
    ]
    assert ("public.images", "delete") in said[4:]
    status = command.run("triggers", "status", "images.yaml")
    assert status.code == 0, status.err
    assert "public.images: as in the file" in status.out
    assert "images/images: 0 documents not certainly read" in status.out

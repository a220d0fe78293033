"""The pipeline file of the page is run: rows that were sent to a log reach files once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.docs.pages import TOP, blocks
from tests.harness.faults import Command
from tests.sources.wal.logs import Orders, encode
from tests.sources.wal.test_documents import Documents, document

from penstock.wal.batches import Batch

PAGE = TOP / "docs" / "sources" / "wal.md"


def test_the_file_of_the_page(tmp_path: Path) -> None:
    block, _ = blocks(PAGE, "yaml")
    (tmp_path / "inbox.yaml").write_text(block.text)
    (tmp_path / ".penstock").mkdir()
    orders = Orders(tmp_path / ".penstock")
    orders.stream = "orders"
    command = Command(tmp_path, "loop")
    done = command.run("run", "inbox.yaml")
    assert done.code == 0, done.err
    assert "nothing was sent to this stream yet" in done.out + done.err
    for ids in ([1, 2], [3]):
        rows = [{"id": id_, "status": "paid", "placed_at": "2026-01-01T00:00:00Z", "items": [id_]} for id_ in ids]
        orders.send(Batch(None, len(rows), encode(rows)))
        done = command.run("run", "inbox.yaml")
        assert done.code == 0, done.err
    found = [
        json.loads(line) for path in sorted(tmp_path.glob("out/orders/*")) for line in path.read_text().splitlines()
    ]
    assert [(row["id"], row["items"]) for row in found] == [(1, "[1]"), (2, "[2]"), (3, "[3]")]


def test_the_file_for_documents_of_ops(tmp_path: Path) -> None:
    _, block = blocks(PAGE, "yaml")
    (tmp_path / "inbox.yaml").write_text(block.text)
    (tmp_path / ".penstock").mkdir()
    images = Documents(tmp_path / ".penstock")
    images.stream = "images"
    images.send(images.batch([5, 6], None))
    done = Command(tmp_path, "loop").run("run", "inbox.yaml")
    assert done.code == 0, done.err
    found = [
        json.loads(line) for path in sorted(tmp_path.glob("out/images/*")) for line in path.read_text().splitlines()
    ]
    assert [(row["id"], json.loads(row["document"])) for row in found] == [(1, document(5)), (2, document(6))]

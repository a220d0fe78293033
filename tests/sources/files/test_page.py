"""The pipeline file of the page is run: files of each kind reach the sink once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.docs.pages import TOP, blocks
from tests.harness.faults import Command
from tests.sources.files.folders import table, write

PAGE = TOP / "docs" / "sources" / "files.md"


def rows(folder: Path, stream: str) -> list[dict[str, Any]]:
    paths = sorted((folder / "out" / stream).glob("*.ndjson"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_the_file_of_the_page(tmp_path: Path) -> None:
    (block,) = blocks(PAGE, "yaml")
    (tmp_path / "inbox.yaml").write_text(block.text)
    command, place = Command(tmp_path, "loop"), tmp_path / "incoming"
    write(place / "orders" / "2026" / "a.parquet", table([1, 2]))
    (place / "visits").mkdir()
    (place / "visits" / "a.csv.gz").write_bytes(
        gzip.compress(b'at;page;seconds\n2026-01-31T10:00:00Z;"/a;b";1.5\n2026-01-31T10:00:01Z;;\n')
    )
    prices = place / "prices" / "day=2026-01-31"
    prices.mkdir(parents=True)
    (prices / "a.ndjson").write_text('{"product":"p","price":1.25,"more":1}\n')
    for verb in ("check", "run", "run"):
        done = command.run(verb, "inbox.yaml")
        assert done.code == 0, done.err + done.out
    write(place / "orders" / "b.parquet", table([3]))
    assert command.run("run", "inbox.yaml").code == 0
    assert [row["id"] for row in rows(tmp_path, "orders")] == [1, 2, 3]
    assert rows(tmp_path, "visits") == [
        {"at": "2026-01-31T10:00:00.000000Z", "page": "/a;b", "seconds": 1.5},
        {"at": "2026-01-31T10:00:01.000000Z", "page": None, "seconds": None},
    ]
    assert rows(tmp_path, "prices") == [{"product": "p", "price": 1.25, "day": "2026-01-31"}]
    assert "2 files seen, last orders/b.parquet" in command.run("status", "inbox.yaml").out


def test_a_sink_within_the_pattern_is_refused(tmp_path: Path) -> None:
    """It would read its own output. Beside the pattern, or left out of it, it is not."""
    (block,) = blocks(PAGE, "yaml")
    write(tmp_path / "incoming" / "orders" / "a.parquet", table([1]))
    command = Command(tmp_path, "loop")
    text = block.text.replace("ndjson}", "parquet}").replace("incoming}", "incoming, settle: 0}")
    for directory, path, is_refused in (
        ("incoming", "orders/**/*.parquet", True),
        ("incoming/orders/deep", "**/*.parquet", True),
        ("incoming/orders/deep", "orders/*.parquet", False),
        ("incoming/_out", "**/*.parquet", False),
        ("incoming/out", "**/*.parquet, exclude: [out/**]", False),
        ("incoming/../incoming", "orders/*.parquet", True),
    ):
        changed = text.replace("directory: out", f"directory: {directory}").replace("orders/**/*.parquet", path, 1)
        changed = changed.replace("path: **", "path: '**").replace("path: '**/*.parquet", "path: '**/*.parquet'")
        changed = changed.replace(", exclude: [out/**]", '\n        exclude: ["out/**"]')
        (tmp_path / "inbox.yaml").write_text(changed)
        done = command.run("check", "inbox.yaml")
        assert ("would read its own output" in done.out + done.err) == is_refused, (directory, done.out + done.err)
        assert done.code == (2 if is_refused else 0)

"""A pipeline from the orders of a server into files, run by the command in this process, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from tests.harness.doubles import LoopMover
from tests.sources.tables import execute
from typer.testing import CliRunner, Result

from penstock import wiring
from penstock.cli import app

ORDERS = """
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text);
CREATE TABLE kinds (id int PRIMARY KEY, note text);
INSERT INTO kinds SELECT g, 'kind ' || g FROM generate_series(1, 5) g;
"""


class Shop:
    """The pipeline and what it has delivered. `orders` goes by id, `kinds` is read whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = str(folder / "shop.yaml")

    def write(self, url: str, streams: tuple[str, ...] = ("orders",), **source: Any) -> None:
        ways: dict[str, dict[str, Any]] = {"orders": {"cursor": "id", "unique": True}, "kinds": {}}
        pipeline = {
            "source": {"type": "postgres", "url": url, **source},
            "sink": {"type": "files", "directory": "out"},
            "streams": {name: ways[name] for name in streams},
        }
        Path(self.file).write_text(yaml.safe_dump({"pipelines": {"shop": pipeline}}))

    def penstock(self, verb: str, *words: str) -> Result:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wiring, "make_mover", lambda *_, **__: LoopMover())
            return CliRunner().invoke(app, (*verb.split(), self.file, *words), prog_name="penstock")

    def run(self) -> Result:
        return self.penstock("run")

    def ran(self, verb: str = "run", *words: str) -> Result:
        done = self.penstock(verb, *words)
        assert done.exit_code == 0, done.output
        return done

    def mark(self, stream: str = "orders") -> dict[str, Any]:
        [pipeline] = json.loads(self.penstock("state show", "--json").stdout)["pipelines"]
        marks: dict[str, dict[str, Any]] = {each["stream"]: each["mark"] for each in pipeline["streams"]}
        return marks[stream]

    def ids(self, stream: str = "orders") -> list[int]:
        """All that was delivered, and what `kinds` is now."""
        top = self.folder / "out" / stream
        files = sorted((top / "current" if stream == "kinds" else top).glob("*.parquet"))
        return sorted(key for file in files for key in pq.read_table(file).column("id").to_pylist())


def arrive(url: str, count: int) -> None:
    execute(url, f"INSERT INTO orders (note) SELECT 'order ' || g FROM generate_series(1, {count}) g")

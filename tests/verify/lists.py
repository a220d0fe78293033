"""A list of an API synced into Postgres, and the command that verifies it, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.harness.faults import Command
from tests.harness.rest_server import RestServer
from typer.testing import CliRunner, Result

from penstock.cli import app

FILE = """\
store: .penstock/store.db
pipelines:
  shop:
    source: {{{source}}}
    sink: {sink}
    slice_bytes: 65536
    streams:
      {stream}: {{{options}}}
"""
POSTGRES = '{type: postgres, url: "${DATABASE_URL}", schema: copies}'
REST = 'type: rest, base_url: "${API}/v1", retries: 2, retry_seconds: 0.01'
STRIPE = 'type: stripe, base_url: "${API}/v1", api_key: sk_test_key, rate_limit: 1000'
CHARGES = "time: {lag: 0}, columns: {amount: int64}"


@dataclass
class Listed:
    """A server with lists, a pipeline file whose stream is compared, and its table."""

    server: RestServer
    url: str
    folder: Path
    command: Command
    stream: str = "charges"

    @classmethod
    @contextmanager
    def open(
        cls,
        url: str,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        endpoints: dict[str, dict[str, Any]] | None = None,
        stream: str = "charges",
    ) -> Iterator[Listed]:
        with RestServer(endpoints or {stream: {}}) as server:
            monkeypatch.setenv("API", server.url)
            monkeypatch.setenv("DATABASE_URL", url)
            command = Command(folder, "loop", {"API": server.url, "DATABASE_URL": url})
            listed = cls(server, url, folder, command, stream)
            listed.execute("CREATE SCHEMA copies")
            yield listed

    def write(self, options: str = CHARGES, *, source: str = REST, sink: str = POSTGRES, more: str = "") -> None:
        options = ", ".join(filter(None, (options, more)))
        text = FILE.format(source=source, sink=sink, stream=self.stream, options=options)
        (self.folder / "shop.yaml").write_text(text)

    def fill(self, objects: int = 300, options: str = CHARGES, **more: str) -> None:
        """Write the file, and deliver that many objects, three in a second."""
        self.write(options, **more)
        self.server.arrive(self.stream, objects)
        self.wait()
        self.run()

    def wait(self, seconds: int = 20) -> None:
        """Let the server's clock go on, beyond the lag of the lists."""
        self.server.set_clock(self.server.now + seconds)

    def run(self, *words: str) -> None:
        done = self.penstock("run", *words)
        assert done.exit_code == 0, done.stderr

    def penstock(self, verb: str, *words: str) -> Result:
        return CliRunner().invoke(app, [*verb.split(), str(self.folder / "shop.yaml"), *words], prog_name="penstock")

    def verify(self, *words: str) -> tuple[int, dict[str, Any]]:
        """The exit code, and the document about the stream."""
        done = self.penstock("verify", "--json", *words)
        assert done.stdout, (done.stderr, done.exception)
        [pipeline] = json.loads(done.stdout)["pipelines"]
        assert pipeline["problem"] is None, pipeline
        [stream] = pipeline["streams"]
        return done.exit_code, stream

    def differences(self, *words: str) -> dict[str, list[str]]:
        """The ids that differ, by kind."""
        code, stream = self.verify(*words)
        assert stream["problem"] is None, stream
        found = {kind: [key["id"] for key in keys] for kind, keys in stream["differences"].items() if keys}
        assert (code == 5) == bool(found), (code, found)
        return found

    def repair(self, *words: str) -> None:
        done = self.penstock("verify", "--repair", "--yes", *words)
        assert done.exit_code == 0, (done.stdout, done.stderr)

    def execute(self, query: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(query.encode())

    def query(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as db:
            return db.execute(query.encode()).fetchall()

    def rows(self, columns: str = "id, amount") -> list[tuple[Any, ...]]:
        return self.query(f"SELECT {columns} FROM copies.{self.stream} ORDER BY id")

    def expected(self) -> list[tuple[str, int]]:
        return sorted((each["id"], each["amount"]) for each in self.server.bodies(self.stream))


def charge(*numbers: int) -> list[str]:
    """Ids of charges."""
    return [f"ch_{number:08}" for number in numbers]

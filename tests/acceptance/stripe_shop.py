"""A Stripe account behind the list API of the tests, with events, and the pipeline that follows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.harness.faults import Command, Outcome
from tests.harness.rest_server import RestServer

PIPELINE = """
store: .penstock/store.db
pipelines:
  stripe:
    source: {{type: stripe, base_url: "${{API}}/v1", api_key: sk_test_key, rate_limit: 1000, live: true{source}}}
    sink: {sink}
    slice_bytes: {slice_bytes}
    streams:
{streams}
"""
POSTGRES = '{type: postgres, url: "${DATABASE_URL}"}'
#: how a table shows deletes
HARD, SOFT = "deletes: hard", "deletes: soft, deleted_at: deleted_at"


@dataclass
class StripeShop:
    """A server with lists and a feed, a pipeline file, the command."""

    server: RestServer
    folder: Path
    command: Command
    url: str

    @classmethod
    @contextmanager
    def open(cls, folder: Path, url: str = "", *names: str, mover: str = "loop", **faults: Any) -> Iterator[StripeShop]:
        endpoints: dict[str, dict[str, Any]] = {name: {} for name in (*(names or ("customers",)), "events")}
        with RestServer(endpoints, **faults) as server:
            command = Command(folder, mover, {"API": server.url, "DATABASE_URL": url})
            yield cls(server, folder, command, url)

    def write(
        self,
        options: str = HARD,
        *,
        streams: dict[str, str] | None = None,
        sink: str = POSTGRES,
        source: str = "",
        slice_bytes: int = 1 << 16,
    ) -> None:
        """Write the pipeline file, by default with customers whose options are `options`."""
        chosen = streams or {"customers": f"{{columns: {{amount: int64}}, {options}}}"}
        lines = "\n".join(f"      {stream}: {each}" for stream, each in chosen.items())
        more = f", {source}" if source else ""
        text = PIPELINE.format(source=more, sink=sink, slice_bytes=slice_bytes, streams=lines)
        (self.folder / "stripe.yaml").write_text(text)

    def wait(self, seconds: int = 20) -> None:
        """Let the server's clock go on, beyond the lag of the lists."""
        self.server.set_clock(self.server.now + seconds)

    def run(self, *words: str) -> Outcome:
        done = self.command.run("run", "stripe.yaml", "--json", *words)
        assert done.code == 0, done.err
        return done

    def rows(self, stream: str = "customers") -> list[tuple[str, int]]:
        """The rows of a table, without those that are marked as deleted."""
        with psycopg.connect(self.url) as db:
            found = db.execute(f"SELECT to_jsonb(t) FROM {stream} t".encode()).fetchall()
        return sorted((row["id"], row["amount"]) for (row,) in found if row.get("deleted_at") is None)

    def expected(self, stream: str = "customers") -> list[tuple[str, int]]:
        return sorted((each["id"], each["amount"]) for each in self.server.bodies(stream))


def delivered(done: Outcome) -> int:
    """The rows of a run."""
    rows: int = done.messages[-1]["request_progress"]["rows"]
    return rows


def lines(done: Outcome) -> str:
    return "\n".join(each["text"] for each in done.messages if each["type"] == "log")

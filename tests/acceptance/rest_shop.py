"""A small shop behind a list API and the pipeline that syncs it, for the acceptance tests of the rest source."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.faults import Command
from tests.harness.rest_server import RestServer

PIPELINE = """
store: .penstock/store.db
pipelines:
  shop:
    source: {{type: rest, base_url: "${{API}}/v1", retries: 2, retry_seconds: 0.01{source}}}
    sink: {sink}
    slice_bytes: {slice_bytes}
    streams:
{streams}
"""
FILES = "{type: files, directory: out, format: ndjson}"
CHARGES = {"charges": "{time: {lag: 0}, columns: {amount: int64}}"}


@dataclass
class RestShop:
    """A server with lists, a pipeline file, the command."""

    server: RestServer
    folder: Path
    command: Command

    @classmethod
    @contextmanager
    def open(
        cls,
        folder: Path,
        endpoints: dict[str, dict[str, Any]] | None = None,
        *,
        mover: str = "loop",
        environment: dict[str, str] | None = None,
        **faults: Any,
    ) -> Iterator[RestShop]:
        with RestServer(endpoints or {"charges": {}}, **faults) as server:
            yield cls(server, folder, Command(folder, mover, {"API": server.url, **(environment or {})}))

    def write(
        self,
        streams: dict[str, str] | None = None,
        *,
        source: str = "",
        sink: str = FILES,
        slice_bytes: int = 65536,
        name: str = "shop.yaml",
    ) -> None:
        """Write the pipeline file; `source` are further options of the source."""
        lines = "\n".join(f"      {stream}: {options}" for stream, options in (streams or CHARGES).items())
        more = f", {source}" if source else ""
        text = PIPELINE.format(source=more, sink=sink, slice_bytes=slice_bytes, streams=lines)
        (self.folder / name).write_text(text)

    def rows(self, stream: str = "charges") -> list[dict[str, Any]]:
        """What was delivered into files."""
        paths = sorted((self.folder / "out" / stream).rglob("*.ndjson"))
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def differences(self, stream: str = "charges") -> dict[str, int]:
        """Objects that are missing (negative) or were delivered more than once."""
        found = Counter(row["id"] for row in self.rows(stream))
        found.subtract(id_ for id_, _ in self.server.objects(stream))
        return {id_: count for id_, count in found.items() if count}

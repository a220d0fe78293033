"""Orders in a real Postgres, a pipeline that sends them over HTTP, a recording proxy, and a receiver behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.harness.faults import Command
from tests.harness.http_proxy import HttpProxy

PIPELINE = """
store: .penstock/store.db
pipelines:
  shop:
    source: {{type: postgres, url: "${{DATABASE_URL}}"}}
    sink: {{type: http, url: "{url}", chunk_rows: {chunk_rows}, retry_seconds: 0.01, retry_most: 0.05{options}}}
    slice_bytes: {slice_bytes}
    streams:
      orders: {{cursor: id, unique: true{stream}}}
"""


@dataclass
class HttpShop:
    url: str
    folder: Path
    command: Command
    proxy: HttpProxy
    #: added to the sink
    options: str = ""

    @classmethod
    @contextmanager
    def open(
        cls, database: str, folder: Path, receiver: str, *, options: str = "", rows: int = 900
    ) -> Iterator[HttpShop]:
        folder.mkdir(exist_ok=True)
        with HttpProxy(receiver) as proxy:
            shop = cls(database, folder, Command(folder, "loop", {"DATABASE_URL": database}), proxy, options)
            with psycopg.connect(database, autocommit=True) as db:
                db.execute(
                    "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text, extra int)"
                )
            shop.arrive(rows)
            shop.write()
            yield shop

    def write(self, *, chunk_rows: int = 50, slice_bytes: int = 16384, stream: str = "", options: str = "") -> None:
        text = PIPELINE.format(
            url=self.proxy.url,
            chunk_rows=chunk_rows,
            slice_bytes=slice_bytes,
            options=self.options + options,
            stream=stream,
        )
        (self.folder / "shop.yaml").write_text(text)

    def arrive(self, rows: int) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute("INSERT INTO orders (note, extra) SELECT 'note ' || n, n FROM generate_series(1, %s) n", (rows,))

    def ids(self) -> list[int]:
        with psycopg.connect(self.url) as db:
            return [id_ for (id_,) in db.execute("SELECT id FROM orders ORDER BY id")]

    def run(self) -> None:
        done = self.command.run("run", "shop.yaml")
        assert done.code == 0, done.err

    def resent(self) -> list[str]:
        """Keys that came more than once, each time with the same bytes."""
        found = self.proxy.by_key()
        for key, exchanges in found.items():
            assert len({each.body for each in exchanges}) == 1, key
        return [key for key, exchanges in found.items() if len(exchanges) > 1]

"""A table synced from one schema of a Postgres into another, and the command that verifies it, in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from typer.testing import CliRunner, Result

from penstock.cli import app

FILE = """\
pipelines:
  shop:
    source: {{type: postgres, url: "{url}"}}
    sink: {{type: postgres, url: "{url}", schema: copies}}
    streams:
      orders: {{{stream}}}
"""
CURSOR = 'cursor: updated_at, tiebreaker: id, horizon: {method: "off"}'
TABLE = """
CREATE SCHEMA copies;
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    note text,
    amount numeric(9,2),
    price double precision,
    at timestamptz,
    day date,
    tags text[],
    doc jsonb,
    code char(5),
    raw bytea,
    flag boolean,
    code_id uuid,
    updated_at timestamptz NOT NULL
);
CREATE INDEX ON orders (updated_at, id);
CREATE FUNCTION fill(first int, last int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO orders
    SELECT n, CASE WHEN n % 7 <> 0 THEN 'note ' || n || ' é' END, n / 3.0, n / 7.0,
           '2026-01-01 00:00:00.5+00'::timestamptz + n * interval '1 minute', '2026-01-01'::date + n,
           ARRAY['a', n::text], jsonb_build_object('n', n), 'x' || n % 9, convert_to(n::text, 'UTF8'), n % 2 = 0,
           md5(n::text)::uuid, '2026-01-01 00:00:00+00'::timestamptz + n * interval '1 second'
    FROM generate_series(first, last) n
$$;
"""


@dataclass(frozen=True)
class Copied:
    """One database with `public.orders` and its copy in `copies.orders`."""

    url: str
    folder: Path

    @classmethod
    def make(cls, url: str, folder: Path, rows: int = 100, stream: str = CURSOR, sink: str = "") -> Copied:
        copied = cls(url, folder)
        copied.write(stream, sink)
        copied.execute(TABLE)
        copied.execute(f"SELECT fill(1, {rows})")
        assert copied.penstock("run").exit_code == 0
        return copied

    def write(self, stream: str = CURSOR, sink: str = "") -> None:
        text = FILE.format(url=self.url, stream=", ".join(filter(None, (stream, sink))))
        (self.folder / "shop.yaml").write_text(text)

    def execute(self, query: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(query.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as db:
            return db.execute(query.encode()).fetchall()

    def penstock(self, verb: str, *words: str) -> Result:
        return CliRunner().invoke(app, [*verb.split(), str(self.folder / "shop.yaml"), *words], prog_name="penstock")

    def verify(self, *words: str) -> tuple[int, dict[str, Any]]:
        """The exit code, and the document about the stream."""
        done = self.penstock("verify", "--json", *words)
        assert done.stdout, (done.stderr, done.exception)
        [pipeline] = json.loads(done.stdout)["pipelines"]
        assert pipeline["problem"] is None, pipeline
        return done.exit_code, pipeline["streams"][0]

    def differences(self, *words: str) -> dict[str, list[str]]:
        code, stream = self.verify(*words)
        found = {kind: [key["id"] for key in keys] for kind, keys in stream["differences"].items() if keys}
        assert (code == 5) == bool(found), (code, found)
        return found

    def is_copied(self) -> bool:
        columns = "id, note, amount, price, at, day, tags, doc, code, raw, flag, code_id, updated_at"
        sides = (f"SELECT {columns} FROM public.orders", f"SELECT {columns} FROM copies.orders")
        return not any(self.rows(f"({one}) EXCEPT ALL ({other})") for one, other in (sides, sides[::-1]))

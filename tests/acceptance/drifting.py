"""A table whose columns change, and what arrives of it in files and in the lake: the ground of the tests of drift."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from typer.testing import CliRunner

from penstock import wiring
from penstock.cli import app
from penstock.errors import StreamFailed
from penstock.lake.lake import Lake
from penstock.lake.options import LakeOptions
from penstock.lake.tables import load_table
from tests.harness.doubles import LoopMover

ORDERS = """
CREATE TABLE orders (
    id integer PRIMARY KEY,
    updated_at timestamptz NOT NULL,
    amount integer DEFAULT (random() * 1000)::int,
    big bigint DEFAULT (random() * 1000)::bigint,
    note text DEFAULT 'note ' || md5(random()::text),
    label text DEFAULT 'label ' || md5(random()::text)
);
CREATE INDEX ON orders (updated_at, id)
"""
PIPELINE = """
pipelines:
  shop:
    source: {{type: postgres, url: "{url}"}}
    sink: {sink}
    streams:
      orders: {stream}
"""
SINKS: dict[str, dict[str, Any]] = {"files": {"type": "files", "directory": "out"}, "lake": {"type": "lake"}}
Row = dict[str, Any]


@dataclass
class Said:
    """How a command ended, and what it said."""

    code: int
    out: str
    messages: list[dict[str, Any]]

    @property
    def logs(self) -> list[tuple[str, str]]:
        return [(each["level"], each["text"]) for each in self.messages if each["type"] == "log"]

    @property
    def lines(self) -> list[str]:
        return [text for _, text in self.logs]

    @property
    def error(self) -> dict[str, Any]:
        (found,) = [each for each in self.messages if each["type"] == "stream_status" and each["status"] == "error"]
        return found


@dataclass
class Ground:
    """A database with orders, a pipeline file, the command in this process."""

    url: str
    folder: Path
    sink: str = "files"
    stream: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0
    #: orders so far: each comes a second after the one before
    moment: int = 0

    def __post_init__(self) -> None:
        self.sql(ORDERS)
        self.write("evolve")
        self.arrive(5)

    def write(self, drift: str, **more: Any) -> None:
        stream = {"cursor": "updated_at", "tiebreaker": "id", **self.stream, "drift": drift, **more}
        text = PIPELINE.format(url=self.url, sink=json.dumps(SINKS[self.sink]), stream=json.dumps(stream))
        (self.folder / "shop.yaml").write_text(text)

    def sql(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            for statement in statements:
                db.execute(statement.encode())

    def arrive(self, count: int, **values: str) -> range:
        """New orders; columns have the values of their defaults, or of the SQL that is given."""
        ids = range(self.rows + 1, self.rows + count + 1)
        names = sql.SQL(", ").join(map(sql.Identifier, ("id", "updated_at", *values)))
        given = sql.SQL("").join(sql.SQL(", " + text) for text in values.values())
        query = sql.SQL(
            "INSERT INTO orders ({}) SELECT {} + g, timestamptz '2026-01-01 00:00+00' + ({} + g) * interval '1 second'"
            "{} FROM generate_series(1, {}) g"
        ).format(names, sql.Literal(self.rows), sql.Literal(self.moment), given, sql.Literal(count))
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(query)
        self.rows += count
        self.moment += count
        return ids

    # ------------------------------------------------------------ the command

    def command(self, verb: str, *words: str, file: str = "shop.yaml") -> Said:
        done = CliRunner().invoke(app, [*verb.split(), str(self.folder / file), *words], prog_name="penstock")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"type"')]
        return Said(done.exit_code, done.stdout, messages)

    def run(self, *words: str) -> Said:
        return self.command("run", "--json", *words)

    def ran(self, *words: str) -> Said:
        done = self.run(*words)
        assert done.code == 0, done.out
        return done

    # ------------------------------------------------------------ what there is

    def broken(self) -> None:
        """A run that dies once its slice is open and the sink has made room for it."""

        class Dying(LoopMover):
            def move(self, *_: Any) -> Any:
                raise StreamFailed("the worker died", next_step="run again")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wiring, "make_mover", lambda *_, **__: Dying())
            assert self.run().code == 1

    def source(self, ids: range) -> dict[int, Row]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as db:
            found = db.execute("SELECT * FROM orders WHERE id BETWEEN %s AND %s", (ids.start, ids.stop - 1)).fetchall()
        assert len(found) == len(ids)
        return {row["id"]: row for row in found}

    def landed(self) -> dict[int, Row]:
        """Every row that readers of the sink see, by id; each id once."""
        table = self.table()
        rows = table.drop_columns([name for name in ("_ingest_seq", "_tombstone") if name in table.column_names])
        found = {row["id"]: row for row in rows.to_pylist()}
        assert len(found) == table.num_rows, "each row once"
        return found

    def table(self) -> pa.Table:
        if self.sink == "files":
            paths = sorted((self.folder / "out" / "orders").glob("*.parquet"))
            schemas = [pq.read_schema(path) for path in paths]
            return ds.dataset(paths, schema=pa.unify_schemas(schemas, promote_options="permissive")).to_table()
        table = load_table(Lake.from_options(LakeOptions(), folder=str(self.folder), pipeline="shop"), "orders")
        assert table is not None
        return table.scan().to_arrow()

    def type(self, column: str) -> str:
        return str(self.table().schema.field(column).type).removeprefix("large_")


def same(found: Mapping[int, Row], wanted: Mapping[int, Row]) -> None:
    """The rows that are wanted are there with these values; columns that they do not have are NULL."""
    for id_, row in wanted.items():
        blank = dict.fromkeys(found[id_])
        assert found[id_] == blank | row

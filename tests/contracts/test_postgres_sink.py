"""The postgres sink keeps the contract of every sink, adding rows and merging them by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import psycopg
import pytest
from psycopg import sql

from penstock.core.slices import Kind
from penstock.ports import Context, NoProbe, Probe, StreamInfo
from penstock.sinks.postgres import Options, PostgresSink, StreamOptions, build
from penstock.testing.contracts.delivery import (
    PIPELINE,
)
from penstock.testing.contracts.sink import SinkContract

#: names of streams that are more than the name of a table
TABLES = {name: f"t{number}" for number, name in enumerate(["orders.items", ".orders", "a.b"])}


class Streams(dict[str, StreamOptions]):
    """Every stream, whatever its name, has the same options, and a table of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def get(self, name: str, default: Any = None) -> StreamOptions:
        return StreamOptions(into=TABLES.get(name, f'"{name}"'), **self.options)


class Database:
    """Tables, read by SQL."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url, self.options = url, options
        self.opened: list[PostgresSink] = []

    def open(self, probe: Probe, pipeline: str = PIPELINE) -> PostgresSink:
        options = Options.model_validate({"url": self.url, "lock_timeout": 0.5})
        sink = build(options, Streams(**self.options), Context(pipeline=pipeline, folder=".", probe=probe))
        self.opened.append(sink)
        return sink

    def close(self) -> None:
        for sink in self.opened:
            sink.close()

    def occupy(self, stream: str, *ids: int) -> None:
        with psycopg.connect(self.url) as db:
            name = self._name(stream)
            db.execute(sql.SQL("CREATE TABLE {} (id bigint PRIMARY KEY, text text)").format(name))
            for id_ in ids:
                db.execute(sql.SQL("INSERT INTO {} VALUES (%s, 'theirs')").format(name), [id_])

    def rows(self, stream: str, column: str = "id") -> list[int]:
        with psycopg.connect(self.url) as db:
            try:
                query = sql.SQL("SELECT {} FROM {} ORDER BY ctid")
                found = db.execute(query.format(sql.Identifier(column), self._name(stream)))
            except psycopg.errors.UndefinedTable:
                return []
            return [id_ for (id_,) in found.fetchall()]

    def count_leftovers(self) -> int:
        with psycopg.connect(self.url) as db:
            found = db.execute(
                "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('penstock_sink') "
                r"AND relkind = 'r' AND relname LIKE 's\_%'"
            ).fetchone()
        assert found
        return int(found[0])

    def damage(self, stream: str) -> None:
        with psycopg.connect(self.url) as db:
            db.execute(sql.SQL("DROP TABLE {}").format(self._name(stream)))

    def _name(self, stream: str) -> sql.Identifier:
        return sql.Identifier(self.open(NoProbe()).table(stream).name)


class TestAppend(SinkContract):
    COMMITS_AT_ONCE: ClassVar[bool] = True
    OPTIONS: ClassVar[dict[str, Any]] = {"mode": "append"}

    @pytest.fixture
    def destination(self, database: str) -> Iterator[Database]:
        made = Database(database, **self.OPTIONS)
        yield made
        made.close()


class TestUpsert(TestAppend):
    """One row for each key."""

    KEYED: ClassVar[bool] = True
    AFTER_A_DELETE: ClassVar[list[int] | None] = [2]

    OPTIONS: ClassVar[dict[str, Any]] = {"mode": "upsert", "key": ("id",)}


def test_a_stream_info_gives_the_key(database: str) -> None:
    sink = build(Options.model_validate({"url": database}), {}, Context(pipeline="p", folder=".", probe=NoProbe()))
    assert sink.config(StreamInfo("orders", Kind.ROWS, ("id",))).key == ("id",)
    assert sink.config(StreamInfo("orders", Kind.ROWS)).key == ()

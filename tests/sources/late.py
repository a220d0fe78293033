"""Tables that are written by transactions which take their time, and a stream that is read run by run meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from tests.sources.tables import source

from penstock.core.content import Content
from penstock.core.documents import Document, canonical
from penstock.core.marks import Position
from penstock.core.slices import Slice, following
from penstock.ports import Budget, Remaining
from penstock.sources.postgres import PostgresSource

STAMPED = """
CREATE TABLE t (id int PRIMARY KEY, c timestamptz, note text);
CREATE INDEX ON t (c, id);
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.c := now(); RETURN NEW; END';
CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION stamp();
"""
#: the application says when
TOLD = "CREATE TABLE t (id int PRIMARY KEY, c {type} NOT NULL DEFAULT now(), note text); CREATE INDEX ON t (c, id)"
NUMBERED = "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text)"

BY_TIME = {"cursor": "c", "tiebreaker": "id"}
BY_NUMBER = {"cursor": "id", "unique": True}
#: quick enough for tests, and far more than a server needs
QUICK = {"margin": 0.05}


@dataclass
class Run:
    """What a run has done."""

    ids: list[int]
    ceiling: Document | None
    left: Remaining | None
    #: slices that went through, those without rows too
    slices: int

    @property
    def told(self) -> Any:
        return self.ceiling["horizon"] if self.ceiling else None

    @property
    def proof(self) -> Any:
        return self.ceiling["proof"] if self.ceiling else None


@dataclass
class Reads:
    """A stream `t`, read by a new source in each run, as a new process would."""

    url: str
    options: dict[str, Any]
    horizon: dict[str, Any] = field(default_factory=dict)
    last: Position | None = None
    delivered: list[int] = field(default_factory=list)
    runs: int = 0

    def open(self) -> PostgresSource:
        return source(self.url, {"t": {**self.options, "horizon": {**QUICK, **self.horizon}}})

    def run(self, origin: PostgresSource | None = None) -> Run:
        self.runs += 1
        origin = origin or self.open()
        content = origin.content("t")
        if self.last:
            origin.accept("t", self.last, content)
        mark = self.last.mark if self.last else None
        ceiling = origin.ceiling("t", content, f"run {self.runs}", mark)
        left = origin.remaining("t", content, mark, ceiling) if ceiling else None
        found = Run([], ceiling, left, 0)
        while ceiling is not None:
            slice_ = self.planned(origin, content, ceiling)
            if slice_ is None:
                break
            with origin.reading(slice_) as reading:
                for part in reading.parts:
                    with reading.reader.open(part) as batches:
                        found.ids += batches.read_all()["id"].to_pylist()
            assert slice_.upto
            assert slice_.upto.text == canonical(slice_.upto.document)
            self.last = slice_.position
            found.slices += 1
            assert found.slices < 10, "the run does not end"
        self.delivered += found.ids
        return found

    def planned(self, origin: PostgresSource, content: Content, ceiling: Document) -> Slice | None:
        """The next slice, which is not read yet."""
        mark = self.last.mark if self.last else None
        planned = origin.plan("t", content, mark, ceiling, Budget(bytes=1 << 30, workers=2))
        if planned is None:
            return None
        return following(
            self.last,
            pipeline="shop",
            stream="t",
            upto=planned.upto,
            content=content,
            kind=planned.kind,
            plan=planned.plan,
        )

    @property
    def mark(self) -> Any:
        assert self.last
        assert self.last.mark
        return self.last.mark.document


@contextmanager
def writer(url: str, name: str = "writer") -> Iterator[psycopg.Connection[Any]]:
    """A connection whose transactions are begun and ended by hand."""
    with psycopg.connect(url, autocommit=True, application_name=name) as connection:
        yield connection


def tell(connection: psycopg.Connection[Any], *statements: str) -> None:
    for statement in statements:
        connection.execute(statement.encode())

"""A first load as runs do it: planned, read and planned again, every slice by sources of its own, as after a kill."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from tests.sources.tables import execute, rows, source

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Position
from penstock.core.slices import Slice, following
from penstock.ports import Budget
from penstock.sources.postgres import PostgresSource

#: a trigger that gives each updated row another place
STAMP = """
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.c := now(); RETURN NEW; END $$;
CREATE TRIGGER stamp BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION stamp();
"""

#: rows that are said to be of a thousand bytes
ROW = 1000


def of(rows: int, workers: int = 2, most: int | None = None) -> Budget:
    """Slices of so many rows, by bytes."""
    return Budget(bytes=rows * ROW, row_bytes=float(ROW), workers=workers, rows=most)


@dataclass
class Loader:
    """A stream that is read, and where it is."""

    url: str
    #: of the stream
    options: dict[str, Any]
    #: of the source
    said: dict[str, Any]
    budget: Budget
    stream: str = "t"
    last: Position | None = None
    ceiling: Document | None = None
    content: Content = field(default_factory=lambda: Content(()))
    slices: list[Slice] = field(default_factory=list)
    #: `n` of the rows of each part of each slice
    parts: list[list[list[int]]] = field(default_factory=list)
    #: every row that was read, with all of its columns
    versions: list[tuple[Any, ...]] = field(default_factory=list)

    def open(self) -> PostgresSource:
        return source(self.url, {self.stream: self.options}, **self.said)

    @property
    def rows(self) -> list[int]:
        return [n for slice_ in self.parts for part in slice_ for n in part]

    @property
    def plans(self) -> list[dict[str, Any]]:
        return [json.loads(slice_.plan) for slice_ in self.slices]

    @property
    def words(self) -> list[str]:
        """What people are told of each mark."""
        with closing(self.open()) as origin:
            return [origin.describe(slice_.upto) for slice_ in self.slices]

    @property
    def by_load(self) -> list[bool]:
        """Of each slice, whether it belongs to a load."""
        return ["load" in plan for plan in self.plans]

    def begin(self, run: str = "run") -> "Loader":
        """A run begins: its ceiling is frozen."""
        with closing(self.open()) as origin:
            self.content = origin.content(self.stream)
            self.ceiling = origin.ceiling(self.stream, self.content, run, self.last.mark if self.last else None)
        return self

    def plan(self) -> Slice | None:
        """The next slice of the run, which is not read yet."""
        with closing(self.open()) as origin:
            return self._plan(origin)

    def _plan(self, origin: PostgresSource) -> Slice | None:
        if self.ceiling is None:
            return None
        if self.last:
            origin.accept(self.stream, self.last, self.content)
        mark = self.last.mark if self.last else None
        planned = origin.plan(self.stream, self.content, mark, self.ceiling, self.budget)
        if planned is None:
            return None
        return following(
            self.last,
            pipeline="shop",
            stream=self.stream,
            upto=planned.upto,
            content=self.content,
            kind=planned.kind,
            plan=planned.plan,
        )

    def read(self, slice_: Slice) -> list[list[int]]:
        """The rows of each part."""
        with closing(self.open()) as origin:
            return self._read(origin, slice_)

    def _read(self, origin: PostgresSource, slice_: Slice) -> list[list[int]]:
        with origin.reading(slice_) as reading:
            tables = [reading.reader.open(part).read_all() for part in reading.parts]
        self.versions += [tuple(row.values()) for table in tables for row in table.to_pylist()]
        return [table["n"].to_pylist() for table in tables]

    def keep(self, slice_: Slice, parts: list[list[int]]) -> None:
        self.slices.append(slice_)
        self.parts.append(parts)
        self.last = slice_.position

    def turn(self) -> bool:
        """One slice; False: there is none."""
        with closing(self.open()) as origin:
            slice_ = self._plan(origin)
            if slice_:
                self.keep(slice_, self._read(origin, slice_))
        return slice_ is not None

    def run(self, between: Callable[[], None] | None = None) -> "Loader":
        """A run to its end."""
        self.begin()
        while self.turn():
            assert len(self.slices) < 200, "the run does not end"
            if between:
                between()
        return self


def loader(url: str, budget: Budget, *, said: dict[str, Any] | None = None, **options: Any) -> Loader:
    """By keys, along `c` and `id`, unless it is said otherwise; open transactions of other tests hold nothing back."""
    chosen = {"cursor": "c", "tiebreaker": "id", "first_load": "keys", "columns": ["n"], **options}
    return Loader(url, chosen, {"horizon": {"method": "off"}, **(said or {})}, budget)


def made(url: str, *more: str, key: str = "int", value: str = "g", count: int = 1000) -> None:
    """Rows numbered by `n`, with a key of any type and a cursor of which many share each value."""
    execute(
        url,
        f"CREATE TABLE t (n int, id {key} PRIMARY KEY, c timestamptz NOT NULL); CREATE INDEX ON t (c, id)",
        f"INSERT INTO t SELECT g, {value}, timestamptz '2024-01-01Z' + (g * 31 % 97) * interval '1 s'"
        f" FROM generate_series(1, {count}) g",
        *more,
    )


def numbers(url: str) -> list[int]:
    return [row[0] for row in rows(url, "SELECT n FROM t ORDER BY 1")]

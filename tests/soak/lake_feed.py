"""Sources for the lake's soak: logs of rows in SQLite files, which grow on their own and outlive whoever reads them."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.core.content import Content
from penstock.core.documents import Document, canonical, parse
from penstock.core.marks import Mark, Position
from penstock.core.slices import Kind, Part, Slice
from penstock.ports import Budget, DiscoveredStream, Planned, Reading, Remaining, Remark, StreamInfo
from tests.harness.contents import columns_of as columns_in

#: columns of a log row and of a change, beside the place in its feed
LOG = pa.schema([("writer", pa.int64()), ("place", pa.int64()), ("body", pa.string())])
CHANGES = pa.schema([("place", pa.int64()), ("key", pa.int64()), ("version", pa.int64()), ("body", pa.string())])
#: places that one slice takes, and one part of it
SLICE, PART = 300, 120


@dataclass(frozen=True)
class Feed:
    """A file of rows; the row at place n is the n-th that arrived, and never changes."""

    path: Path
    #: what a row has, besides `_change` in a feed of changes
    schema: pa.Schema
    changes: bool = False

    def make(self) -> Feed:
        with self._open() as db:
            db.execute("pragma journal_mode = wal")
            columns = ", ".join(name for name in self.schema.names if name != "place")
            extra = ", _change" if self.changes else ""
            db.execute(f"create table rows (place integer primary key, {columns}{extra})")
        return self

    def arrive(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows at the end, each with its values in the order of the columns, without the place."""
        with self._open() as db:
            db.executemany(f"insert into rows values (null, {', '.join('?' * len(rows[0]))})", rows)

    @property
    def top(self) -> int:
        """The last place that is taken."""
        with self._open() as db:
            found: int = db.execute("select coalesce(max(place), 0) from rows").fetchone()[0]
        return found

    def between(self, after: int, upto: int) -> pa.Table:
        names = [*self.schema.names, *(["_change"] if self.changes else [])]
        schema = self.schema.append(pa.field("_change", pa.string())) if self.changes else self.schema
        with self._open() as db:
            ask = f"select {', '.join(names)} from rows where place > ? and place <= ? order by place"
            found = db.execute(ask, (after, upto)).fetchall()
        columns = list(zip(*found, strict=True)) or [()] * len(names)
        return pa.table([pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema)

    def everything(self) -> pa.Table:
        return self.between(0, self.top)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self.path, timeout=60)) as db, db:
            db.execute("pragma synchronous = off")  # processes are killed here, machines are not
            yield db


def some_log_rows(chance: random.Random, writer: int) -> list[tuple[Any, ...]]:
    return [(writer, "x" * chance.randrange(40)) for _ in range(chance.randrange(1, 40))]


def some_changes(chance: random.Random, beginning: int, keys: int) -> list[tuple[Any, ...]]:
    """Upserts and deletes of random keys, now and then of one key twice; `beginning` makes versions grow."""
    found: list[tuple[Any, ...]] = []
    for offset in range(chance.randrange(1, 40)):
        key = chance.randrange(keys)
        gone = chance.random() < 0.2
        found.append((key, None, None, "delete") if gone else (key, beginning + offset, "y" * key, "upsert"))
    return found


@dataclass(frozen=True)
class _FeedReader:
    feed: Feed

    def open(self, part: Part) -> pa.RecordBatchReader:
        terms = parse(part.terms)
        return self.feed.between(terms["after"], terms["upto"]).to_reader()


class FeedSource:
    """One stream: a feed, read by place."""

    def __init__(self, stream: str, feed: Feed, key: tuple[str, ...] = ()) -> None:
        self.stream, self.feed, self.key = stream, feed, key

    def connect(self) -> None:
        return None

    def catalog(self) -> Sequence[StreamInfo]:
        return [StreamInfo(self.stream, Kind.ROWS, self.key, ("place",))]

    def content(self, stream: str) -> Content:
        columns = columns_in(self.feed.schema)
        return Content(columns, changes=self.feed.changes, identity={"path": self.feed.path.name})

    def accept(self, stream: str, last: Position, content: Content) -> None:
        return None

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        return ()

    def advanced(self, stream: str, position: Position) -> None:
        return None

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        return {"place": self.feed.top}

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        at, top = _place(after), ceiling["place"]
        assert isinstance(top, int)
        upto = min(top, at + SLICE)
        return Planned(Mark.of({"place": upto}), rows=upto - at) if upto > at else None

    def discover(self) -> Sequence[DiscoveredStream]:
        raise NotImplementedError

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        return Remaining(None)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        raise NotImplementedError

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        after, upto = _place(slice_.after), _place(slice_.upto)
        parts = [
            Part(index, canonical({"after": begin, "upto": min(begin + PART, upto)}))
            for index, begin in enumerate(range(after, upto, PART))
        ]
        yield Reading(_FeedReader(self.feed), parts)

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        raise NotImplementedError

    def describe(self, mark: Mark | None) -> str:
        return f"place {_place(mark)}"

    def close(self) -> None:
        return None


def _place(mark: Mark | None) -> int:
    place: Any = mark.document["place"] if mark else 0
    return int(place)

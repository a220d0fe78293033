"""Reads new rows of append-only SQLite tables by AUTOINCREMENT key: with one writer, keys follow the commits."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from penstock import connector as api

TYPES = {"INTEGER": api.Plain.INT64, "REAL": api.Plain.FLOAT64, "TEXT": api.Plain.STRING, "BLOB": api.Plain.BINARY}
BEGINNING = api.Mark.of({"rowid": 0})


class Options(api.OptionsModel):
    path: str


class StreamOptions(api.OptionsModel):
    """None: a stream is the table of its name."""


def build(options: Options, streams: Mapping[str, StreamOptions], context: api.Context) -> "SqliteSource":
    return SqliteSource(Path(context.folder, options.path).resolve(), tuple(streams))


@dataclass(frozen=True)
class SqliteSource:
    path: Path
    streams: Sequence[str]

    def query(self, sql: str, *values: object) -> Iterator[list[tuple]]:
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as db:
            yield from iter(partial(db.execute(sql, values).fetchmany, 10_000), [])

    def select(self, table: str, names: Sequence[str]) -> str:
        table, *columns = ('"' + name.replace('"', '""') + '"' for name in (table, *names))
        # Qualified: SQLite takes a quoted name that is not a column for a string.
        return f"SELECT t.{', t.'.join(columns)} FROM {table} t WHERE rowid > ? AND rowid <= ? ORDER BY rowid"  # noqa: S608

    def connect(self) -> None:
        try:
            list(self.query("SELECT name FROM sqlite_master"))
        except sqlite3.Error as error:
            raise api.ConnectionFailed(f"cannot read {self.path}: {error}", next_step="check `path`") from error

    def catalog(self) -> list[api.StreamInfo]:
        return [api.StreamInfo(name, api.Kind.ROWS, order=("rowid",), in_order=True) for name in self.streams]

    def content(self, stream: str) -> api.Content:
        found = [row for rows in self.query("SELECT name, type, pk FROM pragma_table_info(?)", stream) for row in rows]
        made = list(self.query("SELECT sql FROM sqlite_master WHERE name = ?", stream))
        if "AUTOINCREMENT" not in str(made).upper() or any(type_ not in TYPES for _, type_, _ in found):
            why = f"{stream} needs an AUTOINCREMENT key, and columns of the types {', '.join(TYPES)}"
            raise api.StreamRefused(why, next_step="change the table", stream=stream)
        columns = tuple(api.Column(name, TYPES[type_], origin=type_) for name, type_, _ in found)
        identity = {"database": str(self.path), "table": stream}
        return api.Content(columns, key=tuple(name for name, _, pk in found if pk), identity=identity)

    def accept(self, stream: str, last: api.Position, content: api.Content) -> None:
        ours = last.mark is None or list(last.mark.document) == ["rowid"]
        if not ours or api.Content.parse(last.content).identity != content.identity:
            raise api.StreamRefused("the mark is of another table", next_step="use that table", stream=stream)

    def ceiling(self, stream: str, content: api.Content, run: str, after: api.Mark | None = None) -> dict | None:
        newest = list(self.query("SELECT seq FROM sqlite_sequence WHERE name = ?", stream))
        return {"rowid": newest[0][0][0]} if newest else None

    def plan(
        self, stream: str, content: api.Content, after: api.Mark | None, ceiling: api.Document, budget: api.Budget
    ) -> api.Planned | None:
        limit = int(min(budget.bytes / (budget.row_bytes or 100), budget.rows or budget.bytes)) or 1
        sql = f"WITH t(k) AS ({self.select(stream, ['rowid'])} LIMIT ?) SELECT max(k), count(*) FROM t"  # noqa: S608
        (((upto, count),),) = self.query(sql, (after or BEGINNING).document["rowid"], ceiling["rowid"], limit)
        return api.Planned(api.Mark.of({"rowid": upto}), rows=count, exact=True) if count else None

    @contextmanager
    def reading(self, slice_: api.Slice) -> Iterator[api.Reading]:
        self.accept(slice_.stream, slice_.position, now := self.content(slice_.stream))
        if not set(api.Content.parse(slice_.content).columns) <= set(now.columns):
            raise api.StreamRefused("a column of the open slice is gone", next_step="restore it", stream=slice_.stream)
        bounds = [(mark or BEGINNING).document["rowid"] for mark in (slice_.after, slice_.upto)]
        yield api.Reading(self, [api.Part(0, api.canonical({"content": slice_.content, "bounds": bounds}))])

    def open(self, part: api.Part) -> pa.RecordBatchReader:
        terms = api.parse(part.terms)
        content = api.Content.parse(terms["content"])
        schema, sql = api.arrow_schema(content.columns), self.select(content.identity["table"], content.names)
        blocks = (zip(*rows, strict=True) for rows in self.query(sql, *terms["bounds"]))
        batches = (pa.record_batch(list(map(pa.array, block, schema.types)), schema=schema) for block in blocks)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def describe(self, mark: api.Mark | None) -> str:
        return f"rowid {(mark or BEGINNING).document['rowid']}"

    def close(self) -> None: ...

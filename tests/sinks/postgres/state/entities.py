"""A table of entities in a real database, slices of documents delivered to it, and the reference fold beside."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import psycopg
import pyarrow as pa

from penstock.core.content import Column, Content
from penstock.core.marks import Mark, Position
from penstock.core.ops import FEED_COLUMNS, FanOut, Layout, Record, Row, State, fold
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Slice, following
from penstock.core.types import Plain
from penstock.ports import Context, NoProbe, Probe, StreamInfo
from penstock.sinks.postgres import Options, PostgresSink, StreamOptions, build
from penstock.testing.contracts.delivery import stage_parts

STREAM = "images"
INFO = StreamInfo(STREAM, Kind.ROWS, primary_key=("id",))
START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("document", pa.string())])

#: images have a post, which sets their title
PLAIN = Layout(
    key=(Column("id", Plain.INT64, "bigint"),),
    scalars=(Column("post", Plain.INT64, "bigint"), Column("size", Plain.INT64), Column("title", Plain.STRING)),
    multi=(Column("tags", Plain.STRING, "text"),),
    fan_outs=(FanOut("posts", ("post",), ("title",)),),
)
#: a post also sets the author, by whom a user sets the name
CHAIN = Layout(
    key=(Column("id", Plain.INT64, "bigint"),),
    scalars=(
        *(Column(name, Plain.INT64, "bigint") for name in ("post", "author", "size")),
        *(Column(name, Plain.STRING, "text") for name in ("title", "name")),
    ),
    multi=(Column("tags", Plain.STRING, "text"),),
    fan_outs=(FanOut("users", ("author",), ("name",)), FanOut("posts", ("post",), ("title", "author"))),
)

#: a key of two columns, and a fan-out that matches on two fields
PAIR = Layout(
    key=(Column("shop", Plain.STRING, "text"), Column("no", Plain.INT64, "bigint")),
    scalars=(*PLAIN.scalars, Column("size2", Plain.INT32, "integer")),
    multi=(*PLAIN.multi, Column("ranks", Plain.INT64, "bigint")),
    fan_outs=(FanOut("posts", ("post", "size"), ("title",)),),
)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


@dataclass
class Entities:
    """One stream of one pipeline."""

    url: str
    layout: Layout = PLAIN
    options: Mapping[str, Any] = field(default_factory=dict)
    pipeline: str = "shop"
    probe: Probe = field(default_factory=NoProbe)
    last: Position | None = None
    state: State = field(default_factory=State)
    quarantined: list[tuple[int, Any]] = field(default_factory=list)
    early: int = 0
    said: list[str] = field(default_factory=list)
    ids: Iterable[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def content(self) -> Content:
        return Content(FEED_COLUMNS, key=("id",), identity={"stream": STREAM}, entities=self.layout.document())

    def open(self) -> PostgresSink:
        context = Context(self.pipeline, ".", self.probe, say=self._hear, warn=self._hear)
        streams = {STREAM: StreamOptions.model_validate({"mode": "state", **self.options})}
        return build(Options.model_validate({"url": self.url, "lock_timeout": 5}), streams, context)

    def _hear(self, stream: str, text: str) -> None:
        self.said.append(text)

    def check(self) -> None:
        with closing(self.open()) as sink:
            sink.begin_run([INFO])
            sink.check(INFO, self.content)

    def slice(self) -> Slice:
        number = self.last.number + 1 if self.last else 1
        upto = Mark.of({"key": [str(number)]})
        return following(self.last, pipeline=self.pipeline, stream=STREAM, upto=upto, content=self.content)

    def deliver(self, *documents: Any, parts: int = 1) -> Outcome:
        """One slice of these documents, checked and committed; a string is a document as it is."""
        rows = [(next(iter(self.ids)), document) for document in documents]
        slice_ = self.slice()
        with closing(self.open()) as sink:
            sink.begin_run([INFO])
            sink.check(INFO, self.content)
            receipts = stage_parts(sink, slice_, *tables(rows, parts))
            outcome = sink.commit(slice_, "a1", receipts)
            held = sink.held(STREAM)
        assert held is not None
        assert held.position == slice_.position
        self.last = slice_.position
        self.follow(rows)
        return outcome

    def follow(self, rows: Sequence[tuple[int, Any]]) -> None:
        """The reference fold of the same documents."""
        decoded = [Row(id_, _decode(document), id_) for id_, document in rows]
        folded = fold(self.state, self.layout.shape, decoded)
        self.state = folded.state
        self.early += folded.early
        self.quarantined += [(each.row, each.op) for each in folded.quarantined]

    # ------------------------------------------------------------ what is there

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as db:
            return db.execute(query.encode()).fetchall()

    def run(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(statement.encode())

    def found(self) -> State:
        """The state in the database, as the reference has it."""
        names = [column.name for column in self.layout.scalars]
        multi = [column.name for column in self.layout.multi]
        columns = ", ".join(
            f'"{column.name}"' for column in (*self.layout.key, *self.layout.scalars, *self.layout.multi)
        )
        entities = {}
        for row in self.rows(f"SELECT {columns} FROM {STREAM}"):
            values = row[len(self.layout.key) :]
            text = key_text(row[: len(self.layout.key)])
            scalars = {name: value for name, value in zip(names, values, strict=False) if value is not None}
            lists = zip(multi, values[len(names) :], strict=True)
            sets = {name: frozenset(map(json.dumps, each)) for name, each in lists if each}
            assert all(len(set(each)) == len(each) for each in values[len(names) :])
            entities[text] = Record(scalars, sets)
        early, since = dict[str, Record](), dict[str, int]()
        for parts, when, fields in self.rows("SELECT key, since, fields FROM penstock_sink.early_ops"):
            key = key_text([int(part) if part.isdigit() else part for part in parts])
            early[key] = Record(
                {name: self._typed(name, value) for name, value in fields["scalars"].items()},
                {name: frozenset(self._text(name, v) for v in values) for name, values in fields["multi"].items()},
            )
            since[key] = round((when - START).total_seconds())
        kept = "SELECT fan_out, match, fields FROM penstock_sink.fan_out_values"
        fan_outs = {
            (table, tuple(match)): {name: self._typed(name, value) for name, value in fields.items()}
            for table, match, fields in self.rows(kept)
        }
        return State(entities, early, since, fan_outs)

    def _typed(self, name: str, value: str | None) -> Any:
        return int(value) if value is not None and is_number(self.layout, name) else value

    def _text(self, name: str, value: str) -> str:
        return json.dumps(self._typed(name, value))

    def differences(self) -> list[str]:
        """How the database differs from the reference; empty: it does not."""
        found, wanted = self.found(), self.state
        noted = sorted(
            (key["id"], json.dumps(key["op"], sort_keys=True))
            for (key,) in self.rows("SELECT key FROM penstock_sink.quarantine ORDER BY id")
        )
        expected = sorted((id_, json.dumps(op, sort_keys=True)) for id_, op in self.quarantined)
        pairs: list[tuple[str, Any, Any]] = [
            ("entities", found.entities, wanted.entities),
            ("early", found.early, wanted.early),
            ("since", found.early_since, wanted.early_since),
            ("fan-outs", found.fan_outs, wanted.fan_outs),
            ("quarantine", noted, expected),
        ]
        return [f"{what}: {one} and not {other}" for what, one, other in pairs if one != other]


def tables(rows: Sequence[tuple[int, Any]], parts: int) -> list[pa.Table]:
    """Rows of documents, cut into parts."""
    size = max(1, -(-len(rows) // parts))
    cut = [rows[start : start + size] for start in range(0, len(rows), size)] or [rows]
    return [
        pa.table(
            [
                [id_ for id_, _ in part],
                [at(id_) for id_, _ in part],
                [document if isinstance(document, str) else json.dumps(document) for _, document in part],
            ],
            schema=SCHEMA,
        )
        for part in cut
    ]


def _decode(document: Any) -> Any:
    if not isinstance(document, str):
        return json.loads(json.dumps(document))
    try:
        return json.loads(document)
    except ValueError:
        return document


def key_text(parts: Sequence[Any]) -> str:
    """A key as documents have it."""
    return json.dumps(parts[0] if len(parts) == 1 else list(parts), separators=(",", ":"))


def is_number(layout: Layout, name: str) -> bool:
    types = {column.name: column.type for column in (*layout.scalars, *layout.multi)}
    return types[name] in (Plain.INT32, Plain.INT64)


# ---------------------------------------------------------------- documents


def document(*ops: Any, table: str = "images", **members: Any) -> dict[str, Any]:
    return {"v": 1, "table": table, "ops": list(ops), **members}


def put(name: str, value: Any) -> dict[str, Any]:
    return {"op": "set", "field": name, "value": value}


def add(value: Any, name: str = "tags") -> dict[str, Any]:
    return {"op": "add", "field": name, "value": value}


def take(value: Any, name: str = "tags") -> dict[str, Any]:
    return {"op": "remove", "field": name, "value": value}


def fan_out(table: str, where: dict[str, Any], *ops: Any) -> dict[str, Any]:
    return document({"op": "query_op_set", "where": where, "ops": list(ops)}, table=table)


DELETE, CLEAR = {"op": "delete"}, {"op": "clear"}


@dataclass
class Draw:
    """Random documents of every kind for a layout."""

    random: Random
    layout: Layout
    keys: int = 4
    #: how often a barrier comes
    barriers: float = 0.08

    def value(self, name: str) -> Any:
        choices: Sequence[Any] = [0, 1, 2] if is_number(self.layout, name) else ["a", "b", "ä"]
        return self.random.choice(choices)

    def op(self) -> Any:
        draw = self.random.random()
        scalar = self.random.choice(self.layout.scalars).name
        if draw < 0.03:
            return self.random.choice([put("odd", 1), {"op": "odd"}, add(1, scalar), put("tags", 1), 7, {"op": "add"}])
        if draw < 0.35:
            multi = self.random.choice(self.layout.multi).name
            return self.random.choice([add, take])(self.value(multi), multi)
        if draw < 0.45:
            return {"op": "remove", "field": scalar}
        return put(scalar, self.random.choice([None, self.value(scalar), self.value(scalar), self.value(scalar)]))

    def where(self, depth: int = 0) -> dict[str, Any]:
        draw = self.random.random()
        if depth < 2 and draw < 0.25:
            return {"and": [self.where(depth + 1) for _ in range(self.random.randint(1, 2))]}
        name = self.random.choice([column.name for column in (*self.layout.scalars, *self.layout.multi)])
        if draw < 0.7:
            return {"field": name, "eq": self.value(name)}
        return {"field": name, "in": [self.value(name) for _ in range(self.random.randint(1, 2))]}

    def declared(self) -> dict[str, Any]:
        each = self.random.choice(self.layout.fan_outs)
        parts = [
            {"field": name, "eq": self.value(name)}
            if self.random.random() < 0.8
            else {"field": name, "in": [self.value(name), self.value(name)]}
            for name in each.match
        ]
        if self.random.random() < 0.05:
            parts = [self.where()]
        chosen = self.random.sample(each.fields, self.random.randint(1, len(each.fields)))
        ops = [put(name, self.random.choice([None, self.value(name), self.value(name)])) for name in chosen]
        if self.random.random() < 0.1:
            ops.append(self.op())
        return fan_out(each.table, parts[0] if len(parts) == 1 else {"and": parts}, *ops)

    def document(self) -> Any:
        draw, number = self.random.random(), self.random.randrange(self.keys)
        key: Any = number if len(self.layout.key) == 1 else [self.random.choice("ab"), number // 2]
        if draw < 0.02:
            return self.random.choice(
                [None, {}, "{", document(DELETE, key=key) | {"v": 7}, document(key=[1, 2], creates=True) | {"key": {}}]
            )
        if draw < 0.02 + self.barriers:
            if self.random.random() < 0.5:
                ops = [op for op in (self.op() for _ in range(3)) if isinstance(op, dict)] or [put("size", 1)]
                return fan_out("other", self.where(), *ops)
            name = self.random.choice([None, *(c.name for c in (*self.layout.scalars, *self.layout.multi))])
            table = self.random.choice(["images", "posts", "users"])
            return document({**CLEAR, **({} if name is None else {"field": name})}, table=table)
        if draw < 0.3:
            return self.declared()
        if draw < 0.38:
            return document(DELETE, key=key)
        ops = [self.op() for _ in range(self.random.randint(1, 3))]
        members: dict[str, Any] = {"creates": True} if self.random.random() < 0.4 else {}
        return document(*ops, key=key, **members)

    def documents(self, count: int) -> list[Any]:
        return [self.document() for _ in range(count)]


Making = Callable[[Random], Draw]

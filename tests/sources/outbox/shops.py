"""A database with images, their tags and their posts, an outbox on it, and what the fold of its documents must be."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import psycopg
import pyarrow as pa

from penstock.core.content import Content
from penstock.core.marks import Mark, Position
from penstock.core.ops import Layout, Row, State, fold
from penstock.core.slices import Slice, following
from penstock.ports import Budget, Context, NoProbe
from penstock.sources import outbox
from penstock.sources.outbox import Options, OutboxSource, StreamOptions
from penstock.sources.outbox.applying import apply_triggers, plan_triggers, resolve
from penstock.sources.outbox.server import Server
from penstock.sources.outbox.triggers import Change, Comparison

SCHEMA = """
CREATE TABLE posts (id bigint PRIMARY KEY, title text, nsfw boolean NOT NULL DEFAULT false);
CREATE TABLE images (
    id bigint PRIMARY KEY,
    url text,
    post_id bigint REFERENCES posts ON DELETE CASCADE ON UPDATE CASCADE,
    size numeric(10, 2)
);
CREATE TABLE image_tags (
    image_id bigint REFERENCES images ON DELETE CASCADE ON UPDATE CASCADE,
    tag_id int,
    kind text NOT NULL DEFAULT 'user',
    PRIMARY KEY (image_id, tag_id)
);
"""
IMAGES: dict[str, Any] = {
    "direct": [
        {
            "table": "images",
            "key": "id",
            "columns": ["url", "post_id", "size"],
            "computed": {"url_length": "length({url})"},
            "creates": True,
        }
    ],
    "multi_value": [
        {"table": "image_tags", "key": "image_id", "field": "tags", "value": "tag_id", "where": "{kind} = 'user'"}
    ],
    "fan_out": [
        {"table": "posts", "match": "post_id eq {id}", "columns": ["nsfw"], "computed": {"post_title": "{title}"}}
    ],
}
#: the state that the fold of `IMAGES` must lead to, by SQL over the source tables
TRUTH = """
SELECT i.id, jsonb_strip_nulls(jsonb_build_object(
           'url', i.url, 'post_id', i.post_id, 'size', i.size::text, 'url_length', length(i.url),
           'nsfw', p.nsfw, 'post_title', p.title)),
       coalesce((SELECT jsonb_agg(t.tag_id ORDER BY t.tag_id) FROM image_tags t
                 WHERE t.image_id = i.id AND t.kind = 'user'), '[]')
FROM images i LEFT JOIN posts p ON p.id = i.post_id ORDER BY i.id
"""

#: closed when the test ends
OPENED: list[OutboxSource] = []


class Shop:
    """An outbox, and a reader of it that keeps the reference fold of what was delivered."""

    def __init__(
        self,
        url: str,
        streams: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        pipeline: str = "shop",
        first_load: bool = False,
        **options: Any,
    ) -> None:
        self.url = url
        self.pipeline = pipeline
        self.options = Options.model_validate({"url": url, **options})
        said = {"images": IMAGES} if streams is None else streams
        self.streams = {
            name: StreamOptions.model_validate({"first_load": first_load, **each}) for name, each in said.items()
        }
        self.context = Context(pipeline, ".", NoProbe())
        self.documents: dict[str, list[tuple[int, Any]]] = {name: [] for name in self.streams}
        self.last: dict[str, Position] = {}
        self.slices: list[Slice] = []

    # ------------------------------------------------------------ the triggers

    def compare(self) -> Comparison:
        server = Server(self.options, self.context)
        try:
            resolved = resolve(server.session, self.options, self.streams)
            resolved.require_all()
            return plan_triggers(server.session, self.options, self.pipeline, resolved)
        finally:
            server.close()

    def apply(self) -> tuple[Change, ...]:
        server = Server(self.options, self.context)
        try:
            resolved = resolve(server.session, self.options, self.streams)
            resolved.require_all()
            return apply_triggers(server.writing, self.options, self.pipeline, resolved)
        finally:
            server.close()

    # ------------------------------------------------------------ the database

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=autocommit)

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with self.connect(autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.connect(autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()

    def written(self, stream: str = "images") -> list[dict[str, Any]]:
        """The documents in the outbox, by id."""
        found = self.rows(f"SELECT stream, document FROM {self.options.outbox_schema}.outbox ORDER BY id")
        return [document for name, document in found if name == stream]

    def ops(self, stream: str = "images") -> list[dict[str, Any]]:
        """The ops in the outbox, by id."""
        return [op for document in self.written(stream) for op in document["ops"]]

    def forget(self) -> None:
        self.execute(f"DELETE FROM {self.options.outbox_schema}.outbox")

    # ------------------------------------------------------------ reading

    def source(self) -> OutboxSource:
        OPENED.append(outbox.build(self.options, self.streams, self.context))
        return OPENED[-1]

    def read(
        self,
        stream: str = "images",
        budget: Budget | None = None,
        *,
        most: int | None = None,
        prepared: Callable[[], object] = lambda: None,
        releases: bool = True,
        meanwhile: Callable[[], object] = lambda: None,
        killed: Callable[[], bool] = lambda: False,
    ) -> int:
        """Deliver what is new, as the engine does; at most that many slices. Returns the number of documents.

        `prepared` is called between the registration and the snapshot. Without `releases`, the source is not told.
        `meanwhile` is called before each slice is planned, and before each of its parts is read. Where `killed`, a
        slice was read for nothing: it is read again, by another source.
        """
        source = self.source()
        source.connect()
        count = 0
        try:
            content = source.content(stream)
            last = self.last.get(stream)
            if last is not None:
                source.accept(stream, last, content)
            source.prepare(stream, content, last)
            prepared()
            ceiling = source.ceiling(stream, content, "run", last.mark if last else None)
            assert ceiling is not None
            while most is None or most > 0:
                after = last.mark if last else None
                meanwhile()
                planned = source.plan(stream, content, after, ceiling, budget or Budget(1 << 26, workers=2))
                if planned is None:
                    break
                slice_ = following(
                    last, pipeline=self.pipeline, stream=stream, upto=planned.upto, content=content, plan=planned.plan
                )
                read = deliver(source, slice_, meanwhile)
                while killed():
                    again = self.source()
                    again.check_open_slice(slice_)
                    read = deliver(again, slice_, meanwhile)
                assert len(read) == planned.rows or not planned.exact
                self.documents[stream] += read
                self.slices.append(slice_)
                count += len(read)
                last = self.last[stream] = slice_.position
                if releases:
                    source.advanced(stream, last)
                most = None if most is None else most - 1
            return count
        finally:
            source.close()

    def folded(self, stream: str = "images") -> State:
        """The reference fold of everything that was delivered, in the order of delivery."""
        last = self.last[stream]
        layout = Layout.of(Content.parse(last.content).entities or {})
        folded = fold(State(), layout.shape, (Row(id_, document) for id_, document in self.documents[stream]))
        assert folded.quarantined == ()
        return folded.state

    def current(self) -> list[tuple[Any, ...]]:
        """The fold as rows of `TRUTH`."""
        found = []
        for key, record in self.folded().entities.items():
            tags = sorted(json.loads(value) for value in record.multi.get("tags", ()))
            found.append((json.loads(key), dict(record.scalars), tags))
        return sorted(found, key=lambda row: row[0])


def deliver(
    source: OutboxSource, slice_: Slice, meanwhile: Callable[[], object] = lambda: None
) -> list[tuple[int, Any]]:
    """(id, document) of each row of a slice, in the order of its parts."""
    read: list[tuple[int, Any]] = []
    with source.reading(slice_) as reading:
        # As it reaches a worker.
        reader, parts = pickle.loads(pickle.dumps((reading.reader, reading.parts)))
        for part in parts:
            meanwhile()
            with reader.open(part) as batches:
                for batch in batches:
                    texts = batch.column("document").to_pylist()
                    read += zip(batch.column("id").to_pylist(), map(json.loads, texts), strict=True)
    return read


class Notes:
    """Notes as the origin of a contract: each arrives with a document of its own."""

    stream = "notes"
    options: Mapping[str, Any] = {
        "first_load": False,
        "direct": [{"table": "notes", "key": "id", "columns": ["body"], "creates": True}],
    }

    def __init__(self, url: str) -> None:
        self.shop = Shop(url, {self.stream: self.options}, pipeline="contract", keep_hours=1)
        self.shop.execute("CREATE TABLE notes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)")
        self.shop.apply()

    def open(self) -> OutboxSource:
        return self.open_with(self.stream, self.options)

    def open_with(self, stream: str, options: Mapping[str, Any]) -> OutboxSource:
        return outbox.build(self.shop.options, {stream: StreamOptions.model_validate(options)}, self.shop.context)

    def arrive(self, count: int) -> None:
        self.shop.execute(f"INSERT INTO notes (body) SELECT 'note ' || n FROM generate_series(1, {count}) n")

    def rows(self) -> Sequence[Hashable]:
        return [row[0] for row in self.shop.rows("SELECT id FROM notes")]

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        return [json.loads(text)["key"] for text in batch.column("document").to_pylist()]

    def traces(self) -> Hashable:
        query = "SELECT xmin::text, ctid::text FROM penstock_outbox.{} ORDER BY ctid"
        names = ("outbox", "consumers", "floors", "triggers", "identity")
        versions = [row for name in names for row in self.shop.rows(query.format(name))]
        relations = self.shop.rows("SELECT oid, relname, relfilenode, relnatts FROM pg_class ORDER BY oid")
        return (*versions, *relations)


def mark_of(shop: Shop, stream: str = "images") -> Mark:
    mark = shop.last[stream].mark
    assert mark is not None
    return mark

"""The forms that penstock stores outside of its process, each as text, from samples that never change.

`python -m tests.house.stored_forms` writes the frozen copy anew; test_stored_forms.py says when that is right.
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from sqlalchemy import Column as SqlColumn

from penstock.core import content as contents
from penstock.core.content import Column, Content, Drift
from penstock.core.documents import canonical, parse
from penstock.core.marks import Mark, Position
from penstock.core.ops import FanOut
from penstock.core.slices import Kind, Part, Receipt, Seal, Slice, slice_document
from penstock.core.types import Decimal, Fixed, List, Map, Plain, Struct
from penstock.lake import names
from penstock.lake.folding import side_data
from penstock.lake.folding.fold import fan_out_id
from penstock.lake.table_state import Link
from penstock.links.http.protocol import SentChunk
from penstock.links.postgres.literals import TableName
from penstock.links.s3 import S3Options
from penstock.links.spools import FolderSpools
from penstock.ports import NoProbe
from penstock.service import schemas
from penstock.service.tokens import FILE, TokenFile
from penstock.sinks.files.bucket import BucketFolder, point_to
from penstock.sinks.files.layout import Layout
from penstock.sinks.files.manifest import Manifest, Newest, SliceFile
from penstock.sinks.http import memory
from penstock.sinks.http.chunks import ChunkShape, ChunkWriter
from penstock.sinks.http.template import compile_row
from penstock.sources.files.marks import make_mark
from penstock.sources.files.places import File, Version
from penstock.sources.files.seen import Seen, SeenStore
from penstock.sources.outbox.feeds import DirectFeed, Entity, FanOutFeed, FedField, FedTable, KeyPart, MultiValueFeed
from penstock.sources.outbox.forms import form_of
from penstock.sources.outbox.load.declared import loads_of
from penstock.sources.outbox.load.dumps import Dump
from penstock.sources.outbox.load.states import LoadState
from penstock.sources.outbox.marks import OutboxMark
from penstock.store import schema
from penstock.wal import folders
from penstock.wal import frames as log_frames
from penstock.wal.batches import Batch, Head, Withdrawal, encode_batch, encode_withdrawal
from penstock.wal.durable_end import End, EndFile
from penstock.wal.frames import encode_record
from penstock.wal.ledger import Bare, Chunk, Ledger, Place, to_document, with_bare, with_chunk
from penstock.wal.meta import Meta
from penstock.wal.readers import Reader, register_at

DUMP = Dump(
    ({"path": "/dump/images.csv", "size": 40, "mtime": 1_700_000_000_000_000_000, "format": "csv"},),
    ({"file": 0, "group": 0, "rows": 2, "most": 1},),
    1,
)
FROZEN = Path(__file__).with_name("stored_forms.json")

COLUMNS = (
    *(Column(type_.value, type_) for type_ in Plain),
    Column("decimal", Decimal(12, 2), "numeric(12,2)"),
    Column("fixed", Fixed(16)),
    Column("nested", List(Map(Plain.STRING, Struct((("a", Plain.INT64), ("odd name", Plain.JSON)))))),
    Column("state", Plain.STRING, "order_state", "text"),
)
CONTENT = Content(
    COLUMNS,
    changes=True,
    key=("int64",),
    filter="state = 'paid'",
    identity={"database": "shop", "table": "orders"},
    private={"mode": "keyset"},
)
DRIFTED = Content(COLUMNS[:2], shape={"rename": {"a": "b"}}, drift=Drift(COLUMNS[:3], quarantined=(COLUMNS[2].name,)))
SLICE = Slice(
    pipeline="shop",
    stream="orders",
    number=7,
    after=Mark.of({"key": ["6"]}),
    upto=Mark.of({"key": ["7", "é"]}),
    content=CONTENT.text,
    previous="p" * 64,
    kind=Kind.ROWS,
    plan='{"rows":3}',
    spool="s" * 64,
)
OUTBOX = OutboxMark("token", "7:9:8", None, 0, 5, (8, 6), None, 1, "0/16B3748")
LOADING = LoadState(
    "public.images", "a" * 16, "b" * 16, ("url",), "loading", ("id",), ("é",), 3, 9, 1_700_000_000_000_000
)
_IDS = pa.schema([("id", pa.int64())])
SENT = SentChunk("shop ü", "a" * 64, 2, "b" * 64, 1, 3, 7, "d" * 64, "bounds")
RECEIPT = Receipt(0, "a1", 3, 3, 96, "f" * 64, '{"name":"x"}', nulled=1, absent=("gone",))


def stored_forms() -> dict[str, object]:
    """Every stored form by its name."""
    return {
        "store: revision": schema.HEAD,
        "store: tables": {table.name: list(map(_column, table.c)) for table in schema.metadata.sorted_tables},
        "content: format": contents.FORMAT,
        "content: text": CONTENT.text,
        "content: text after drift": DRIFTED.text,
        "content: fingerprint": CONTENT.fingerprint,
        "slice: ids by kind": {kind.value: replace(SLICE, kind=kind).id for kind in Kind},
        "slice: document": slice_document(SLICE),
        "seal: text": Seal(SLICE.id, "a1", (RECEIPT,)).text,
        "spool: name of a gathered one": _gathered(),
        "files: manifest": _manifest().splitlines(),
        "files: manifest on S3": json.loads(_manifest_on_s3().text())["files"],
        "files: where a look begins": Newest(7, "a" * 64).text(),
        "files: pointer to a refresh on S3": point_to(Layout("shop", "orders"), _manifest_on_s3()).splitlines(),
        "files: begin of a file's name on S3": BucketFolder("b", "", S3Options()).name_attempt("shop", "a1"),
        "lake: chain": _link().document(),
        "lake: names": {
            "chain": names.chain_property("shop", "orders.items"),
            "content": names.content_property(CONTENT.text),
            "reader": names.reader_property("shop", "orders.items"),
            "head": names.HEAD,
            "floor": names.FLOOR,
            "mode": names.MODE,
            "key": names.KEY,
            "columns": list(names.INTERNAL),
        },
        "lake: side data of a state table": _side_data(),
        "postgres: ledger": _sql("create_tables"),
        "postgres: state": _sql("create", "penstock.sinks.postgres.state"),
        "http: what is remembered": memory.SCHEMA.splitlines(),
        "http: pieces of a seal": _http_pieces(),
        "log: segment": _segment(),
        "log: end": _end(),
        "log: readers": _readers(),
        "files source: mark": _seen_mark(),
        "outbox: mark with loads": replace(OUTBOX, loads=(LOADING,), load_slices=2).mark().text,
        "outbox: declarations of loads": _declarations(),
        "outbox: files of a dump": DUMP.document(),
        "outbox: a piece of a dump in a plan": DUMP.piece(0),
        "receiver: schemas": schemas.text_of([schemas.schema_of("rows", {"id": "int64"}, ("id",), "refuse")]),
        "receiver: tokens": _tokens(),
        "receiver: folder of a stream": folders.folder_of("", "Shop/Ä.b-c_1"),
        "receiver: headers of a chunk": SENT.headers(),
    }


def _side_data() -> dict[str, object]:
    return {
        "names": [names.SIDE, names.SIDE_FORM, side_data.BRANCH, *side_data.KINDS],
        "form": side_data.FORM,
        "columns": side_data.SCHEMA.to_string().splitlines(),
        "fan-out": fan_out_id(FanOut("public.posts", ("post_id", "kind"), ("title",))),
    }


def _declarations() -> object:
    """Hashes: with others, every table of every outbox would be loaded again."""
    table = TableName("public", "images")

    def key(name: str) -> KeyPart:
        return KeyPart(name, form_of("bigint"), "bigint")

    fields = (
        FedField("url", form_of("text"), "text", "{url}"),
        FedField("n", form_of("numeric"), "numeric", "{a} + 1"),
    )
    feeds = (
        DirectFeed((key("id"),), fields, creates=True, on_delete="delete"),
        MultiValueFeed((key("id"),), "tags", key("tag"), "{kind} = 'user'"),
        FanOutFeed((("post", key("post")),), fields[:1], fields[1:], "SELECT 1 AS n", (key("post"),)),
    )
    entity = Entity("images", (key("id"),), tuple((table, feed) for feed in feeds))
    loads = loads_of(entity, {table: FedTable(table, "16384")}, {str(table): "16384 2026-11-19 12:00:00+00"})
    return {each.name: [each.identity, each.fields, *each.names] for each in loads}


def _column(column: SqlColumn[Any]) -> str:
    return f"{column.name} {getattr(column.type, 'impl', column.type)!r} {'NULL' if column.nullable else 'NOT NULL'}"


def _manifest() -> str:
    named = SliceFile(name="orders/7.parquet", staged="staged/7", rows=3, bytes=50, sha256="0" * 64)
    return Manifest(SLICE, "a1", rows=3, arrow_bytes=96, schema="id: int64", files=(named,)).text()


def _manifest_on_s3() -> Manifest:
    named = SliceFile("orders/7.parquet", "upload-7", 3, 50, "0" * 64, ('"e1"', '"e2"'))
    return Manifest(replace(SLICE, kind=Kind.REFRESH), "a1", 3, 96, "id: int64", (named,))


def _http_pieces() -> object:
    """Without the names and the numbers that differ each time."""
    row = compile_row({"id": "{id}"})
    shape = ChunkShape("json", "gzip", 1, 2, 1 << 20, "string", "string", row=tuple(row), before="{", after="}")
    with tempfile.TemporaryDirectory() as folder:
        batches = pa.RecordBatchReader.from_batches(_IDS, [pa.record_batch([pa.array([1, 2, 3])], _IDS)])
        found = parse(ChunkWriter(folder, "a1", shape, NoProbe()).write(batches, Part(0, "{}")).pieces)
    return found | {
        "file": "",
        "bytes": 0,
        "sha256": "",
        "chunks": [[rows, 0, *rest[1:2]] for rows, *rest in found["chunks"]],
    }


def _link() -> Link:
    position = Position(SLICE.number, SLICE.id, SLICE.upto, SLICE.content)
    return Link(position, "rows", rows=3, bytes=96, uuid="u", snapshot=1, sequence=2)


def _gathered() -> str:
    with tempfile.TemporaryDirectory() as folder:
        spools = FolderSpools(folder, "shop.eu")
        with spools.gather("orders/items", 7, "a1") as spool:
            Path(spool.path, "page-0000.json").write_text("[1]")
            spools.close_gathered(spool)
        (path,) = Path(folder).glob("*/*/*")
        return str(path.relative_to(folder))


def _segment() -> list[str]:
    """A header, the copy of a ledger, and one record of each kind, as hexadecimal digits."""
    place, at = Place(1, 100, 50), 1_700_000_000_000_000
    chunk = Chunk("shop", "a" * 64, 1, "", 1, 2, "d" * 64, 3, "bounds")
    ledger = with_bare(with_chunk(Ledger(), chunk, place, at), Bare("token", "key", "d" * 64, 3), at)
    meta = Meta("shop/orders", "7", 9, 2, 1500)
    head = Head(chunk, 3, 1, "rows", at, (place,), 3, (4, 12), meta)
    records = [
        encode_record(log_frames.Kind.LEDGER, canonical(to_document(ledger)).encode()),
        encode_record(log_frames.Kind.BATCH, *encode_batch(Batch(chunk, 3, b"rows", 1, "rows", meta), head)),
        encode_record(log_frames.Kind.WITHDRAWAL, encode_withdrawal(Withdrawal("shop", "a" * 64), at)),
    ]
    return [each.hex() for each in (log_frames.Header(1, bytes(range(16)), at).encode(), *records)]


def _end() -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = EndFile(folder)
        file.write(End(1, 2, 3, 4, 5))
        file.close()
        return Path(folder, "end").read_bytes().hex()


def _readers() -> str:
    with tempfile.TemporaryDirectory() as folder:
        register_at(folder, "lake/orders", Reader(3, 7, 1_700_000_000_000_000, 46, 20, 300))
        return Path(folder, "readers.json").read_text()


def _seen_mark() -> str:
    """The mark of a files stream with a segment, whose digest says what the segment is."""
    seen_files = [File(f"day={n}/é\udcff{n}.csv", Version(n, n - 1, 2**64 - 1)) for n in range(65)]
    with tempfile.TemporaryDirectory() as folder:
        store = SeenStore(folder, "s")
        seen = store.add(store.add(Seen(), seen_files), [File("a/b", Version(1, 2, 3)), File("a/bc", Version(4, 5, 6))])
        return make_mark(seen).text


def _tokens() -> str:
    at = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)
    with tempfile.TemporaryDirectory() as folder, patch("secrets.token_bytes", return_value=bytes(32)):
        tokens = TokenFile(folder, lambda: at)
        tokens.create("shop", ["ingest", "read"], ["orders"], at)
        tokens.create("admin", ["admin"])
        return Path(folder, FILE).read_text()


def _sql(name: str, room: str = "penstock.sinks.postgres") -> list[str]:
    """The statements without comments and layout."""
    text = (files(room) / "sql" / f"{name}.sql").read_text()
    text = re.sub(r"--[^\n]*", "", text)
    statements = (" ".join(each.split()) for each in text.split(";"))
    return [each for each in statements if each.startswith("CREATE")]


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(stored_forms(), indent=1, ensure_ascii=True, sort_keys=True) + "\n")
    print(f"wrote {FROZEN}")

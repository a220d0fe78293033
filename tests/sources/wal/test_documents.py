"""Streams of documents of ops: their numbers, their order, and who may send them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from tests.sources.wal.logs import Orders, encode

from penstock.core.content import Content
from penstock.core.ops import FEED_COLUMNS, Layout
from penstock.errors import StreamFailed, StreamRefused
from penstock.ports import Budget
from penstock.sources.wal import StreamOptions
from penstock.testing.contracts.source import drain, prepare
from penstock.wal.batches import Batch
from penstock.wal.ledger import Bare, Chunk

ENTITIES: dict[str, Any] = {
    "entities": {
        "key": {"id": "int64"},
        "fields": {"url": "string", "post_id": "int64", "title": "string"},
        "multi_value": {"tags": "int64"},
        "fan_out": [{"table": "posts", "match": ["post_id"], "fields": ["title"]}],
    }
}


def document(number: int) -> dict[str, Any]:
    return {"v": 1, "table": "images", "key": number, "ops": [{"op": "set", "field": "url", "value": f"é {number}"}]}


class Documents(Orders):
    """A log of documents; the number of each is in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.options = ENTITIES | {"producers": "any"}

    def batch(self, ids: Sequence[int], sender: Chunk | Bare | None) -> Batch:
        return Batch(sender, len(ids), encode([document(number) for number in ids]), kind="ops")

    def tell(self, batch: pa.RecordBatch) -> Sequence[Any]:
        return [(row["id"], json.loads(row["document"]), row["at"]) for row in batch.to_pylist()]


@pytest.fixture
def log(tmp_path: Path) -> Documents:
    return Documents(tmp_path)


def read(log: Documents) -> list[Any]:
    return [row for moved in drain(log.open(), log) for row in moved.rows]


def test_each_document_has_its_number_in_the_order_of_the_log(log: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.sources.wal.window.PART_BYTES", 300)
    log.arrive(120)
    log.arrive(7)
    found = read(log)
    assert [(number, each) for number, each, _ in found] == [(n, document(n)) for n in range(1, 128)]
    assert all(at is not None for _, _, at in found)


def test_chunks_of_slices_that_mix_have_their_own_numbers(log: Documents) -> None:
    """Rows are counted as they become readable, however their chunks lie between others."""
    one, two = ([Chunk(name, f"{name}1", 1, "", k, 3, f"{name}{k}", 2) for k in (1, 2, 3)] for name in ("one", "two"))
    for k in range(3):
        log.send(log.batch([2 * k + 1, 2 * k + 2], one[k]), log.batch([2 * k + 7, 2 * k + 8], two[k]))
    assert [(number, each["key"]) for number, each, _ in read(log)] == [(n, n) for n in range(1, 13)]


def test_slices_go_on_counting(log: Documents) -> None:
    log.arrive(40)
    source = log.open()
    content = source.content(log.stream)
    prepare(source, log.stream, content, None)
    ceiling = source.ceiling(log.stream, content, "run")
    assert ceiling is not None
    planned = source.plan(log.stream, content, None, ceiling, Budget(bytes=1, rows=5))
    assert planned is not None
    assert planned.rows is not None
    assert 0 < planned.rows < 40, "more than one slice"
    assert [number for number, _, _ in read(log)] == list(range(1, 41))


def test_the_content_declares_the_entities(log: Documents) -> None:
    content = Content.parse(log.open().content(log.stream).text)
    assert content.columns == FEED_COLUMNS
    assert content.entities is not None
    layout = Layout.of(content.entities)
    assert [column.name for column in (*layout.key, *layout.scalars, *layout.multi)] == [
        "id",
        "url",
        "post_id",
        "title",
        "tags",
    ]
    assert layout.fan_outs[0].table == "posts"


def test_a_declaration_that_contradicts_itself_is_refused(log: Documents) -> None:
    log.options["entities"] = ENTITIES["entities"] | {"fan_out": [{"table": "p", "match": ["post"], "fields": ["url"]}]}
    with pytest.raises(StreamRefused, match=r"contradicts itself: fan-out p names 'post', which is no scalar field"):
        log.open().content(log.stream)


@pytest.mark.parametrize("second", [Chunk("other", "o1", 1, "", 1, 1, "x", 1), Bare("curl", "k", "d", 1), None])
def test_a_second_producer_is_refused_unless_the_stream_says_so(log: Documents, second: Chunk | Bare | None) -> None:
    log.options["producers"] = "one"
    log.send(log.batch([1], Chunk("shop", "s1", 1, "", 1, 1, "x", 1)), log.batch([2], second))
    with pytest.raises(
        StreamRefused, match=r"several producers have sent .*nothing says which .* comes first"
    ) as error:
        read(log)
    assert "`producers: any`" in str(error.value.next_step)
    log.options["producers"] = "any"
    assert len(read(log)) == 2


def test_a_second_producer_after_the_first_was_read(log: Documents) -> None:
    log.options["producers"] = "one"
    log.send(log.batch([1], Chunk("shop", "s1", 1, "", 1, 1, "x", 1)))
    source = log.open()
    last = drain(source, log)[-1].slice
    log.send(log.batch([2], Chunk("other", "o1", 1, "", 1, 1, "x", 1)))
    content = source.content(log.stream)
    ceiling = source.ceiling(log.stream, content, "run")
    assert ceiling is not None
    with pytest.raises(StreamRefused, match=r"several producers have sent .*\(other, shop\)"):
        source.plan(log.stream, content, last.upto, ceiling, Budget(bytes=1 << 20))


def test_rows_of_a_stream_of_ops_are_taken_as_documents(log: Documents) -> None:
    rows: list[Mapping[str, Any]] = [{"id": 77, "at": "2026-01-01T00:00:00Z", "document": document(1)}]
    log.send(Batch(None, 1, encode(rows)))
    assert [(number, each) for number, each, _ in read(log)] == [(1, document(1))]


def test_a_number_keeps_its_digits(log: Documents) -> None:
    digits = "12345678901234567890.12345678901234567890"
    line = b'{"id": 7, "document": {"v": 1, "table": "t", "key": 1, "ops": [%s]}}\n' % digits.encode()
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as file:
        file.write(line)
    log.send(Batch(None, 1, out.getvalue().to_pybytes()))
    log.tell = lambda batch: batch.column("document").cast(pa.string()).to_pylist()  # type: ignore[method-assign]
    assert digits in read(log)[0]


def test_other_rows_are_refused_with_their_place(log: Documents) -> None:
    log.send(Batch(None, 1, encode([{"id": 1, "note": "plain"}])))
    with pytest.raises(StreamFailed, match=r"the batch at 1:\d+ has a row without a `document`.*plain"):
        read(log)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "`columns` is missing"),
        ({"columns": {"id": "int64"}, **ENTITIES}, "`columns` is for plain rows"),
        ({**ENTITIES, "primary_key": ["id"]}, "`primary_key` is for plain rows"),
        ({**ENTITIES, "changes": True}, "`changes` is for plain rows"),
        ({"columns": {"id": "int64"}, "primary_key": ["ID"]}, "`primary_key` names ID"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(log: Documents, options: dict[str, Any], reason: str) -> None:
    log.options = options
    with pytest.raises(StreamRefused, match=reason) as error:
        log.open().content(log.stream)
    assert error.value.next_step


@pytest.mark.parametrize(
    ("entities", "reason"), [({"key": {}}, "at least 1 item"), ({"key": {"id": "integer"}}, "integer")]
)
def test_mistakes_in_the_file(entities: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        StreamOptions.model_validate({"entities": entities})

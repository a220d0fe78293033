"""Batches over a real socket: what is taken, what is recognised, what is refused, and that nothing of that is kept."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard
from tests.service.receiving import (
    JSON,
    NDJSON,
    Receiver,
    chunk_of,
    lines,
    lines_in,
    path_to,
    receiving,
    slice_id,
)

from penstock.links.http import protocol

ROWS: list[dict[str, Any]] = [{"id": 1, "note": "ä\nb"}, {"id": 2, "note": None}]


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """One for all tests: each uses streams of its own."""
    declared = {
        "columns": {"id": "int64", "price": "decimal(10,2)", "at": "timestamptz", "more": "json"},
        "primary_key": ["id"],
    }
    section = {
        "create_streams": True,
        "limits": {"request_bytes": "1MiB", "decoded_bytes": "4MiB", "rows": 1000, "fields": 50, "row_bytes": "1MiB"},
        "streams": {
            "declared": declared,
            "closed": {**declared, "extra_fields": "refuse"},
            "open": {"keys": "optional"},
            "picky": {"producers": ["shop"]},
            "changes": {"takes": "ops"},
        },
    }
    with receiving(tmp_path_factory.mktemp("receiver"), section) as found:
        yield found


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """A refusal, which is a problem document with a next step."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == protocol.PROBLEM
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert all(found[name] for name in ("type", "title", "detail", "next_step"))
    return found


ARRAY = json.dumps(ROWS, indent=2, ensure_ascii=False).encode()
FORMS: dict[str, tuple[bytes, dict[str, str]]] = {
    "array": (ARRAY, JSON),
    "lines": (lines(ROWS), NDJSON),
    "lines without the last break": (lines(ROWS).rstrip(), NDJSON),
    "blank lines and carriage returns": (b"\r\n" + lines(ROWS).replace(b"\n", b"\r\n") + b"  \n", NDJSON),
    "carriage returns between values": (b'{"id":\r1, "note": "\xc3\xa4\\nb"}\n{"id": 2,\r"note": null}', NDJSON),
    "gzip": (gzip.compress(ARRAY), JSON | {"Content-Encoding": "gzip"}),
    "gzip in two members": (gzip.compress(ARRAY[:9]) + gzip.compress(ARRAY[9:]), JSON | {"Content-Encoding": "gzip"}),
    "zstd": (zstandard.compress(lines(ROWS)), NDJSON | {"Content-Encoding": "zstd"}),
    "charset": (ARRAY, {"Content-Type": "application/json; charset=UTF-8"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_kept_as_they_were_sent(receiver: Receiver, form: str) -> None:
    body, headers = FORMS[form]
    stream = f"form {form}"
    answer = httpx.post(f"{receiver.url}{path_to(stream)}", content=body, headers=headers | {protocol.KEY: "k"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["rows"] == 2
    assert receiver.rows(stream) == ROWS


def test_a_row_is_kept_digit_by_digit(receiver: Receiver) -> None:
    row = b'{"big": 123456789012345678901234567890, "small": 0.10000000000000000555111512312, "twice": 1, "twice": 2}'
    assert receiver.post("digits", b"[" + row + b"]", "k").status_code == 200
    assert lines_in(str(receiver.directory), "digits") == [row]


def test_a_bare_key_is_recognised_and_the_answer_says_until_when(receiver: Receiver) -> None:
    first = receiver.post("bare", ROWS, "k-1")
    assert protocol.REPLAYED not in first.headers
    assert first.json()["key"] == "k-1"
    again = httpx.post(
        f"{receiver.url}{path_to('bare')}",
        content=gzip.compress(json.dumps(ROWS).encode()),
        headers=JSON | {protocol.KEY: "k-1", "Content-Encoding": "gzip"},
    )
    assert again.status_code == 200
    assert again.headers[protocol.REPLAYED] == "true"
    assert again.json() == first.json()
    assert "used for other contents" in problem(receiver.post("bare", [{"id": 9}], "k-1"), 409)["detail"]
    assert receiver.rows("bare") == ROWS


def test_the_same_batch_at_the_same_time_is_taken_once(receiver: Receiver) -> None:
    """A retry that comes while the first one is being written waits for it."""
    body = lines([{"id": n} for n in range(200)])
    for stream, send in (
        ("at once", lambda: receiver.send("at once", chunk_of(body), body)),
        ("at once bare", lambda: receiver.post("at once bare", [{"id": 1}] * 200, "k")),
    ):
        with ThreadPoolExecutor(12) as pool:
            answers = [each.result() for each in [pool.submit(send) for _ in range(24)]]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.text for answer in answers}) == 1
        assert sum(protocol.REPLAYED not in answer.headers for answer in answers) == 1
        assert len(receiver.rows(stream)) == 200


def test_a_batch_without_any_key_is_refused_unless_the_stream_allows_it(receiver: Receiver) -> None:
    refused = problem(receiver.post("keyless", ROWS), 400)
    assert "Idempotency-Key" in refused["detail"]
    assert "keys: optional" in refused["next_step"]
    assert not (receiver.directory / "keyless").exists()
    for _ in range(2):
        assert receiver.post("open", ROWS).json() == {"stream": "open", "rows": 2}
    assert receiver.rows("open") == ROWS * 2


def test_chunks_are_taken_in_order_and_seen_with_the_last(receiver: Receiver) -> None:
    bodies = [lines([{"id": n}]) for n in (1, 2, 3)]
    sent = [chunk_of(body, 1, k, 3) for k, body in enumerate(bodies, 1)]
    assert "comes before chunk 1" in problem(receiver.send("slices", sent[1], bodies[1]), 409)["detail"]
    assert not (receiver.directory / "slices").exists(), "a refused chunk begins no log"
    first = receiver.send("slices", sent[0], bodies[0])
    assert first.json() == {
        "stream": "slices",
        "rows": 1,
        "slice": slice_id(1),
        "number": 1,
        "chunk": 1,
        "chunks": 3,
        "complete": False,
    }
    assert receiver.rows("slices") == []
    held = receiver.held("slices", "shop")
    assert held["last"] is None
    assert (held["open"]["slice"], held["open"]["held"]) == (slice_id(1), 1)
    assert protocol.decode_bounds(held["open"]["bounds"]) == {"n": 1}
    other = chunk_of(bodies[0], 1, slice_="ab")
    assert "is open" in problem(receiver.send("slices", other, bodies[0]), 409)["detail"]
    assert "before chunk 2" in problem(receiver.send("slices", sent[2], bodies[2]), 409)["detail"]
    again = receiver.send("slices", sent[0], bodies[0])
    assert (again.headers[protocol.REPLAYED], again.json()) == ("true", first.json())
    changed = lines([{"id": 7}])
    assert "other contents" in problem(receiver.send("slices", chunk_of(changed, 1, 1, 3), changed), 409)["detail"]
    assert receiver.send("slices", sent[1], bodies[1]).status_code == 200
    assert receiver.send("slices", sent[2], bodies[2]).json()["complete"] is True
    assert receiver.rows("slices") == [{"id": 1}, {"id": 2}, {"id": 3}]
    later = lines([{"id": 4}])
    refused = problem(receiver.send("slices", chunk_of(later, 3), later), 409)
    assert f"the last slice held is {slice_id(1)}" in refused["detail"]
    assert receiver.send("slices", chunk_of(later, 2), later).status_code == 200
    held = receiver.held("slices", "shop")
    assert (held["last"]["slice"], held["open"]) == (slice_id(2), None)


def test_an_open_slice_is_withdrawn_and_a_whole_one_is_not(receiver: Receiver) -> None:
    body = lines([{"id": 1}])
    url = f"{receiver.url}{protocol.slice_path('taken back', 'shop', slice_id(1))}"
    assert httpx.delete(url).json() == {"withdrawn": False, "chunks": 0}
    assert receiver.send("taken back", chunk_of(body, 1, 1, 2), body).status_code == 200
    assert httpx.delete(url).json() == {"withdrawn": True, "chunks": 1}
    assert httpx.delete(url).json() == {"withdrawn": False, "chunks": 0}
    assert receiver.send("taken back", chunk_of(body, 1, slice_="ab"), body).status_code == 200
    whole = httpx.delete(f"{receiver.url}{protocol.slice_path('taken back', 'shop', 'ab')}")
    assert "is whole" in problem(whole, 409)["detail"]
    assert receiver.rows("taken back") == [{"id": 1}]


def test_an_empty_chunk_takes_its_number(receiver: Receiver) -> None:
    assert receiver.send("empty", chunk_of(b"", 1, 1, 2), b"").status_code == 200
    body = lines([{"id": 1}])
    assert receiver.send("empty", chunk_of(body, 1, 2, 2), body).json()["complete"] is True
    assert receiver.rows("empty") == [{"id": 1}]


WRONG_HEADERS = {
    protocol.DIGEST: "sha-256=" + "0" * 64,
    protocol.ROWS: "5",
    protocol.CHUNK: "2/1",
    protocol.NUMBER: "0",
    protocol.SLICE: "not hex",
    protocol.KEY: "another",
    protocol.PRODUCER: "%zz",
    protocol.BOUNDS: "!!",
    protocol.META: "e30x!",
}


@pytest.mark.parametrize("header", WRONG_HEADERS)
def test_a_wrong_header_is_named(receiver: Receiver, header: str) -> None:
    body = lines(ROWS)
    answer = receiver.send("headers", chunk_of(body), body, **{header: WRONG_HEADERS[header]})
    assert header in problem(answer, 400)["detail"]
    assert not (receiver.directory / "headers").exists()


BAD_BODIES: dict[str, tuple[int, bytes, dict[str, str], str]] = {
    "no media type": (415, b"[]", {"Content-Type": ""}, "Content-Type"),
    "form": (415, b"a=1", {"Content-Type": "application/x-www-form-urlencoded"}, "Content-Type"),
    "charset": (415, b"[]", {"Content-Type": "application/json; charset=latin-1"}, "parameter"),
    "brotli": (415, b"[]", JSON | {"Content-Encoding": "br"}, "Content-Encoding"),
    "not gzip": (400, b"[]", JSON | {"Content-Encoding": "gzip"}, "not gzip"),
    "half of gzip": (400, gzip.compress(b"[1]" * 99)[:-9], JSON | {"Content-Encoding": "gzip"}, "cut off"),
    "half of zstd": (400, zstandard.compress(b"[1]" * 99)[:-3], JSON | {"Content-Encoding": "zstd"}, "cut off"),
    "garbage behind gzip": (400, gzip.compress(b"[]") + b"x", JSON | {"Content-Encoding": "gzip"}, "not gzip"),
    "not UTF-8": (400, b'[{"a": "\xff"}]', JSON, "UTF-8 at byte 8"),
    "UTF-16": (400, '[{"a": 1}]'.encode("utf-16"), JSON, "UTF-8"),
    "one object": (400, b'{"a": 1}', JSON, "not an array"),
    "half an array": (400, b'[{"a": 1}', JSON, "not JSON"),
    "empty": (400, b"", JSON, "not JSON"),
    "two rows in a line": (400, b'{"a": 1} {"a": 2}\n', NDJSON, "row 1"),
    "a row over two lines": (400, b'{"a":\n1}\n{}, {}', NDJSON, "row 1"),
    "a row over lines that count up": (400, b'{"a":[1\n2]}\n{},{}', NDJSON, "row 1"),
    "NaN": (400, b'{"a": 1}\n{"a": NaN}', NDJSON, "row 2"),
    "half a character": (400, b'{"a": "\\ud800"}', NDJSON, "surrogate"),
    "a control character": (400, b'{"a": "\x01"}', NDJSON, "row 1"),
    "an endless number": (400, b'{"a": ' + b"1" * 5000 + b"}", NDJSON, "digits"),
    "an endless exponent": (400, b'{"a": 1e99999999999999999999}', NDJSON, "digits"),
    "deep": (422, b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}", NDJSON, "nested"),
    "deep beyond parsing": (422, b'{"a": ' + b"[" * 90_000 + b"]" * 90_000 + b"}", NDJSON, "nested"),
    "deep array": (400, b"[" * 90_000 + b"]" * 90_000, JSON, "not an array"),
    "no object": (422, b'{"a": 1}\n[1]', NDJSON, "row 2: a row is a JSON object, not an array"),
    "many fields": (422, json.dumps({str(n): n for n in range(51)}).encode(), NDJSON, "51 fields"),
    "many rows": (413, b"{}\n" * 1001, NDJSON, "1,001 rows"),
    "a large row": (
        422,
        gzip.compress(b'{"a": "%s"}' % (b"x" * (1 << 20))),
        NDJSON | {"Content-Encoding": "gzip"},
        "1.0 MiB",
    ),
    "a large body": (413, b" " * ((1 << 20) + 1), NDJSON, "1.0 MiB"),
    "a bomb": (413, gzip.compress(b" " * (64 << 20)), NDJSON | {"Content-Encoding": "gzip"}, "4.0 MiB"),
    "a bomb of zstd": (413, zstandard.compress(b" " * (64 << 20)), NDJSON | {"Content-Encoding": "zstd"}, "4.0 MiB"),
}


@pytest.mark.parametrize("case", BAD_BODIES)
def test_a_body_that_is_refused_leaves_nothing(receiver: Receiver, case: str) -> None:
    status, body, headers, said = BAD_BODIES[case]
    answer = httpx.post(f"{receiver.url}{path_to('bad')}", content=body, headers=headers | {protocol.KEY: "k"})
    assert said in problem(answer, status)["detail"]
    assert not (receiver.directory / "bad").exists()


def test_brackets_within_strings_are_no_depth(receiver: Receiver) -> None:
    row = {"a": "[{" * 500 + '"\\[', "b": [{"c": [1]}]}
    assert receiver.post("brackets", [row], "k").status_code == 200
    assert receiver.rows("brackets") == [row]


UNFIT: dict[str, tuple[dict[str, Any], str, str]] = {
    "a string for a number": ({"id": "x"}, "id", "a string that does not fit int64"),
    "beyond 64 bits": ({"id": 2**63}, "id", "an integer that does not fit int64"),
    "a fraction": ({"id": 1.5}, "id", "a number with a fraction or an exponent that does not fit int64"),
    "more digits than declared": ({"id": 1, "price": "1.234"}, "price", "a string that does not fit decimal(10,2)"),
    "no time": ({"id": 1, "at": "yesterday"}, "at", "a string that does not fit timestamptz"),
    "an object for a time": ({"id": 1, "at": {}}, "at", "an object that does not fit timestamptz"),
    "no key": ({"price": "1.00"}, "id", "it is part of the primary key, and is missing or null"),
    "a null key": ({"id": None}, "id", "it is part of the primary key, and is missing or null"),
    "a kind of change": ({"id": 1, "_change": "insert"}, "_change", "it must be one of: upsert, delete"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_batch_that_does_not_fit_is_refused_with_row_field_and_reason(receiver: Receiver, case: str) -> None:
    row, field, reason = UNFIT[case]
    answer = receiver.post("declared", [{"id": 1, "price": "2.50", "at": "2026-01-01T00:00:00Z"}, row], "k")
    found = problem(answer, 422)
    assert (found["row"], found["field"], found["reason"]) == (2, field, reason)
    assert "Nothing of the batch was kept" in found["detail"]
    assert receiver.rows("declared") == []


def test_fields_that_are_not_declared_are_kept_or_refused(receiver: Receiver) -> None:
    row = {"id": 1, "price": 2.5, "pirce": 1, "_change": "delete"}
    found = problem(receiver.post("closed", [row], "k"), 422)
    assert (found["field"], found["reason"]) == ("pirce", "it is not declared; did you mean 'price'?")
    del row["pirce"]
    assert receiver.post("closed", [row], "k").status_code == 200
    assert receiver.rows("closed") == [row]


def test_only_accepted_producers_send(receiver: Receiver) -> None:
    body = lines(ROWS)
    assert "producer crm" in problem(receiver.send("picky", chunk_of(body, producer="crm"), body), 403)["detail"]
    assert "without a producer" in problem(receiver.post("picky", ROWS, "k"), 403)["detail"]
    assert receiver.send("picky", chunk_of(body), body).status_code == 200


def test_ops_are_checked_as_documents_of_their_version(receiver: Receiver) -> None:
    document = {"v": 1, "table": "t", "key": 1, "ops": [{"op": "set", "field": "a", "value": 1}]}
    assert receiver.post("changes", [document], "k", to="ops").status_code == 200
    cases: list[tuple[Any, str]] = [
        ({**document, "v": 2}, "this penstock reads version 1"),
        ({**document, "ops": [{"op": "put"}]}, "unknown op 'put'"),
        ([1], "a document is a JSON object"),
    ]
    for wrong, said in cases:
        found = problem(receiver.post("changes", [document, wrong], "k2", to="ops"), 422)
        assert found["row"] == 2
        assert said in found["detail"]
    assert receiver.rows("changes") == [document]


def test_rows_and_ops_are_not_mixed(receiver: Receiver) -> None:
    assert "takes ops" in problem(receiver.post("changes", ROWS, "k3"), 409)["detail"]
    assert receiver.post("only rows", ROWS, "k").status_code == 200
    assert "takes rows" in problem(receiver.post("only rows", [], "k2", to="ops"), 409)["detail"]


NAMES = ["../up", "a/b", ".", "..", "", " ", "\x00", "a\nb", "\u2028", "x" * 256, "Ä" * 60]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_stream_can_have(receiver: Receiver, name: str) -> None:
    before = {str(path) for path in receiver.folder.parent.rglob("*")}
    answer = receiver.post(name, ROWS, "k")
    assert problem(answer, 404)["detail"]
    assert {str(path) for path in receiver.folder.parent.rglob("*")} == before


@pytest.mark.parametrize(
    "path", ["/v1/streams/../batches", "/v1/streams/%2e%2e/batches", "/v1/streams/a/../../batches"]
)
def test_a_path_that_climbs_leads_nowhere(receiver: Receiver, path: str) -> None:
    request = httpx.Request("POST", receiver.url)
    request.url = httpx.URL(receiver.url).copy_with(raw_path=path.encode())
    with receiver.client() as client:
        problem(client.send(httpx.Request("POST", request.url, headers=JSON | {protocol.KEY: "k"}, content=b"[]")), 404)


def test_unusual_names_of_streams_and_producers_are_kept_apart(receiver: Receiver) -> None:
    for number, name in enumerate(("Ünï c%40de", "ünï c%40de", "a.b-c_d", ".hidden", "100%")):
        body = lines([{"id": number}])
        assert receiver.send(name, chunk_of(body, producer="a/b ü"), body).status_code == 200
        assert receiver.rows(name) == [{"id": number}]
        assert receiver.held(name, "a/b ü")["last"]["slice"] == slice_id(1)


def test_what_is_not_there(receiver: Receiver) -> None:
    assert receiver.held("never seen", "nobody") == {
        "stream": "never seen",
        "producer": "nobody",
        "last": None,
        "open": None,
    }
    problem(httpx.get(f"{receiver.url}/nothing"), 404)
    answer = httpx.put(f"{receiver.url}{path_to('orders')}")
    problem(answer, 405)
    assert answer.headers["allow"] == "POST"


def test_an_undeclared_stream_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    section: dict[str, Any] = {"streams": {"orders": {}, "customers": {}}}
    with receiving(tmp_path / "r", section) as receiver:
        found = problem(receiver.post("order", ROWS, "k"), 404)
        assert "did you mean 'orders'?" in found["detail"]
        assert receiver.post("orders", ROWS, "k").status_code == 200
        answer = httpx.get(f"{receiver.url}{protocol.producer_path('order', 'shop')}")
        assert "did you mean 'orders'?" in problem(answer, 404)["detail"]
        assert sorted(path.name for path in receiver.directory.iterdir() if path.is_dir()) == ["orders"]

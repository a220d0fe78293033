"""Secrets that a client sends by mistake, in any place, appear in no log line and in no answer."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from tests.service.receiving import JSON, NDJSON, Receiver, chunk_of, lines, path_to

from penstock.config.receiver import Receiver as Settings
from penstock.links.http import protocol
from penstock.service.access import Access
from penstock.service.app import create_app
from penstock.service.load import Load
from penstock.service.receiver import Receiver as Service
from penstock.service.receiver import now
from penstock.service.room import Room
from penstock.service.streams import Streams
from penstock.service.tokens import TokenFile
from penstock.wal.group_commit import GroupCommit

SECRET = "hunter2-s3cr3t"
ROW = {"id": SECRET, "password": SECRET, "nested": {"deep": [SECRET]}}
KEY = {protocol.KEY: "k"}

BODIES: dict[str, tuple[bytes, dict[str, str]]] = {
    "a value that does not fit": (json.dumps([ROW]).encode(), JSON),
    "no JSON": (f'{{"id": 1, "password": {SECRET}}}'.encode(), NDJSON),
    "half a row": (json.dumps(ROW)[:-9].encode(), NDJSON),
    "no object": (json.dumps([[SECRET]]).encode(), JSON),
    "not an array": (json.dumps(ROW).encode(), JSON),
    "not UTF-8": (SECRET.encode() + b"\xff", NDJSON),
    "not gzip": (SECRET.encode(), NDJSON | {"Content-Encoding": "gzip"}),
    "too large": (SECRET.encode() * 100_000, NDJSON),
    "too large when decoded": (gzip.compress(SECRET.encode() * 900_000), NDJSON | {"Content-Encoding": "gzip"}),
    "another type": (SECRET.encode(), {"Content-Type": f"text/{SECRET}"}),
    "another parameter": (b"[]", {"Content-Type": f"application/json; x={SECRET}"}),
    "another encoding": (b"[]", JSON | {"Content-Encoding": SECRET}),
}
HEADERS: dict[str, dict[str, str]] = {
    "token": {"Authorization": f"Bearer {SECRET}"},
    "basic": {"Authorization": f"Basic {SECRET}"},
    "cookie": {"Cookie": f"session={SECRET}"},
    "any": {"X-Api-Key": SECRET},
    "meta": {protocol.META: SECRET},
    "digest": {protocol.DIGEST: SECRET},
    "slice": {protocol.SLICE: SECRET},
    "number": {protocol.NUMBER: SECRET},
    "chunk": {protocol.CHUNK: SECRET},
    "rows": {protocol.ROWS: SECRET},
    "bounds": {protocol.BOUNDS: f"!{SECRET}"},
    "predecessor": {protocol.PREDECESSOR: SECRET},
}


@pytest.mark.parametrize("with_tokens", [False, True], ids=["open", "tokens"])
def test_no_answer_and_no_line_has_a_planted_secret(tmp_path: Path, with_tokens: bool) -> None:
    section: dict[str, Any] = {
        "create_streams": True,
        "limits": {"request_bytes": "1MiB", "decoded_bytes": "4MiB"},
        "streams": {"orders": {"columns": {"id": "int64"}}, "changes": {"takes": "ops"}},
    }
    receiver = Receiver(tmp_path / "r", section)
    token = {}
    if with_tokens:
        made = TokenFile(str(receiver.directory)).create("shop", ["ingest"])
        token = {"Authorization": f"Bearer {made}"}
    receiver.start()
    try:
        answers = []
        with receiver.client(headers=token) as client:
            for body, headers in BODIES.values():
                answers += [client.post(path_to("orders"), content=body, headers=headers | KEY)]
                answers += [client.post(path_to("changes", "ops"), content=body, headers=headers | KEY)]
            body = lines([{"id": 1}])
            for headers in HEADERS.values():
                answers += [client.post(path_to("orders"), content=body, headers=NDJSON | KEY | headers)]
                sent = chunk_of(body).headers() | NDJSON
                answers += [client.post(path_to("orders"), content=body, headers=sent | headers)]
                answers += [client.get("/metrics", headers=headers), client.get("/healthz", headers=headers)]
            for path in (f"/nothing?token={SECRET}", f"{path_to('orders')}?token={SECRET}", f"/healthz?a={SECRET}"):
                answers += [client.get(path), client.post(path, content=b"[]", headers=JSON | KEY)]
        assert {answer.status_code for answer in answers} >= {400, 404, 405, 413, 415, 422}
        assert all(answer.status_code < 500 for answer in answers)
        for answer in answers:
            assert SECRET not in answer.text
            assert SECRET not in str(answer.headers)
            assert not with_tokens or made not in answer.text
        ended = receiver.stop()
        assert SECRET not in ended.err + ended.out
        assert not with_tokens or made not in ended.err
        kept = [
            path for path in receiver.directory.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
        ]
        assert kept == []
    finally:
        receiver.kill()


def test_a_defect_says_where_and_not_what(tmp_path: Path) -> None:
    """An exception whose message has a secret: the answer is 500, the line names its type and place."""
    said: list[str] = []
    settings = Settings(directory=str(tmp_path), create_streams=True)
    service = Service(
        settings,
        Streams(str(tmp_path), settings, now, said.append),
        GroupCommit(),
        Access(TokenFile(str(tmp_path)), True),
        Load(settings.limits),
        Room(settings.log, now),
        said.append,
    )
    app = create_app(service)
    broken = APIRouter()

    @broken.get("/broken")
    async def fail() -> None:
        service.streams.find(SECRET)
        raise RuntimeError(f"the password is {SECRET}")

    app.app.include_router(broken)

    def fail_inside(_: str) -> None:
        raise ValueError(SECRET)

    async def ask(path: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get(path)

    try:
        first = asyncio.run(ask("/broken"))
        setattr(service.streams, "find", fail_inside)  # noqa: B010 (a method is no variable to mypy)
        second = asyncio.run(ask(protocol.producer_path("orders", "shop")))
    finally:
        service.close()
    for answer in (first, second):
        assert answer.status_code == 500
        assert answer.headers["content-type"] == protocol.PROBLEM
        assert SECRET not in answer.text
    assert len(said) == 2
    assert "RuntimeError" in said[0]
    assert "ValueError at service/producers.py:" in said[1]
    assert SECRET not in " ".join(said)

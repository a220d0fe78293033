"""No answer before the log says so, and every way in which it may say no."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.receiving import JSON, chunk_of, lines, path_to, rows_in

from penstock.config.receiver import Receiver as Settings
from penstock.links.http import protocol
from penstock.service.access import Access
from penstock.service.app import create_app
from penstock.service.load import Load
from penstock.service.receiver import Receiver, now
from penstock.service.room import Room
from penstock.service.streams import Streams
from penstock.service.tokens import TokenFile
from penstock.wal.group_commit import GroupCommit
from penstock.wal.ledger import Take
from penstock.wal.log import Entry, Failed, Full, Log, Outcome


class HeldCommit(GroupCommit):
    """A group commit that is told when, and what, it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Log, Entry, Future[Outcome]]] = []

    def submit(self, log: Log, entry: Entry) -> Future[Outcome]:
        answer: Future[Outcome] = Future()
        self.held.append((log, entry, answer))
        return answer

    def write(self) -> None:
        for log, entry, answer in self.held:
            answer.set_result(log.append([entry])[0])


@contextmanager
def service(folder: Path, group: GroupCommit, said: list[str]) -> Iterator[Callable[..., Any]]:
    """A receiver in this process; a function that sends to it."""
    settings = Settings(directory=str(folder), create_streams=True)
    receiver = Receiver(
        settings,
        Streams(str(folder), settings, now, said.append),
        group,
        Access(TokenFile(str(folder)), True),
        Load(settings.limits),
        Room(settings.log, now),
        said.append,
    )
    app = create_app(receiver)

    async def send(method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    try:
        yield send
    finally:
        receiver.close()


BATCH: dict[str, Any] = {"content": b'[{"id": 1}]', "headers": JSON | {protocol.KEY: "k"}}


def test_nothing_is_answered_before_it_is_on_disk(tmp_path: Path) -> None:
    group = HeldCommit()

    async def wait_for(send: Callable[..., Any]) -> httpx.Response:
        task = asyncio.ensure_future(send("POST", path_to("orders"), **BATCH))
        while not group.held:
            await asyncio.sleep(0.01)
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert not task.done()
        assert rows_in(str(tmp_path), "orders") == []
        group.write()
        found: httpx.Response = await task
        return found

    with service(tmp_path, group, []) as send:
        assert asyncio.run(wait_for(send)).status_code == 200
        assert rows_in(str(tmp_path), "orders") == [{"id": 1}]


class AnsweringCommit(GroupCommit):
    """A group commit with one answer to everything but its first entry."""

    def __init__(self, answer: Outcome | Exception) -> None:
        super().__init__()
        self.answer = answer
        self.count = 0

    def submit(self, log: Log, entry: Entry) -> Future[Outcome]:
        self.count += 1
        if self.count == 1:
            return super().submit(log, entry)
        found: Future[Outcome] = Future()
        if isinstance(self.answer, Exception):
            found.set_exception(self.answer)
        else:
            found.set_result(self.answer)
        return found


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Full("the disk under the log is full"), 507),
        (Failed("the log could not be written: Input/output error"), 503),
        (RuntimeError("a defect"), 500),
        (Take(), 200),
    ],
)
def test_what_the_log_says_is_what_is_answered(tmp_path: Path, answer: Outcome | Exception, status: int) -> None:
    body = lines([{"id": 1}])
    said: list[str] = []
    with service(tmp_path, AnsweringCommit(answer), said) as send:
        first = chunk_of(body, 1, 1, 2)
        headers = first.headers() | {"Content-Type": protocol.NDJSON}
        assert asyncio.run(send("POST", path_to("orders"), content=body, headers=headers)).status_code == 200
        found = asyncio.run(send("POST", path_to("orders"), **BATCH))
        assert found.status_code == status
        if isinstance(answer, Full | Failed):
            assert found.json()["detail"] == answer.reason
            assert int(found.headers["retry-after"]) > 0
        url = protocol.slice_path("orders", "shop", first.slice)
        found = asyncio.run(send("DELETE", url))
        assert found.status_code == status
        assert any("RuntimeError" in line for line in said) == isinstance(answer, Exception)

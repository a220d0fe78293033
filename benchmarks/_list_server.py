"""A server of lists that answers at once: every page is a piece of one buffer that was made before.

Run as a process of its own by `ListServer`. All lists have the same records of 1 KB, one for each second, the newest
first. It knows the parameters of a stream with default options.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl

RECORD_BYTES = 1024
#: time of the oldest record
FIRST = 1_700_000_000
#: records that every list can have; a request's path says how many it has: /<records>/<stream>
_ID = "ch_{:012}"
_FILLER = "the quick brown fox jumps over the lazy dog "


def record(number: int) -> str:
    """The record of a number; the newest has the highest."""
    head = (
        f'{{"id":"{_ID.format(number)}","object":"charge","created":{FIRST + number},'
        f'"amount":{number * 7919 % 1000000},'
        f'"currency":"eur","paid":{"true" if number % 3 else "false"},'
        f'"metadata":{{"number":"{number}","lines":[{{"sku":"SKU-{number % 9973}","qty":{number % 10}}}]}},'
        '"description":"'
    )
    filler = (_FILLER * 24)[: RECORD_BYTES - len(head) - 2]
    return f'{head}{filler}"}}'


def render(records: int) -> bytes:
    """All records, the newest first, with a comma after each."""
    return "".join(f"{record(number)}," for number in range(records - 1, -1, -1)).encode()


class _Connection(asyncio.Protocol):
    def __init__(self, pages: memoryview, most: int) -> None:
        self._pages, self._most = pages, most
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=1 << 22)

    def data_received(self, data: bytes) -> None:
        *requests, self._rest = (self._rest + data).split(b"\r\n\r\n")
        for request in requests:
            self._answer(request.split(b" ", 2)[1].decode())

    def _answer(self, target: str) -> None:
        path, _, query = target.partition("?")
        asked = dict(parse_qsl(query))
        records = int(path.split("/")[1])
        high = min(records, int(asked.get("created[lt]", records + FIRST)) - FIRST)
        low = max(0, int(asked.get("created[gte]", FIRST)) - FIRST)
        if after := asked.get("starting_after"):
            high = min(high, int(after[3:]))
        count = max(0, min(int(asked.get("limit", 100)), high - low))
        begin = self._most - high
        width = RECORD_BYTES + 1
        body = self._pages[begin * width : (begin + count) * width - 1] if count else memoryview(b"")
        more = b"true" if high - count > low else b"false"
        opening, ending = b'{"object":"list","has_more":' + more + b',"data":[', b"]}"
        size = len(opening) + len(body) + len(ending)
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n"
            f"Date: {formatdate(time.time(), usegmt=True)}\r\n\r\n"
        )
        self._transport.writelines([head.encode() + opening, body, ending])


async def serve(most: int) -> None:
    pages = memoryview(render(most))
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(pages, most), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Ends when the process that has started it closes the pipe.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


class ListServer:
    """The server; leaving the `with` ends it."""

    def __init__(self, most: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._list_server", str(most)],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))

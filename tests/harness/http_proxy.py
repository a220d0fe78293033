"""A proxy between a sender and a receiver that records every request and fails as it is ordered to.

It listens in a thread of this process. What it does with a request is a `Fault`: forwarded and answered (`PASS`),
forwarded with the answer lost, cut in the middle of a body, delayed, or answered by the proxy itself.
"""

from __future__ import annotations

import asyncio
import json
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import zstandard

T = TypeVar("T")

#: seconds that the receiver may take for an answer
PATIENCE = 60.0


@dataclass(frozen=True)
class Fault:
    """What becomes of one request."""

    #: seconds that pass before anything else
    delay: float = 0.0
    #: the request reaches the receiver
    is_forwarded: bool = True
    #: how much of the answer reaches the sender; 0: none of it, and the connection is cut
    answered: float = 1.0
    #: this is answered instead of what the receiver has answered
    answer: bytes | None = None


PASS = Fault()
#: the receiver has taken it, and the sender is never told
LOST_ANSWER = Fault(answered=0.0)
#: what a proxy says while nobody listens behind it
_BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
#: the head of the answer comes, and not all of its body
HALF_ANSWER = Fault(answered=0.9)
#: the receiver never sees it
CUT = Fault(is_forwarded=False, answered=0.0)
GARBAGE = Fault(is_forwarded=False, answer=b"\x00\xff this is not HTTP \r\n\r\n")


def canned(
    status: int, headers: Mapping[str, str] | None = None, body: bytes = b"", *, forwarded: bool = False
) -> Fault:
    """An answer of the proxy's own."""
    lines = [f"HTTP/1.1 {status} Canned", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return Fault(is_forwarded=forwarded, answer="\r\n".join([*lines, "", ""]).encode() + body)


def silent(seconds: float) -> Fault:
    """Nothing is answered for this time; then the connection is cut."""
    return Fault(delay=seconds, is_forwarded=False, answered=0.0)


@dataclass
class Exchange:
    """One request, and what became of it."""

    method: str
    path: str
    #: by lower-case name
    headers: dict[str, str]
    #: as it was sent, after chunked transfer coding
    body: bytes = field(repr=False)
    fault: Fault = PASS
    #: what the receiver answered; 0: it was not asked, or did not answer
    status: int = 0
    #: the body of that answer
    answer: bytes = field(default=b"", repr=False)

    @property
    def key(self) -> str:
        return self.headers.get("idempotency-key", "")

    @property
    def decoded(self) -> bytes:
        """The body without its content coding."""
        match self.headers.get("content-encoding", ""):
            case "gzip":
                return zlib.decompress(self.body, wbits=31)
            case "zstd":
                return zstandard.ZstdDecompressor().decompressobj().decompress(self.body)
        return self.body

    @property
    def rows(self) -> list[dict[str, object]]:
        """The rows of a body of NDJSON."""
        return [json.loads(line) for line in self.decoded.splitlines()]


class HttpProxy:
    """Leaving the `with` closes it. `choose` is asked in the proxy's thread, for each request."""

    def __init__(self, target: str, choose: Callable[[Exchange], Fault] = lambda _: PASS) -> None:
        self.target = target
        self.choose = choose
        self._exchanges: list[Exchange] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http-proxy", daemon=True)

    # ------------------------------------------------------------ what a test asks

    @property
    def exchanges(self) -> list[Exchange]:
        """All requests so far, in the order in which they were whole."""
        with self._lock:
            return [*self._exchanges]

    @property
    def posts(self) -> list[Exchange]:
        return [each for each in self.exchanges if each.method == "POST"]

    def by_key(self) -> dict[str, list[Exchange]]:
        """Every attempt of each chunk."""
        found = defaultdict(list)
        for each in self.posts:
            found[each.key].append(each)
        return dict(found)

    def fail_next(self, *faults: Fault, method: str = "POST") -> None:
        """What becomes of the next requests with this method; those after them pass."""
        waiting = [*faults]

        def choose(exchange: Exchange) -> Fault:
            return waiting.pop(0) if waiting and exchange.method == method else PASS

        self.choose = choose

    # ------------------------------------------------------------ running

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, awaited: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(awaited, self._loop).result(PATIENCE)

    async def _close(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a sender; it ends with the first answer that is not whole."""
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while (request := await _read_message(reader)) is not None:
                if not await self._handle(request, writer):
                    break
        writer.close()

    async def _handle(self, request: _Message, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can be used for another request."""
        method, path, _ = request.first.split(" ", 2)
        exchange = Exchange(method, path, request.headers, request.body)
        fault = exchange.fault = self.choose(exchange)
        with self._lock:
            self._exchanges.append(exchange)
        await asyncio.sleep(fault.delay)
        answer = await self._forward(request, exchange) if fault.is_forwarded else b""
        sent = fault.answer if fault.answer is not None else answer[: int(len(answer) * fault.answered)]
        writer.write(sent)
        await writer.drain()
        return fault.answer is None and bool(answer) and len(sent) == len(answer)

    async def _forward(self, request: _Message, exchange: Exchange) -> bytes:
        """The receiver's answer, whole, or 502 if it is not there; b"": it ended before it had answered."""
        place = urlsplit(self.target)
        try:
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
        except OSError:
            return _BAD_GATEWAY
        try:
            writer.write(request.raw)
            answer = await asyncio.wait_for(_read_message(reader), PATIENCE)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            return b""
        finally:
            writer.close()
        if answer is None:
            return b""
        exchange.status, exchange.answer = int(answer.first.split(" ")[1]), answer.body
        return answer.raw


@dataclass(frozen=True)
class _Message:
    """A request or an answer."""

    #: its first line
    first: str
    headers: dict[str, str]
    body: bytes
    #: all of it, as it came
    raw: bytes


async def _read_message(reader: asyncio.StreamReader) -> _Message | None:
    """The next message of a connection; None: it was closed before one began."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body, raw = await _read_chunks(reader)
    else:
        body = raw = await reader.readexactly(int(headers.get("content-length", 0)))
    return _Message(first, headers, body, head + raw)


async def _read_chunks(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """A body in chunked transfer coding: without it, and as it came."""
    body, raw = bytearray(), bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        data = await reader.readexactly(size + 2)
        raw += line + data
        body += data[:-2]
        if not size:
            return bytes(body), bytes(raw)

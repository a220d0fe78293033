"""One connection over HTTP/1.1, straight on the event loop: a request costs a tenth of what httpx's own layers cost.

The answer's bytes are parsed by httptools. Proxies and HTTP/2 are left to httpx: see `connection`.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from penstock.links.http.failures import AnswerLost

#: seconds without a request after which a connection is not used again: the server may be about to close it
KEEP_ALIVE_SECONDS = 5.0
#: bytes of an answer's head; nothing sensible is longer
HEAD_BYTES = 256 << 10
#: seconds after which another address of the same host is tried beside the first
NEXT_ADDRESS_SECONDS = 0.25
#: seconds to wait until a socket is closed
CLOSE_SECONDS = 2.0
#: statuses whose answers have no body, whatever the head says
_BODILESS = frozenset({204, 304})


class SpeaksHttp2(Exception):
    """The server has chosen HTTP/2 for this connection, which is closed."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer as it came: its body may be encoded."""

    status: int
    #: by lower-case name; values of the same name are joined by commas
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Server:
    """Where a connection leads."""

    host: str
    port: int
    #: None: without TLS
    tls: ssl.SSLContext | None


class Http1Connection(asyncio.Protocol):
    """Sends one request at a time. Belongs to one event loop."""

    def __init__(self, timeout: float) -> None:
        import httptools

        self._timeout = timeout
        self._parser: Any = httptools.HttpResponseParser(self)
        self._loop = asyncio.get_running_loop()
        #: when the last byte came, or the last request was sent
        self._heard = self._loop.time()
        self._answer: asyncio.Future[RawAnswer] | None = None
        self._may_be_kept = True
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._begin()

    @classmethod
    async def open(cls, server: Server, timeout: float) -> Http1Connection:
        """Connect. AnswerLost if there is no connection in time, SpeaksHttp2 if the server prefers that."""
        tls = {"ssl": server.tls, "server_hostname": server.host} if server.tls else {}
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout) as limit:
                found = await loop.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
                # One address is not raced: asyncio forgets a socket whose race is cancelled in the moment it is won.
                race = {"happy_eyeballs_delay": NEXT_ADDRESS_SECONDS} if len(found) > 1 else {}
                host = server.host if race else str(found[0][4][0])
                options = cast("dict[str, Any]", tls | race)
                transport, connection = await loop.create_connection(lambda: cls(timeout), host, server.port, **options)
        except (OSError, UnicodeError) as error:
            if limit.expired():
                raise AnswerLost(f"no answer within {timeout:g} s") from None
            raise AnswerLost(f"the server cannot be reached: {error}", connect=True) from None
        secured = transport.get_extra_info("ssl_object")
        if secured is not None and secured.selected_alpn_protocol() == "h2":
            await connection.close()
            raise SpeaksHttp2
        return connection

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent: the server has kept the connection, as far as is known."""
        if not self._may_be_kept or self._transport.is_closing():
            return False
        # What can be read now, the loop has not seen yet: the end of the connection, or what was never asked for.
        return self._loop.time() - self._heard < KEEP_ALIVE_SECONDS and not self._poll.poll(0)

    async def ask(self, request: bytes) -> RawAnswer:
        """The answer to a request. AnswerLost if it does not come whole; the connection is then of no use."""
        if self._transport.is_closing():
            raise AnswerLost("the connection was lost: the server has closed it")
        self._begin()
        self._answer = self._loop.create_future()
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(self._timeout, self._watch)
        try:
            self._transport.write(request)
            return await self._answer
        finally:
            self._timer.cancel()
            self._answer = None
            if not self._is_complete:
                self.give_up()

    def give_up(self) -> None:
        """Close without waiting for anything. Idempotent."""
        self._may_be_kept = False
        self._transport.abort()

    async def close(self) -> None:
        """Close, and wait until the socket is closed. Idempotent."""
        self.give_up()
        await asyncio.wait([self._closed], timeout=CLOSE_SECONDS)

    # ------------------------------------------------------------ from the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        import httptools

        self._heard = self._loop.time()
        if self._answer is None or self._is_complete:
            self.give_up()  # nobody has asked for this
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, UnicodeDecodeError):
            self._lose("the connection was lost: the answer is no HTTP")
            return
        if not self._has_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._lose("the connection was lost: the head of the answer has no end")

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)
        self._parser = None  # it refers to this object
        if not self._closed.done():
            self._closed.set_result(None)

    def _end(self, error: Exception | None = None) -> None:
        """The server sends no more: its answer is whole if nothing but this could end it."""
        self._may_be_kept = False
        if self._has_head and self._ends_with_connection and error is None and not self._is_complete:
            self._complete()
        else:
            self._lose(f"the connection was lost: {error or 'the server has closed it'}")

    def _watch(self) -> None:
        silent = self._loop.time() - self._heard
        if silent < self._timeout:
            self._timer = self._loop.call_later(self._timeout - silent, self._watch)
        else:
            self._lose(f"no answer within {self._timeout:g} s")

    # ------------------------------------------------------------ from the parser

    def _begin(self) -> None:
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._head_bytes = 0
        self._has_head = self._ends_with_connection = self._is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            return  # a trailer
        key, text = name.decode("ascii").lower(), value.decode("latin-1").strip()
        before = self._headers.get(key)
        self._headers[key] = text if before is None else f"{before}, {text}"

    def on_headers_complete(self) -> None:
        if self._is_complete:
            return  # of a second answer to one request
        self._has_head = True
        self._status: int = self._parser.get_status_code()
        # Valid only here: the parser forgets it at the end of the message.
        self._may_be_kept = self._parser.should_keep_alive()
        has_length = "content-length" in self._headers or self._status in _BODILESS
        self._ends_with_connection = not has_length and "transfer-encoding" not in self._headers

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        if self._is_complete:
            self._may_be_kept = False
        elif self._status < 200:
            self._begin()  # the answer itself follows
        else:
            self._complete()

    def _complete(self) -> None:
        self._is_complete = True
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(RawAnswer(self._status, self._headers, body))

    def _lose(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(AnswerLost(why))
        self.give_up()


def render_request(target: str, headers: Mapping[str, str]) -> bytes:
    """A GET request; the values of its headers are checked before."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode("ascii")

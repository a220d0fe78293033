"""One connection: uvicorn's protocol, with limits for clients that send slowly, too much, or nothing at all."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from penstock.links.http.protocol import PROBLEM
from penstock.service.problems import Problem

#: bytes of a request's line and headers
_MOST_HEADER_BYTES = 128 << 10


def limited(header_seconds: float, connections: int) -> type[HttpToolsProtocol]:
    """The protocol with these limits."""

    class Limited(LimitedProtocol):
        seconds = header_seconds
        most = connections

    return Limited


class LimitedProtocol(HttpToolsProtocol):
    """A request's headers must arrive within a time and a size; there is a number of connections at most."""

    seconds: ClassVar[float] = 30.0
    most: ClassVar[int] = 512
    _waiting: asyncio.TimerHandle | None = None
    _is_in_headers: bool = False
    _header_bytes: int = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(Problem(429, f"{self.most} connections are open", "use fewer connections at the same time"))
            return
        self._begin_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_in_headers or self._waiting is not None:
            self._header_bytes += len(data)
            # A body may have begun in these bytes; then the headers were complete, and nothing is counted any more.
        super().data_received(data)
        is_still_in_headers = self._is_in_headers or self._waiting is not None
        if is_still_in_headers and self._header_bytes > _MOST_HEADER_BYTES and not self.transport.is_closing():
            self._refuse(
                Problem(431, f"the headers are larger than {_MOST_HEADER_BYTES >> 10} KiB", "send smaller headers")
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_headers = True
        if self._waiting is None:
            self._begin_waiting()

    def on_headers_complete(self) -> None:
        self._is_in_headers = False
        self._header_bytes = 0
        self._end_waiting()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem(400, "the request is not HTTP/1.1", "correct the request"))

    def _begin_waiting(self) -> None:
        self._end_waiting()
        self._header_bytes = 0
        self._waiting = self.loop.call_later(self.seconds, self._on_silence)

    def _end_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _on_silence(self) -> None:
        self._waiting = None
        if self.transport.is_closing():
            return
        if self._header_bytes == 0:
            self.transport.close()
            return
        self._refuse(Problem(408, f"the headers had not arrived after {self.seconds:g} s", "send the request at once"))

    def _refuse(self, problem: Problem) -> None:
        """Answer without the app, and close."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.close()
            return
        answer = problem.response()
        lines = [STATUS_LINE[problem.status], f"content-type: {PROBLEM}\r\n".encode()]
        lines += [b"%s: %s\r\n" % each for each in answer.raw_headers if each[0] not in (b"content-type",)]
        self.transport.write(b"".join([*lines, b"connection: close\r\n\r\n", bytes(answer.body)]))
        self.transport.close()

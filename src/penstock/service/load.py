"""What is under way: requests and the bytes of their bodies, so that too many are turned away instead of kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from starlette.requests import Request

from penstock.config.receiver import ReceiverLimits
from penstock.core.sizes import shown_size
from penstock.service.problems import Problem

#: bodies of all requests in progress may take this many times the largest one
_BODIES = 8
#: seconds that requests in progress get to arrive when the receiver stops
STOP_SECONDS = 4.0
#: seconds and bytes for which a body that is too large is read on, so that its sender sees the answer
_DRAIN_SECONDS = 5.0
_DRAIN_BYTES = 256 << 20
_CLOSE = {"Connection": "close"}


class Disconnected(Exception):
    """The client has gone: nobody reads an answer."""


@dataclass
class Load:
    """Requests in progress. Belongs to the event loop."""

    limits: ReceiverLimits
    _requests: int = 0
    _bytes: int = 0
    _is_stopping: bool = False
    _arriving: set[asyncio.Timeout] = field(default_factory=set)

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def stop(self) -> None:
        """Give bodies that have not arrived yet a last time."""
        self._is_stopping = True
        until = asyncio.get_running_loop().time() + STOP_SECONDS
        for timeout in self._arriving:
            if (at := timeout.when()) is None or at > until:
                timeout.reschedule(until)

    @contextmanager
    def request(self) -> Iterator[None]:
        """One request; Problem 429 if there are too many."""
        if self._requests >= self.limits.requests:
            raise Problem(
                429,
                f"{self.limits.requests} requests are in progress",
                "send it again after `Retry-After`, and fewer at the same time",
                headers=_CLOSE,
            )
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    @asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        """The body of a request, which counts until it is let go. Problem 408, 413, 429 or 503; Disconnected."""
        parts: list[bytes] = []
        try:
            announced = request.headers.get("content-length", "")
            if announced.isdigit() and int(announced) > self.limits.request_bytes:
                raise self._too_large()
            await self._read(request, parts)
            yield b"".join(parts)
        except Problem as problem:
            if problem.status in (413, 429) and problem.headers.get("Connection") == "close":
                await _drain(request)
            raise
        finally:
            self._bytes -= sum(map(len, parts))

    async def _read(self, request: Request, parts: list[bytes]) -> None:
        seconds = self.limits.request_time.total_seconds()
        size = 0
        try:
            async with asyncio.timeout(min(seconds, STOP_SECONDS) if self._is_stopping else seconds) as timeout:
                self._arriving.add(timeout)
                try:
                    while True:
                        message = await request.receive()
                        if message["type"] != "http.request":
                            raise Disconnected
                        part = message.get("body", b"")
                        size += len(part)
                        if size > self.limits.request_bytes:
                            raise self._too_large()
                        if self._bytes + len(part) > self.limits.request_bytes * _BODIES:
                            raise Problem(
                                429,
                                "the bodies in progress use all the memory that they may",
                                "send it again after `Retry-After`, and fewer at the same time",
                                headers=_CLOSE,
                            )
                        self._bytes += len(part)
                        parts.append(part)
                        if not message.get("more_body", False):
                            return
                finally:
                    self._arriving.discard(timeout)
        except TimeoutError:
            if self._is_stopping:
                raise Problem(503, "the receiver is stopping", "send it again when it is up", headers=_CLOSE) from None
            raise Problem(
                408,
                f"the body had not arrived after {seconds:g} s",
                "send smaller batches, or raise `request_time` of the receiver",
                headers=_CLOSE,
            ) from None

    def _too_large(self) -> Problem:
        return Problem(
            413,
            f"the body is larger than {shown_size(self.limits.request_bytes)}",
            "send smaller batches, or raise `request_bytes` of the receiver",
            headers=_CLOSE,
        )


async def _drain(request: Request) -> None:
    """Read what is still sent and keep nothing: a client that is cut off while it sends does not see its answer."""
    if request.headers.get("expect", "").lower() == "100-continue":
        return
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while size < _DRAIN_BYTES:
                message = await request.receive()
                size += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return

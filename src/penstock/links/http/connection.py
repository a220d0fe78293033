"""One connection to a server. A GET goes straight over HTTP/1.1 where that is possible; the rest is sent by httpx.

httpx's transport is used without its client, which costs a third of the CPU time of a request: it follows redirects,
keeps cookies and merges settings, and an account needs none of it.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.errors import ConnectionFailed
from penstock.links.http.direct import DirectConnection
from penstock.links.http.failures import Answer, read_lost
from penstock.links.http.http1 import RawAnswer, SpeaksHttp2

if TYPE_CHECKING:
    import ssl

    import httpx

#: the encodings of bodies that httpx decodes without a further library
_ENCODINGS = "gzip, deflate"

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?|")


def check_headers(headers: Mapping[str, str]) -> None:
    """ConnectionFailed if a header cannot be sent; its value is not shown."""
    for name, value in headers.items():
        if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
            raise ConnectionFailed(
                f"header {name!r} cannot be sent: its name or its value has a line break, a space at an end, or "
                "another character that headers must not have",
                next_step="correct `headers` or `auth` of the source; a secret that was read from a file may end in a "
                "line break",
            )


class Connection:
    """Sends one request at a time, over HTTP/2 where the server offers it. Belongs to one event loop."""

    def __init__(
        self,
        base_url: str,
        tls: ssl.SSLContext | None,
        timeout: float,
        headers: Mapping[str, str],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`tls` is None for a server without TLS. `transport` sends the requests, if not a connection of its own."""
        self._base_url, self._tls, self._timeout = base_url, tls, timeout
        self._headers = {"Accept-Encoding": _ENCODINGS, **headers}
        check_headers(self._headers)
        self._proxy = find_proxy(base_url)
        self._transport = transport
        self._is_direct = transport is None and self._proxy is None
        self._direct: DirectConnection | None = None

    async def get(self, url: str, headers: Mapping[str, str]) -> Answer:
        """The answer to a GET; AnswerLost if none comes whole."""
        if self._is_direct:
            check_headers(headers)
            begun = time.monotonic()
            self._direct = self._direct or DirectConnection(self._base_url, self._tls, self._timeout, self._headers)
            try:
                raw = await self._direct.get(url, headers)
            except SpeaksHttp2:
                self._is_direct = False
            else:
                body = self._decode(raw) if "content-encoding" in raw.headers else raw.body
                return Answer(raw.status, raw.headers, body, time.monotonic() - begun)
        return await self.send("GET", url, headers)

    def _decode(self, raw: RawAnswer) -> bytes:
        import httpx

        encoding = {"content-encoding": raw.headers["content-encoding"]}
        try:
            return httpx.Response(raw.status, headers=encoding, content=raw.body).content
        except httpx.DecodingError as error:
            raise read_lost(error, self._timeout) from None

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
        """The answer to a request, by httpx; AnswerLost if none comes whole. A redirect is not followed."""
        import httpx

        check_headers(headers)
        if self._transport is None:
            limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
            verify = self._tls or False
            self._transport = httpx.AsyncHTTPTransport(http2=True, verify=verify, limits=limits, proxy=self._proxy)
        extensions = {"timeout": httpx.Timeout(self._timeout).as_dict()}
        request = httpx.Request(method, url, headers={**self._headers, **headers}, content=body, extensions=extensions)
        begun = time.monotonic()
        try:
            response = await self._transport.handle_async_request(request)
            try:
                body = await _read(response)
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            raise read_lost(error, self._timeout) from None
        found = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, found, body, time.monotonic() - begun)

    async def close(self) -> None:
        if self._direct is not None:
            await self._direct.close()
        if self._transport is not None:
            await self._transport.aclose()


async def _read(response: httpx.Response) -> bytes:
    import httpx

    if "content-encoding" in response.headers or not isinstance(response.stream, httpx.AsyncByteStream):
        return await response.aread()
    return b"".join([piece async for piece in response.stream])


def find_proxy(url: str) -> str | None:
    """The proxy that the environment names for a server; None: it is asked directly."""
    server = urlsplit(url)
    proxies = urllib.request.getproxies()
    found = proxies.get(server.scheme) or proxies.get("all")
    if not found or urllib.request.proxy_bypass(server.netloc):
        return None
    return found if "://" in found else f"http://{found}"

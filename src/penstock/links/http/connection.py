"""One connection to a server: httpx's transport without its client, which costs a third of the CPU time of a request.

The client follows redirects, keeps cookies and merges settings: an account needs none of it. What it would do for a
proxy of the environment is done here.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.links.http.failures import Answer, read_lost

if TYPE_CHECKING:
    import ssl

    import httpx

#: the encodings of bodies that httpx decodes without a further library
_ENCODINGS = "gzip, deflate"


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
        import httpx

        self.transport = transport or httpx.AsyncHTTPTransport(
            http2=True,
            verify=tls or False,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
            proxy=find_proxy(base_url),
        )
        self._timeout = timeout
        self._extensions = {"timeout": httpx.Timeout(timeout).as_dict()}
        self._headers = {"Accept-Encoding": _ENCODINGS, **headers}

    async def get(self, url: str, headers: Mapping[str, str]) -> Answer:
        """The answer to a GET; AnswerLost if none comes whole."""
        return await self.send("GET", url, headers)

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
        """The answer to a request; AnswerLost if none comes whole. A redirect is an answer: it is not followed."""
        import httpx

        request = httpx.Request(
            method, url, headers={**self._headers, **headers}, content=body, extensions=self._extensions
        )
        begun = time.monotonic()
        try:
            response = await self.transport.handle_async_request(request)
            try:
                body = await _read(response)
            finally:
                await response.aclose()
        except httpx.RequestError as error:
            raise read_lost(error, self._timeout) from None
        found = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, found, body, time.monotonic() - begun)

    async def close(self) -> None:
        await self.transport.aclose()


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

"""GET requests over HTTP/1.1 without httpx's layers; a connection is opened again when the server has closed it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.links.http.http1 import Http1Connection, RawAnswer, Server, render_request

if TYPE_CHECKING:
    import ssl

#: in this order, as httpx offers them
_PROTOCOLS = ["http/1.1", "h2"]
#: an address whose target needs no further encoding, which httpx would do; one with a dot after a slash may
_PLAIN = re.compile(r"https?://[^/?#]+(/(?![./])(?:[A-Za-z0-9_~%=&+:,;@!$*().?-]|/(?![./]))*)")


class DirectConnection:
    """Sends one GET at a time. Belongs to one event loop."""

    def __init__(self, base_url: str, tls: ssl.SSLContext | None, timeout: float, headers: Mapping[str, str]) -> None:
        import httpx

        url = httpx.URL(base_url)
        if url.scheme != "https":
            tls = None
        elif tls is None:
            raise ValueError("a server with TLS needs a context")
        else:
            tls.set_alpn_protocols(_PROTOCOLS)
        self._server = Server(url.raw_host.decode("ascii").strip("[]"), url.port or (443 if tls else 80), tls)
        self._timeout = timeout
        named = {name.lower() for name in headers}
        self._headers = dict(headers) if "host" in named else {"Host": url.netloc.decode("ascii"), **headers}
        self._open: Http1Connection | None = None

    async def get(self, url: str, headers: Mapping[str, str]) -> RawAnswer:
        if self._open is not None and not self._open.is_usable:
            self._open.give_up()
            self._open = None
        if self._open is None:
            self._open = await Http1Connection.open(self._server, self._timeout)
        return await self._open.ask(render_request(find_target(url), {**self._headers, **headers}))

    async def close(self) -> None:
        if self._open is not None:
            await self._open.close()


def find_target(url: str) -> str:
    """The path and query of an address, as a request names them."""
    import httpx

    plain = _PLAIN.fullmatch(url)
    return plain[1] if plain else httpx.URL(url).raw_path.decode("ascii")

"""A REST catalog as `peek` asks it: which servers get to see the token."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.errors import ConnectionFailed
from penstock.lake import rest
from penstock.lake.lake import Lake

TABLE = "/v1/namespaces/shop/tables/orders"


class Catalog(ThreadingHTTPServer):
    """Answers some paths, and remembers the tokens that it was sent."""

    def __init__(self, answers: dict[str, Any], redirects: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.redirects = answers, redirects
        self.tokens: list[str | None] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Catalog

    def do_GET(self) -> None:
        self.server.tokens.append(self.headers.get("Authorization"))
        path = self.path.partition("?")[0]
        if path in self.server.redirects:
            self.send_response(302)
            self.send_header("Location", self.server.redirects[path])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = json.dumps(self.server.answers[path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name that the base class gives it)
        return None


@contextmanager
def catalog(redirects: dict[str, str] | None = None) -> Iterator[Catalog]:
    found = {"metadata": {"table-uuid": "u"}}
    server = Catalog({"/v1/config": {}, TABLE: found, "/elsewhere": found}, redirects or {})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def place(server: Catalog) -> Lake:
    return Lake("rest", "lake", server.address, "file:///nowhere", "shop", {"token": "secret"})


def test_a_token_does_not_follow_a_redirect_to_another_server() -> None:
    with catalog() as other, catalog({TABLE: f"{other.address}/elsewhere"}) as server:
        with pytest.raises(ConnectionFailed, match=f"redirects to another server, {other.address}") as failed:
            rest.read_metadata(place(server), "orders")
        assert other.tokens == []
        assert server.tokens == ["Bearer secret", "Bearer secret"]
        assert "secret" not in str(failed.value)


def test_a_redirect_within_the_server_is_followed() -> None:
    with catalog({TABLE: "/elsewhere"}) as server:
        assert rest.read_metadata(place(server), "orders") == {"table-uuid": "u"}

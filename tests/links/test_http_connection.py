"""A connection against real servers: HTTP/2 where it is offered, compressed bodies, proxies of the environment."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from penstock.errors import ConnectionFailed
from penstock.links.http.connection import Connection, check_headers, find_proxy
from penstock.links.http.failures import Answer, AnswerLost

BODY = b'{"data": []}'


class Http2Server(asyncio.Protocol):
    """Answers every request with the protocol that was chosen for its connection, and the headers that it has read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.http.initiate_connection()
        transport.write(self.http.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self.http.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                protocol = self.transport.get_extra_info("ssl_object").selected_alpn_protocol()
                self.http.send_headers(event.stream_id, [(":status", "200"), ("x-protocol", protocol)])
                self.http.send_data(event.stream_id, BODY, end_stream=True)
        self.transport.write(self.http.data_to_send())


class PlainServer(asyncio.Protocol):
    """Answers every request with one body, whatever it is."""

    head, body = b"", b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        size = f"Content-Length: {len(self.body)}\r\n\r\n".encode()
        self.transport.write(b"HTTP/1.1 200 OK\r\n" + self.head + size + self.body)


def make_certificate(folder: Path) -> ssl.SSLContext:
    """A server's context, with a certificate for 127.0.0.1 in cert.pem."""
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 1 -subj /CN=127.0.0.1"
        " -addext subjectAltName=IP:127.0.0.1",
        shell=True,
        cwd=folder,
        check=True,
        capture_output=True,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return server


async def ask(protocol: type[asyncio.Protocol], trusted: ssl.SSLContext, served: ssl.SSLContext | None) -> Answer:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, ssl=served)
    scheme = "https" if served else "http"
    url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    connection = Connection(url, trusted, 10.0, {"User-Agent": "penstock"})
    try:
        await connection.get(f"{url}/charges?limit=1", {})
        return await connection.get(f"{url}/charges?limit=2", {"Authorization": "Bearer sk"})
    finally:
        await connection.close()
        server.close()


def test_http_2_is_used_where_the_server_offers_it(tmp_path: Path) -> None:
    served = make_certificate(tmp_path)
    served.set_alpn_protocols(["h2", "http/1.1"])
    answer = asyncio.run(ask(Http2Server, ssl.create_default_context(cafile=str(tmp_path / "cert.pem")), served))
    assert (answer.status, answer.headers["x-protocol"], answer.body) == (200, "h2", BODY)


def test_a_server_with_tls_that_offers_no_http_2(tmp_path: Path) -> None:
    class Plain(PlainServer):
        body = BODY

    served = make_certificate(tmp_path)
    served.set_alpn_protocols(["http/1.1"])
    answer = asyncio.run(ask(Plain, ssl.create_default_context(cafile=str(tmp_path / "cert.pem")), served))
    assert (answer.status, answer.body) == (200, BODY)


def test_a_server_with_an_unknown_certificate_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(AnswerLost, match="certificate verify failed"):
        asyncio.run(ask(Http2Server, ssl.create_default_context(), make_certificate(tmp_path)))


def test_a_compressed_body_is_decoded() -> None:
    class Gzip(PlainServer):
        head, body = b"Content-Encoding: gzip\r\n", gzip.compress(BODY)

    assert asyncio.run(ask(Gzip, ssl.create_default_context(), None)).body == BODY


def test_a_body_that_is_not_what_it_says_may_come_whole_the_next_time() -> None:
    class NoGzip(PlainServer):
        head, body = b"Content-Encoding: gzip\r\n", BODY

    with pytest.raises(AnswerLost):
        asyncio.run(ask(NoGzip, ssl.create_default_context(), None))


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Key": "sk_1\n"},
        {"X-Key": "sk_1\r\nHost: other"},
        {"X-Key": "sk_\u00e9"},
        {"X Key": "sk_1"},
        {"X-Key": " "},
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(headers: dict[str, str]) -> None:
    with pytest.raises(ConnectionFailed, match="cannot be sent") as refused:
        Connection("http://api.invalid", ssl.create_default_context(), 10.0, headers)
    assert "sk_" not in str(refused.value)
    check_headers({"X-Key": "a secret; of=2", "X-Empty": ""})


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        ({"https_proxy": "http://proxy:3128"}, "http://proxy:3128"),
        ({"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128"),
        ({"all_proxy": "http://proxy:3128"}, "http://proxy:3128"),
        ({"http_proxy": "http://proxy:3128"}, None),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "example.org"}, None),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "*"}, None),
    ],
)
def test_the_proxy_of_the_environment(
    environment: dict[str, str], found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert find_proxy("https://api.example.org/v1") == found

"""A proxy before an S3 server that records every request and fails as it is ordered to."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Request:
    """A request, as far as a test chooses by it."""

    method: str
    path: str
    query: dict[str, list[str]]
    conditional: bool

    @property
    def name(self) -> str:
        """What S3 calls it, of those that the files sink makes."""
        match self.method:
            case "POST":
                return "complete" if "uploadId" in self.query else "begin upload"
            case "PUT":
                return "part" if "uploadId" in self.query else "put"
            case "DELETE":
                return "abort" if "uploadId" in self.query else "delete"
            case "GET" if "uploadId" in self.query:
                return "list parts"
            case "GET" if "uploads" in self.query:
                return "list uploads"
            case "GET":
                return "list" if "list-type" in self.query else "get"
        return self.method.lower()


@dataclass(frozen=True)
class Fault:
    """What becomes of a request instead of an answer."""

    status: int = 0
    code: str = ""
    #: further elements of the error
    more: str = ""
    #: the server sees it
    is_forwarded: bool = False


#: forwarded; the answer is lost with the connection
LOST_ANSWER = Fault(is_forwarded=True)
#: the connection is cut before the server sees it
CUT = Fault()
INTERNAL = Fault(500, "InternalError")
SLOW_DOWN = Fault(503, "SlowDown")
#: the server does as it likes with conditions
ACCEPTED = Fault(200)

Choose = Callable[[Request], Fault | None]


class S3Proxy:
    """Leaving the `with` closes it."""

    def __init__(self, target: str, choose: Choose = lambda _: None) -> None:
        self.choose = choose
        self.requests: list[Request] = []
        place = urlsplit(target)

        class Handler(_Handler):
            proxy = self
            server_place = (str(place.hostname), int(place.port or 80))

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def count(self, name: str) -> int:
        return sum(request.name == name for request in self.requests)

    def fail(self, name: str, fault: Fault, times: int = 1_000_000, *, key: str = "") -> None:
        """Fail the next requests of this name, of keys that contain `key`."""
        left = [times]

        def choose(request: Request) -> Fault | None:
            if request.name != name or key not in request.path or not left[0]:
                return None
            left[0] -= 1
            return fault

        self.choose = choose

    def heal(self) -> None:
        self.choose = lambda _: None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: S3Proxy
    server_place: tuple[str, int]

    def _handle(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        place = urlsplit(self.path)
        conditional = "if-none-match" in self.headers or "if-match" in self.headers
        query = parse_qs(place.query, keep_blank_values=True)
        request = Request(self.command, place.path, query, conditional)
        self.proxy.requests.append(request)
        fault = self.proxy.choose(request)
        if fault is None or fault.is_forwarded:
            status, headers, body = self._forward(raw)
        if fault is None:
            self._answer(status, headers, body)
        elif fault.status == 200:
            self._answer(200, [("ETag", '"0"'), ("Content-Length", "0")], b"")
        elif fault.status:
            told = f"<Error><Code>{fault.code}</Code><Message>ordered</Message>{fault.more}</Error>".encode()
            self._answer(fault.status, [("Content-Length", str(len(told)))], told)
        else:
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle

    def _forward(self, raw: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        server = http.client.HTTPConnection(*self.server_place, timeout=60)
        try:
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "expect":
                    server.putheader(name, value)
            server.endheaders(raw or None)
            answer = server.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            server.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        chunked = any(name.lower() == "transfer-encoding" for name, _ in headers)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        if chunked:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        return None

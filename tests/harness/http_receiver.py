"""Receivers in this process: one on the ledger of penstock's own, and one that knows nothing but keys.

`ReceiverTransport` stands in for a connection, `Served` has a real one. `before` and `after` are asked at each request,
so a test says what goes wrong.
"""

from __future__ import annotations

import copy
import gzip
import json
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

import httpx

from penstock.links.http import protocol
from penstock.wal import ledger
from penstock.wal.ledger import Chunk, Ledger, Place, Producer, Refuse, SentSlice

NOWHERE = Place(0, 0, 0)


@dataclass
class Answered:
    """What the receiver answers."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, status: int, document: object, **headers: str) -> Answered:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, json.dumps(document).encode(), {"content-type": "application/json", **named})


@dataclass
class Seen:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def decoded(self) -> bytes:
        return gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body

    @property
    def rows(self) -> list[dict[str, Any]]:
        if self.headers["content-type"] == protocol.NDJSON:
            return [json.loads(line) for line in self.decoded.splitlines()]
        rows: list[dict[str, Any]] = json.loads(self.decoded)
        return rows


#: what becomes of a request: an answer of its own, an error of the connection, or None: it is handled
Fault = Callable[[Seen], Answered | Exception | None]


@dataclass
class LedgerReceiver:
    """Streams by name; outlives processes, and can be copied and put back."""

    ledgers: dict[str, Ledger] = field(default_factory=dict)
    #: the rows of each chunk, by stream, producer and slice
    chunks: dict[tuple[str, str, str], list[list[dict[str, Any]]]] = field(default_factory=dict)
    #: the rows that readers see, in order
    readable: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    #: every request
    seen: list[Seen] = field(default_factory=list)
    #: asked in turn, before a request is handled and after
    before: list[Fault] = field(default_factory=list)
    after: list[Fault] = field(default_factory=list)
    #: streams that take nothing, with what is answered
    refuses: dict[str, Answered] = field(default_factory=dict)

    @property
    def posts(self) -> list[Seen]:
        return [each for each in self.seen if each.method == "POST"]

    def copy(self) -> tuple[Any, ...]:
        return copy.deepcopy(
            ({name: ledger.to_document(each) for name, each in self.ledgers.items()}, self.chunks, self.readable)
        )

    def restore(self, kept: tuple[Any, ...]) -> None:
        ledgers, self.chunks, self.readable = copy.deepcopy(kept)
        self.ledgers = {name: ledger.from_document(each) for name, each in ledgers.items()}

    def open_rows(self) -> int:
        """Rows of slices that are not whole."""
        return sum(len(rows) for chunks in self.chunks.values() for rows in chunks)

    # ------------------------------------------------------------ requests

    def handle(self, seen: Seen) -> Answered | Exception:
        self.seen.append(seen)
        for fault in self.before:
            if (found := fault(seen)) is not None:
                return found
        answered = self._route(seen)
        for fault in self.after:
            if (found := fault(seen)) is not None:
                return found
        return answered

    def _route(self, seen: Seen) -> Answered:
        steps = [unquote(step) for step in seen.path.split("?")[0].strip("/").split("/")]
        match seen.method, steps:
            case "GET", ["readyz"]:
                return Answered.of(200, {"status": "ready"})
            case "POST", ["v1", "streams", stream, "batches"]:
                return self.refuses.get(stream) or self._take(stream, seen)
            case "GET", ["v1", "streams", stream, "producers", producer]:
                return self._tell(stream, producer)
            case "DELETE", ["v1", "streams", stream, "producers", producer, "slices", slice_id]:
                return self._withdraw(stream, producer, slice_id)
        return Answered.of(404, {"title": "there is nothing here"})

    def _take(self, stream: str, seen: Seen) -> Answered:
        try:
            sent = protocol.read_chunk(seen.headers)
        except protocol.BadHeader as bad:
            return Answered.of(400, {"detail": str(bad)})
        if sent is None:
            self.readable.setdefault(stream, []).extend(seen.rows)
            return Answered.of(200, {"stream": stream, "rows": len(seen.rows)})
        if protocol.digest_of(seen.decoded) != sent.digest or len(seen.rows) != sent.rows:
            return Answered.of(400, {"detail": "the body is not what the headers say"})
        chunk = Chunk(
            producer=sent.producer,
            slice=sent.slice,
            number=sent.number,
            predecessor=sent.predecessor,
            chunk=sent.chunk,
            chunks=sent.chunks,
            digest=sent.digest,
            rows=sent.rows,
            bounds=sent.bounds,
        )
        held = self.ledgers.get(stream, Ledger())
        verdict = ledger.judge_chunk(held, chunk)
        if isinstance(verdict, Refuse):
            return Answered.of(409, {"title": "conflict", "detail": verdict.reason, "next_step": verdict.next_step})
        headers = {}
        if isinstance(verdict, ledger.Take):
            self._keep(stream, chunk, seen.rows)
        else:
            headers["idempotency_replayed"] = "true"
        document = {
            "stream": stream,
            "rows": chunk.rows,
            "slice": chunk.slice,
            "number": chunk.number,
            "chunk": chunk.chunk,
            "chunks": chunk.chunks,
            "complete": chunk.chunk == chunk.chunks,
        }
        return Answered.of(200, document, **headers)

    def _keep(self, stream: str, chunk: Chunk, rows: list[dict[str, Any]]) -> None:
        self.ledgers[stream] = ledger.with_chunk(self.ledgers.get(stream, Ledger()), chunk, NOWHERE, 0)
        kept = self.chunks.setdefault((stream, chunk.producer, chunk.slice), [])
        kept.append(rows)
        if self.ledgers[stream].producers[chunk.producer].open is None:
            self.readable.setdefault(stream, []).extend(row for each in kept for row in each)
            del self.chunks[stream, chunk.producer, chunk.slice]

    def _tell(self, stream: str, name: str) -> Answered:
        if (refused := self.refuses.get(stream)) is not None:
            return refused
        producer = self.ledgers.get(stream, Ledger()).producers.get(name, Producer())
        return Answered.of(
            200, {"producer": name, "last": _describe(producer.last), "open": _describe(producer.open, is_open=True)}
        )

    def _withdraw(self, stream: str, producer: str, slice_id: str) -> Answered:
        held = self.ledgers.get(stream, Ledger())
        found = ledger.withdraw(held, producer, slice_id, 0)
        if isinstance(found, Refuse):
            return Answered.of(409, {"detail": found.reason})
        self.ledgers[stream] = found
        kept = self.chunks.pop((stream, producer, slice_id), [])
        return Answered.of(200, {"withdrawn": found is not held, "chunks": len(kept)})


def _describe(sent: SentSlice | None, *, is_open: bool = False) -> dict[str, Any] | None:
    if sent is None:
        return None
    found = {
        "slice": sent.slice,
        "number": sent.number,
        "predecessor": sent.predecessor,
        "chunks": sent.chunks,
        "rows": sent.rows,
        "bounds": sent.bounds,
    }
    return found | ({"held": len(sent.digests)} if is_open else {})


@dataclass
class KeyedReceiver:
    """A receiver of another kind: it takes any request, and leaves out a key that it has seen."""

    #: the header that carries the key
    key_header: str = "idempotency-key"
    #: what it has taken, by path: each body decoded
    taken: dict[str, list[bytes]] = field(default_factory=dict)
    #: keys that it has not forgotten, with the body of each
    keys: dict[str, bytes] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    before: list[Fault] = field(default_factory=list)
    after: list[Fault] = field(default_factory=list)

    @property
    def posts(self) -> list[Seen]:
        return [each for each in self.seen if each.method in ("POST", "PUT", "PATCH")]

    def rows(self, path: str) -> list[dict[str, Any]]:
        """The rows of all bodies."""
        found: list[dict[str, Any]] = []
        for body in self.taken.get(path, []):
            for line in body.decode().splitlines():
                document = json.loads(line)
                found += document if isinstance(document, list) else [document]
        return found

    def handle(self, seen: Seen) -> Answered | Exception:
        self.seen.append(seen)
        for fault in self.before:
            if (found := fault(seen)) is not None:
                return found
        key = seen.headers.get(self.key_header, "")
        if (known := self.keys.get(key)) is None or not key:
            self.keys[key] = seen.decoded
            self.taken.setdefault(seen.path, []).append(seen.decoded)
        elif known != seen.decoded:
            return Answered.of(422, {"detail": "this key came with another body"})
        for fault in self.after:
            if (found := fault(seen)) is not None:
                return found
        return Answered(204)


class Served:
    """A receiver on a real socket; leaving the `with` closes it. An Exception as an answer cuts the connection."""

    def __init__(self, receiver: LedgerReceiver | KeyedReceiver, tls: ssl.SSLContext | None = None) -> None:
        self.receiver = receiver
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with suppress(OSError):
                    super().handle_one_request()

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with lock:
                    answered = receiver.handle(Seen(self.command, self.path, headers, body))
                if isinstance(answered, Exception):
                    self.close_connection = True
                    return
                self.send_response(answered.status)
                for name, value in answered.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answered.body)))
                self.end_headers()
                self.wfile.write(answered.body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class ReceiverTransport(httpx.AsyncBaseTransport):
    """A connection to a receiver in this process."""

    def __init__(self, receiver: LedgerReceiver | KeyedReceiver) -> None:
        self.receiver = receiver

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        seen = Seen(request.method, path, dict(request.headers), await request.aread())
        answered = self.receiver.handle(seen)
        if isinstance(answered, Exception):
            raise answered
        return httpx.Response(answered.status, headers=dict(answered.headers), content=answered.body)


def in_turn(*faults: Answered | Exception | None, method: str = "POST") -> Fault:
    """What becomes of the next requests with this method; those after them are handled."""
    waiting: list[Answered | Exception | None] = [*faults]

    def choose(seen: Seen) -> Answered | Exception | None:
        return waiting.pop(0) if waiting and seen.method == method else None

    return choose


def ids_of(rows: Sequence[Mapping[str, Any]], column: str = "id") -> list[int]:
    return [int(row[column]) for row in rows]

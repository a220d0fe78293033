"""A receiver that only reads and acknowledges: it keeps no rows, checks nothing, and answers as penstock's own does.

Run as a process of its own by `HttpReceiver`. It remembers what each producer has sent last, because a sender asks.
`GET /_rows/<stream>` says how many rows a stream was sent.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

#: rows of all batches, by stream
ROWS: defaultdict[str, int] = defaultdict(int)
#: by path of the producer: what it has sent last, and what is open
PRODUCERS: dict[str, dict[str, Any]] = {}


class _Connection(asyncio.Protocol):
    """One sender. A body is counted and thrown away."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._head = bytearray()
        #: bytes of the body that are still to come; None: a head is being read
        self._missing: int | None = None

    def data_received(self, data: bytes) -> None:
        while data:
            if self._missing is None:
                self._head += data
                end = self._head.find(b"\r\n\r\n")
                if end < 0:
                    return
                data = bytes(self._head[end + 4 :])
                self._begin(self._head[:end].decode("latin-1"))
                self._head.clear()
            assert self._missing is not None
            taken = min(self._missing, len(data))
            self._missing -= taken
            data = data[taken:]
            if not self._missing:
                self._missing = None
                self._transport.write(self._answer())

    def _begin(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        self._method, self._path, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if self._headers.get("transfer-encoding"):
            raise SystemExit("a body without Content-Length: this receiver reads none")
        self._missing = int(self._headers.get("content-length", 0))

    def _answer(self) -> bytes:
        _, _, *names = self._path.split("/")
        if self._method == "POST":
            body = self._take(names[1])
        elif len(names) == 4:
            known = PRODUCERS.get(self._path, {"last": None, "open": None})
            body = {"producer": names[3], **known}
        elif names:
            body = {"rows": ROWS[names[0]]}
        else:
            body = {"status": "ready"}
        text = json.dumps(body).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        return head.encode() + text

    def _take(self, stream: str) -> dict[str, Any]:
        headers = self._headers
        rows = int(headers.get("penstock-rows", 0))
        ROWS[stream] += rows
        if "penstock-slice" not in headers:
            return {"stream": stream, "rows": rows, "key_counts_seconds": 0}
        chunk, chunks = (int(each) for each in headers["penstock-chunk"].split("/"))
        path = f"/v1/streams/{stream}/producers/{headers['penstock-producer']}"
        known = PRODUCERS.setdefault(path, {"last": None, "open": None})
        if known["open"] is None:
            known["open"] = {
                "slice": headers["penstock-slice"],
                "number": int(headers["penstock-slice-number"]),
                "predecessor": headers.get("penstock-predecessor", ""),
                "chunks": chunks,
                "rows": 0,
                "bounds": headers.get("penstock-bounds", ""),
                "held": 0,
            }
        known["open"]["rows"] += rows
        known["open"]["held"] = chunk
        number = known["open"]["number"]
        if chunk == chunks:
            del known["open"]["held"]
            known["last"], known["open"] = known["open"], None
        return {
            "stream": stream,
            "rows": rows,
            "slice": headers["penstock-slice"],
            "number": number,
            "chunk": chunk,
            "chunks": chunks,
            "complete": chunk == chunks,
        }


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Ends when the process that has started it closes the pipe.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


class HttpReceiver:
    """The receiver; leaving the `with` ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._http_receiver"],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def rows(self, stream: str) -> int:
        """How many rows a stream was sent."""
        with urllib.request.urlopen(f"{self.url}/_rows/{stream}", timeout=10) as answer:
            return int(json.load(answer)["rows"])

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


if __name__ == "__main__":
    asyncio.run(serve())

"""A receiver as a process of its own, and what its logs hold."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import yaml
from tests.harness.faults import Command, Outcome, Running

from penstock.links.http import protocol
from penstock.wal.batches import decode_batch
from penstock.wal.durable_end import read_end
from penstock.wal.folders import folder_of
from penstock.wal.following import Found, follow
from penstock.wal.frames import HEADER_BYTES, Record, read_record
from penstock.wal.ledger import Place
from penstock.wal.segments import list_numbers, path_of

#: seconds in which a receiver must answer after its start
START_SECONDS = 60.0
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Receiver:
    """`penstock serve` in a folder, on one port from start to start."""

    def __init__(self, folder: Path, section: Mapping[str, Any] | None = None, *words: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.directory = folder / "received"
        self.port = free_port()
        self.section = section
        self.words = words
        self.command = Command(folder)
        self.running: Running | None = None
        self.scheme = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def arguments(self) -> list[str]:
        words = ["serve", "--port", str(self.port), *self.words]
        if self.section is None:
            return [*words, "--directory", "received"]
        pipeline = {
            "source": {"type": "wal", "directory": "received"},
            "sink": {"type": "files", "directory": "out", "format": "ndjson"},
            "streams": {"orders": {"columns": {"id": "int64"}}},
        }
        document = {"receiver": {"directory": "received", **self.section}, "pipelines": {"inbox": pipeline}}
        (self.folder / "receiver.yaml").write_text(yaml.safe_dump(document))
        return [words[0], "receiver.yaml", *words[1:]]

    def start(self) -> Receiver:
        """Start it and wait until it is ready."""
        self.running = self.command.start(*self.arguments())
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self.running.process.poll() is not None:
                raise AssertionError(f"the receiver ended: {self.running.end()}")
            try:
                httpx.get(f"{self.url}/readyz", verify=False, timeout=1)
            except httpx.HTTPError:
                time.sleep(0.02)
            else:
                return self
        raise AssertionError("the receiver does not answer")

    def refuse(self) -> Outcome:
        """Start it where it must end by itself."""
        return self.command.run(*self.arguments())

    def stop(self, number: int = signal.SIGTERM) -> Outcome:
        assert self.running is not None
        self.running.signal(number)
        ended, self.running = self.running.end(), None
        return ended

    def kill(self) -> None:
        if self.running is not None and self.running.process.poll() is None:
            self.running.kill()
        self.running = None

    def rows(self, stream: str) -> list[dict[str, Any]]:
        return rows_in(str(self.directory), stream)

    # ------------------------------------------------------------ requests

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, **options)

    def post(
        self, stream: str, rows: Sequence[Mapping[str, Any]] | bytes, key: str = "", to: str = "batches", **headers: str
    ) -> httpx.Response:
        """Send one bare batch."""
        body = rows if isinstance(rows, bytes) else json.dumps(rows).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        given = JSON | ({protocol.KEY: key} if key else {}) | named
        return httpx.post(f"{self.url}{path_to(stream, to)}", content=body, headers=given, timeout=30)

    def send(self, stream: str, chunk: protocol.SentChunk, body: bytes, **headers: str) -> httpx.Response:
        """Send one chunk of a slice."""
        given = chunk.headers() | NDJSON | headers
        return httpx.post(f"{self.url}{path_to(stream)}", content=body, headers=given, timeout=30)

    def held(self, stream: str, producer: str) -> dict[str, Any]:
        answer = httpx.get(f"{self.url}{protocol.producer_path(stream, producer)}", timeout=30)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@contextmanager
def receiving(folder: Path, section: Mapping[str, Any] | None = None, *words: str) -> Iterator[Receiver]:
    """A receiver that runs during the block."""
    receiver = Receiver(folder, section, *words)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.kill()


def path_to(stream: str, to: str = "batches") -> str:
    return f"/v1/streams/{protocol.encode_name(stream)}/{to}"


def lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def chunk_of(
    body: bytes, number: int = 1, chunk: int = 1, chunks: int = 1, *, slice_: str = "", producer: str = "shop"
) -> protocol.SentChunk:
    """A chunk of the slice with this number, whose predecessor has the number before it."""
    return protocol.SentChunk(
        producer,
        slice_ or slice_id(number),
        number,
        slice_id(number - 1) if number > 1 else "",
        chunk,
        chunks,
        len(body.splitlines()),
        protocol.digest_of(body),
        protocol.encode_bounds({"n": number}) if chunk == 1 else "",
    )


def slice_id(number: int) -> str:
    return f"{number:064x}"


def zipped(body: bytes) -> bytes:
    return gzip.compress(body)


def rows_in(directory: str, stream: str) -> list[dict[str, Any]]:
    """The rows of a stream that readers see, in their order."""
    return [json.loads(line) for line in lines_in(directory, stream)]


def lines_in(directory: str, stream: str) -> list[bytes]:
    folder = folder_of(directory, stream)
    end = read_end(folder)
    if end is None:
        return []
    found = []
    for each in follow(folder, list_numbers(folder)[0], HEADER_BYTES, end.place):
        assert isinstance(each, Found)
        if each.batch is not None and each.batch.before is not None:
            for place in (*each.batch.before, each.place):
                found += _lines_at(folder, place)
    return found


def _lines_at(folder: str, place: Place) -> list[bytes]:
    with open(path_of(folder, place.segment), "rb") as file:
        file.seek(place.offset)
        record = read_record(file.read(place.length), 0)
    assert isinstance(record, Record)
    body = decode_batch(record.payload, place).batch.body
    text: bytes = pa.input_stream(pa.py_buffer(body), compression="zstd").read() if body else b""
    return text.splitlines()

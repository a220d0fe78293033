"""Limits: what is too much, too slow or too large gets an answer, costs nothing, and holds up nobody else."""

from __future__ import annotations

import gzip
import os
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import zstandard
from tests.service.receiving import JSON, NDJSON, Receiver, chunk_of, lines, path_to, receiving
from tests.service.test_batches import problem

from penstock.links.http import protocol
from penstock.wal import readers
from penstock.wal.durable_end import read_end
from penstock.wal.folders import folder_of

ROWS = [{"id": 1}]
MIB = 1 << 20
#: seconds that a client waits before it calls a receiver silent
PATIENCE = 60.0
KEY = {protocol.KEY: "k"}


def connect(receiver: Receiver) -> socket.socket:
    return socket.create_connection(("127.0.0.1", receiver.port), timeout=PATIENCE)


def head(path: str, **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    given = {"Host": "localhost", "Content-Type": "application/json", **KEY, **named}
    return "\r\n".join([f"POST {path} HTTP/1.1", *(f"{n}: {v}" for n, v in given.items()), "", ""]).encode()


def read_all(connection: socket.socket) -> bytes:
    """What is answered until the other side closes."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def memory_of(receiver: Receiver) -> int:
    assert receiver.running is not None
    return int(psutil.Process(receiver.running.process.pid).memory_info().rss)


def files_of(receiver: Receiver) -> set[str]:
    return {str(path) for path in receiver.folder.parent.rglob("*")}


def test_bombs_and_a_million_fields_cost_nothing(tmp_path: Path) -> None:
    """Each unpacks to more than a GiB, or parses to a million fields; what stays afterwards is a few MiB."""
    section = {"create_streams": True, "limits": {"decoded_bytes": "8MiB", "request_bytes": "8MiB"}}
    gib = 1024 * MIB
    bomb = gzip_of_zeros(gib)
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    zstd_bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(1024)) + packer.flush()
    fields = b"{" + b",".join(b'"%d":1' % n for n in range(600_000)) + b"}"
    with receiving(tmp_path / "r", section) as receiver:
        assert receiver.post("warm", ROWS, "k").status_code == 200
        before, files = memory_of(receiver), files_of(receiver)
        for _ in range(3):
            for body, headers, status in (
                (bomb, JSON | {"Content-Encoding": "gzip"}, 413),
                (zstd_bomb, NDJSON | {"Content-Encoding": "zstd"}, 413),
                (gzip.compress(bomb), JSON | {"Content-Encoding": "gzip"}, 400),
                (fields, NDJSON, 422),
                (gzip.compress(fields), NDJSON | {"Content-Encoding": "gzip"}, 422),
            ):
                answer = httpx.post(
                    f"{receiver.url}{path_to('bombs')}", content=body, headers=headers | KEY, timeout=PATIENCE
                )
                problem(answer, status)
        assert files_of(receiver) == files
        assert memory_of(receiver) - before < 160 * MIB
        assert receiver.post("warm", ROWS, "k2").status_code == 200


def test_many_large_bodies_at_the_same_time_are_decoded_a_few_at_a_time(tmp_path: Path) -> None:
    """Each is small as it is sent, and 16 MiB when it is decoded."""
    body = gzip.compress(b'{"x": "%s"}\n' % (b"x" * 1000) * 16_000)
    count = 12
    with receiving(tmp_path / "r") as receiver, ThreadPoolExecutor(count) as pool:

        def send(number: int) -> int:
            headers = NDJSON | {protocol.KEY: f"k{number}", "Content-Encoding": "gzip"}
            with receiver.client() as client:
                client.timeout = PATIENCE * 2
                return client.post(path_to("orders"), content=body, headers=headers).status_code

        assert send(count) == 200
        before = peak_memory_of(receiver)
        assert [*pool.map(send, range(count))] == [200] * count
        assert peak_memory_of(receiver) - before < 100 * MIB, (peak_memory_of(receiver) - before) / MIB


def peak_memory_of(receiver: Receiver) -> int:
    assert receiver.running is not None
    status = Path(f"/proc/{receiver.running.process.pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


def gzip_of_zeros(size: int) -> bytes:
    import zlib

    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(size // MIB)) + packer.flush()


def test_a_body_that_is_too_large_is_answered_while_it_is_sent(tmp_path: Path) -> None:
    """The sender writes all of it before it reads: cut off, it would not see why."""
    section = {"create_streams": True, "limits": {"request_bytes": "64KiB"}}
    with receiving(tmp_path / "r", section) as receiver:
        body = os.urandom(8 * MIB)
        for sent in (
            head(path_to("large"), Content_Length=str(len(body))) + body,
            head(path_to("large"), Transfer_Encoding="chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body),
        ):
            with connect(receiver) as sending:
                sending.sendall(sent)
                answer = read_all(sending)
            assert answer.startswith(b"HTTP/1.1 413")
            assert b"64.0 KiB" in answer
        with connect(receiver) as asking:
            asking.sendall(head(path_to("large"), Content_Length=str(1 << 40), Expect="100-continue"))
            assert read_all(asking).startswith(b"HTTP/1.1 413")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A receiver without patience."""
    limits = {"request_time": "2s", "idle_time": "1s"}
    with receiving(tmp_path_factory.mktemp("slow"), {"create_streams": True, "limits": limits}) as found:
        yield found


def test_a_slow_body_is_answered(slow: Receiver) -> None:
    with connect(slow) as client:
        client.sendall(head(path_to("slow"), Content_Length="100") + b"[")
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"had not arrived after 2 s" in answer
    assert not (slow.directory / "slow").exists()


def test_a_body_that_trickles_is_slow_too(slow: Receiver) -> None:
    with connect(slow) as client:
        client.sendall(head(path_to("slow"), Content_Length="100000") + b"[")
        answer, until = b"", time.monotonic() + PATIENCE
        client.settimeout(0.1)
        while not answer and time.monotonic() < until:
            try:
                client.sendall(b" ")
                answer = client.recv(65536)
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408")


def test_slow_headers_are_answered_and_silence_is_closed(slow: Receiver) -> None:
    with connect(slow) as halting, connect(slow) as silent:
        halting.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-")
        assert read_all(halting).startswith(b"HTTP/1.1 408")
        assert read_all(silent) == b""


def test_an_idle_connection_is_closed(slow: Receiver) -> None:
    with connect(slow) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b'"alive"' in read_all(client)


def test_headers_without_end_are_refused(slow: Receiver) -> None:
    with connect(slow) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises((BrokenPipeError, ConnectionResetError, AssertionError)):  # noqa: PT012 (sent until refused)
            for _ in range(1000):
                client.sendall(b"X-More: " + b"x" * 1000 + b"\r\n")
            raise AssertionError(read_all(client)[:12])
    with connect(slow) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X-More: x\r\n" * 12_500)
        assert read_all(client).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("garbage", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", "GET /ä HTTP/1.1\r\n\r\n".encode()])
def test_what_is_not_http_is_answered(slow: Receiver, garbage: bytes) -> None:
    with connect(slow) as client:
        client.sendall(garbage)
        assert read_all(client).startswith(b"HTTP/1.1 400")


def test_more_requests_than_allowed_are_turned_away_and_others_go_on(tmp_path: Path) -> None:
    section = {"create_streams": True, "limits": {"requests": 3}}
    with receiving(tmp_path / "r", section) as receiver, ExitStack() as open_:
        for _ in range(3):
            client = open_.enter_context(connect(receiver))
            client.sendall(head(path_to("slow"), Content_Length="100") + b"[")
        until = time.monotonic() + PATIENCE
        while (answer := httpx.get(f"{receiver.url}/healthz")).status_code == 200 and time.monotonic() < until:
            time.sleep(0.02)
        assert problem(answer, 429)["detail"] == "3 requests are in progress"
        assert int(answer.headers["retry-after"]) > 0
        open_.close()
        while httpx.get(f"{receiver.url}/healthz").status_code == 429 and time.monotonic() < until:
            time.sleep(0.02)
        assert receiver.post("orders", ROWS, "k").status_code == 200


def test_more_connections_than_allowed_are_closed(tmp_path: Path) -> None:
    section = {"create_streams": True, "limits": {"connections": 4}}
    with receiving(tmp_path / "r", section) as receiver, ExitStack() as open_:
        for _ in range(4):
            open_.enter_context(connect(receiver))
        time.sleep(0.2)
        with connect(receiver) as fifth:
            assert read_all(fifth).startswith(b"HTTP/1.1 429")


def test_bodies_in_progress_share_a_bound(tmp_path: Path) -> None:
    """Eight of the largest bodies fit at the same time; the ninth is to come again."""
    size = MIB
    section = {"create_streams": True, "limits": {"request_bytes": "1MiB"}}
    with receiving(tmp_path / "r", section) as receiver, ExitStack() as open_:
        part = head(path_to("held"), Content_Length=str(size)) + b" " * (size - 1)
        for _ in range(8):
            open_.enter_context(connect(receiver)).sendall(part)
        until = time.monotonic() + PATIENCE
        answer = b""
        while not answer and time.monotonic() < until:
            with connect(receiver) as ninth:
                # The others may be arriving still: then this one is held too, and the next one is turned away.
                ninth.settimeout(10)
                ninth.sendall(part)
                with suppress(TimeoutError):
                    answer = read_all(ninth)
        assert answer.startswith(b"HTTP/1.1 429")
        assert b"the bodies in progress use all the memory" in answer


# ---------------------------------------------------------------- room


def test_a_backlog_over_its_limit_is_429_until_it_is_read(tmp_path: Path) -> None:
    section = {"create_streams": True, "log": {"backlog": "40KiB"}}
    noise = [{"id": n, "x": os.urandom(300).hex()} for n in range(100)]
    with receiving(tmp_path / "r", section) as receiver:
        assert receiver.post("orders", noise, "first").status_code == 200
        folder = folder_of(str(receiver.directory), "orders")
        readers.register(folder, "inbox/orders", 1)
        keys = iter(f"k{n}" for n in range(1000))
        until = time.monotonic() + PATIENCE
        while (answer := receiver.post("orders", noise, next(keys))).status_code == 200 and time.monotonic() < until:
            time.sleep(0.1)
        found = problem(answer, 429)
        assert found["detail"].startswith("inbox/orders has ")
        assert int(answer.headers["retry-after"]) > 0
        # What was taken before is answered as before, other streams go on, and the log can be read.
        assert receiver.post("orders", noise, "first").headers[protocol.REPLAYED] == "true"
        assert receiver.post("others", ROWS, "k").status_code == 200
        assert len(receiver.rows("orders")) % 100 == 0
        end = read_end(folder)
        assert end is not None
        readers.raise_mark(folder, "inbox/orders", readers.Reader(end.segment, 1, 2, end.offset, end.batches, end.rows))
        while (answer := receiver.post("orders", noise, "after")).status_code == 429 and time.monotonic() < until:
            time.sleep(0.1)
        assert answer.status_code == 200


def test_an_open_slice_is_never_held_back_by_its_own_chunks(tmp_path: Path) -> None:
    """A reader that has read all that it can waits for the rest of the slice: who waits for it would wait for ever."""
    section = {"create_streams": True, "log": {"backlog": "40KiB"}}
    bodies = [lines([{"id": n, "x": os.urandom(300).hex()} for n in range(100)]) for _ in range(6)]
    with receiving(tmp_path / "r", section) as receiver:
        for chunk, body in enumerate(bodies, 1):
            assert receiver.send("orders", chunk_of(body, 1, chunk, len(bodies)), body).status_code == 200
            if chunk == 1:
                readers.register(folder_of(str(receiver.directory), "orders"), "inbox/orders", 1)
            time.sleep(0.4)
        assert len(receiver.rows("orders")) == 600


@pytest.mark.parametrize("budget", ["budget", "total_budget"])
def test_a_budget_that_is_used_is_507_and_loses_nothing(tmp_path: Path, budget: str) -> None:
    section = {"create_streams": True, "log": {budget: "120KiB"}}
    noise = [{"id": n, "x": os.urandom(300).hex()} for n in range(100)]
    with receiving(tmp_path / "r", section) as receiver:
        taken, until = 0, time.monotonic() + PATIENCE
        while (answer := receiver.post("orders", noise, f"k{taken}")).status_code == 200 and time.monotonic() < until:
            taken += 1
            time.sleep(0.3)
        assert taken >= 1
        assert problem(answer, 507)["next_step"]
        assert int(answer.headers["retry-after"]) > 0
        assert len(receiver.rows("orders")) == taken * 100
        assert receiver.post("orders", noise, "k0").headers[protocol.REPLAYED] == "true"
        assert httpx.get(f"{receiver.url}/readyz").status_code == 200
        assert receiver.post("others", noise, "k").status_code == (200 if budget == "budget" else 507)


def test_as_many_streams_as_allowed(tmp_path: Path) -> None:
    section = {"create_streams": True, "limits": {"stream_count": 3}}
    with receiving(tmp_path / "r", section) as receiver, ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda n: receiver.post(f"s{n}", ROWS, "k").status_code, range(8))]
        assert sorted(answers) == [200] * 3 + [507] * 5
        assert len([path for path in receiver.directory.iterdir() if path.is_dir()]) == 3

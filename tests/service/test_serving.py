"""The process: where it listens, who else may, how it starts and stops, and what a kill leaves."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.service.receiving import JSON, Receiver, chunk_of, free_port, lines, path_to, receiving, slice_id

from penstock.links.http import protocol

ROWS = [{"id": 1}]
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \S.*")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with receiving(tmp_path / "r") as receiver:
        assert receiver.post("orders", ROWS, "k").status_code == 200
        ended = receiver.stop(number)
        assert (ended.code, ended.out) == (0, "")
        said = ended.err.splitlines()
        assert all(LINE.fullmatch(line) for line in said), said
        begins = [
            f"listening on http://127.0.0.1:{receiver.port}, logs in received (no token is needed",
            "stream orders opened",
            f"stopping on signal {number.value}",
            "stopped",
        ]
        assert all(line[21:].startswith(begin) for line, begin in zip(said, begins, strict=True)), said
        assert "without a pipeline file" in said[0]
        assert receiver.rows("orders") == ROWS


def test_a_request_that_is_arriving_when_it_stops_is_answered(tmp_path: Path) -> None:
    with receiving(tmp_path / "r") as receiver:
        body = lines(ROWS)
        headers = chunk_of(body).headers() | {"Content-Type": "application/x-ndjson", "Content-Length": str(len(body))}
        half = _connect(receiver, "orders", headers)
        half.sendall(body[:3])
        idle = _connect(receiver, "others", headers)
        assert receiver.running is not None
        receiver.running.signal(signal.SIGTERM)
        _wait_for(lambda: not _accepts(receiver.port))
        half.sendall(body[3:])
        assert _answer(half).startswith(b"HTTP/1.1 200")
        answer = _answer(idle)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"the receiver is stopping" in answer
        assert receiver.running.end().code == 0
        assert receiver.rows("orders") == ROWS


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with receiving(tmp_path / "r") as receiver:
        headers = chunk_of(b"{}").headers() | {"Content-Type": "application/x-ndjson", "Content-Length": "2"}
        with _connect(receiver, "orders", headers):
            assert receiver.running is not None
            receiver.running.signal(signal.SIGTERM)
            _wait_for(lambda: not _accepts(receiver.port))
            assert receiver.stop(signal.SIGTERM).code == 128 + signal.SIGTERM


def _connect(receiver: Receiver, stream: str, headers: dict[str, str]) -> socket.socket:
    """A request of which only the headers are sent."""
    connection = socket.create_connection(("127.0.0.1", receiver.port), timeout=60)
    named = [f"{name}: {value}" for name, value in headers.items()]
    connection.sendall("\r\n".join([f"POST {path_to(stream)} HTTP/1.1", "Host: localhost", *named, "", ""]).encode())
    return connection


def _answer(connection: socket.socket) -> bytes:
    with connection:
        found = b""
        while part := connection.recv(65536):
            found += part
            if b"\r\n\r\n" in found:
                head, _, body = found.partition(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                if length and len(body) >= int(length[1]):
                    break
        return found


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _wait_for(condition: object, seconds: float = 30.0) -> None:
    assert callable(condition)
    done = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        done.wait(0.02)
    raise AssertionError("it has not happened")


def test_another_one_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with receiving(tmp_path / "r") as receiver:
        assert receiver.running is not None
        second = receiver.command.run("serve", "--directory", "received", "--port", str(free_port()))
        assert second.code == 3
        assert f"another `penstock serve` has received open (pid {receiver.running.process.pid})" in second.err
        assert "Next: stop it first" in second.err
        receiver.kill()
        receiver.start()
        assert receiver.post("orders", ROWS, "k").status_code == 200


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        receiver = Receiver(tmp_path / "r")
        receiver.port = taken.getsockname()[1]
        ended = receiver.refuse()
        assert ended.code == 3
        assert f"cannot listen on 127.0.0.1 port {receiver.port}: Address already in use" in ended.err


def test_it_does_not_listen_elsewhere_without_tokens(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "r", None, "--host", "0.0.0.0")
    ended = receiver.refuse()
    assert ended.code == 2
    assert "0.0.0.0 can be reached from other machines, and received has no tokens" in ended.err
    assert "penstock token create --directory received" in ended.err
    assert not receiver.directory.exists()


def test_it_listens_elsewhere_with_a_token_and_asks_for_it(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "r", None, "--host", "0.0.0.0")
    made = receiver.command.run("token", "create", "--directory", "received", "--name", "shop", "--scope", "ingest")
    assert made.code == 0, made.err
    secret = made.out.split()[-1]
    receiver.start()
    try:
        assert receiver.post("orders", ROWS, "k").status_code == 401
        assert receiver.post("orders", ROWS, "k", Authorization=f"Bearer {secret}").status_code == 200
        revoked = receiver.command.run("token", "revoke", "--directory", "received", "--name", "shop", "--yes")
        assert revoked.code == 0, revoked.err
        # The last token is gone: that does not open the door.
        assert receiver.post("orders", ROWS, "k", Authorization=f"Bearer {secret}").status_code == 401
        assert receiver.post("orders", ROWS, "k").status_code == 401
        ended = receiver.stop()
        assert "no TLS" in ended.err
    finally:
        receiver.kill()


def test_neither_a_file_nor_a_directory(tmp_path: Path) -> None:
    ended = Receiver(tmp_path / "r").command.run("serve")
    assert ended.code == 2
    assert "neither a pipeline file nor --directory" in ended.err


def test_a_file_without_the_section(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "r")
    (receiver.folder / "receiver.yaml").write_text(_PIPELINES)
    ended = receiver.command.run("serve", "receiver.yaml")
    assert ended.code == 2
    assert "receiver.yaml has no `receiver` section" in ended.err


_PIPELINES = """
pipelines:
  inbox:
    source: {type: wal, directory: received}
    sink: {type: files, directory: out}
    streams: {orders: {columns: {id: int64}}}
"""


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate of this machine, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    return folder


def test_tls_by_certificate_files(tmp_path: Path, certificate: Path) -> None:
    receiver = Receiver(tmp_path / "r")
    (receiver.folder / "tls").symlink_to(certificate)
    receiver.section = {"create_streams": True, "tls": {"certificate": "tls/cert.pem", "key": "tls/key.pem"}}
    receiver.scheme = "https"
    receiver.start()
    try:
        context = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
        answer = httpx.post(
            f"{receiver.url}{path_to('orders')}", json=ROWS, headers=JSON | {protocol.KEY: "k"}, verify=context
        )
        assert answer.status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{receiver.url}/readyz")
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"http://127.0.0.1:{receiver.port}/readyz")
        assert receiver.stop().code == 0
    finally:
        receiver.kill()


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, certificate: Path) -> None:
    section = {"create_streams": True, "tls": {"certificate": "missing.pem", "key": str(certificate / "key.pem")}}
    ended = Receiver(tmp_path / "r", section).refuse()
    assert ended.code == 2
    assert "missing.pem" in ended.err
    assert "No such file" in ended.err


# ---------------------------------------------------------------- kills

#: chunks of each slice, and rows of each chunk
CHUNKS, ROWS_OF_CHUNK = 4, 25
PRODUCERS = 4
KILLS = 6


def test_killed_in_bursts_every_chunk_is_there_once(tmp_path: Path) -> None:
    """Producers send as fast as they can, and retry until they are answered; the receiver dies again and again."""
    end = threading.Event()

    def send(producer: str, receiver: Receiver) -> int:
        number, answered = 0, 0
        with receiver.client() as client:
            while not end.is_set():
                number += 1
                for chunk in range(1, CHUNKS + 1):
                    first = (number * CHUNKS + chunk) * ROWS_OF_CHUNK
                    body = lines([{"producer": producer, "n": first + row} for row in range(ROWS_OF_CHUNK)])
                    sent = chunk_of(body, number, chunk, CHUNKS, producer=producer)
                    headers = sent.headers() | {"Content-Type": protocol.NDJSON}
                    answered += _until_answered(client, path_to("orders"), body, headers)
        return answered

    with receiving(tmp_path / "r") as receiver, ThreadPoolExecutor(PRODUCERS) as pool:
        sending = [pool.submit(send, f"p{each}", receiver) for each in range(PRODUCERS)]
        try:
            for turn in range(KILLS):
                end.wait(0.2 + 0.15 * turn)
                receiver.kill()
                receiver.start()
        finally:
            end.set()
        answered = [each.result() for each in sending]
        rows = receiver.rows("orders")
        for each, chunks in enumerate(answered):
            mine = [row["n"] for row in rows if row["producer"] == f"p{each}"]
            first = (CHUNKS + 1) * ROWS_OF_CHUNK
            assert mine == list(range(first, first + chunks * ROWS_OF_CHUNK))
            assert chunks >= KILLS
            held = receiver.held("orders", f"p{each}")
            assert held["last"]["slice"] == slice_id(chunks // CHUNKS)


def _until_answered(client: httpx.Client, path: str, body: bytes, headers: dict[str, str]) -> int:
    while True:
        try:
            answer = client.post(path, content=body, headers=headers)
        except httpx.TransportError:
            threading.Event().wait(0.02)
            continue
        assert answer.status_code == 200, answer.text
        return 1

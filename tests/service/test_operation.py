"""A receiver that runs, seen by those who operate it: lag, metrics, tokens, withdrawals, and the order on its disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.docs.pages import TOP
from tests.harness.system_calls import follows, trace
from tests.service.receiving import JSON, START_SECONDS, Receiver, free_port
from tests.wal.disks import LIMITED, mounted
from typer.testing import CliRunner, Result

from penstock.cli import app
from penstock.links.http import protocol
from penstock.links.http.protocol import SentChunk, digest_of
from penstock.service.tokens import TokenFile
from penstock.wal import readers
from penstock.wal.folders import folder_of
from penstock.wal.segments import list_numbers, path_of
from penstock.wal.verification import verify_log

ROWS = [{"id": 1}, {"id": 2}]
BODY = json.dumps(ROWS).encode()


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path / "here").start()
    yield receiver
    receiver.kill()


def call(command: str, **given: str) -> Result:
    return CliRunner().invoke(app, command.split(), prog_name="penstock", env=given)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def send_chunk(receiver: Receiver, k: int, of: int, **headers: str) -> httpx.Response:
    sent = SentChunk("shop", "ab" * 32, 1, "", k, of, len(ROWS), digest_of(BODY))
    return httpx.post(
        f"{receiver.url}{protocol.batches_path('orders')}", content=BODY, headers=JSON | sent.headers() | headers
    )


def test_lag_and_metrics_of_what_a_sender_says(receiver: Receiver) -> None:
    meta = {"source": "shop", "cursor": "2026-11-19", "max_id": 900, "lag_rows": 3, "lag_seconds": 1.5}
    assert receiver.post("orders", ROWS, "a", **{protocol.META: protocol.encode_meta(meta)}).status_code == 200
    assert receiver.post("orders", ROWS, "a").status_code == 200
    assert receiver.post("orders", b"[", "b").status_code == 400
    folder = folder_of(str(receiver.directory), "orders")
    readers.register(folder, "lake/orders", 1)

    [orders] = httpx.get(f"{receiver.url}/v1/lag").json()["streams"]
    assert orders["problem"] is None
    [source] = orders["sources"]
    said = {name: source[name] for name in meta}
    assert said == meta
    assert (source["batches"], source["rows"]) == (1, 2)
    [reader] = orders["readers"]
    assert (reader["reader"], reader["batches"], reader["rows"]) == ("lake/orders", 1, 2)

    samples = {
        (each.name, each.labels.get("outcome") or each.labels.get("source")): each.value
        for family in text_string_to_metric_families(httpx.get(f"{receiver.url}/metrics").text)
        for each in family.samples
        if each.labels.get("stream") == "orders"
    }
    assert samples["penstock_sync_lag_rows", "shop"] == 3
    assert samples["penstock_sync_lag_seconds", "shop"] == 1.5
    assert samples["penstock_sync_max_id", "shop"] == 900
    assert samples["penstock_receiver_requests_total", "repeated"] == 1
    assert samples["penstock_receiver_requests_total", "taken"] == 1
    assert samples["penstock_receiver_requests_total", "invalid"] == 1


def test_a_stream_that_is_not_available_is_shown_as_such(receiver: Receiver) -> None:
    assert receiver.post("orders", ROWS, "a").status_code == 200
    assert receiver.post("events", ROWS, "a").status_code == 200
    receiver.stop()
    folder = folder_of(str(receiver.directory), "orders")
    os.rename(path_of(folder, 1), receiver.folder / "gone")
    receiver.start()
    events, orders = httpx.get(f"{receiver.url}/v1/lag").json()["streams"]
    assert events["problem"] is None
    assert "segment 1 of the log in orders is missing" in orders["problem"]
    assert 'penstock_wal_unreadable{stream="orders"} 1.0' in httpx.get(f"{receiver.url}/metrics").text


def test_tokens_count_and_stop_counting_while_it_runs(receiver: Receiver) -> None:
    assert receiver.post("orders", ROWS, "a").status_code == 200
    assert receiver.post("events", ROWS, "a").status_code == 200
    made = {
        name: call(f"token create --directory {receiver.directory} --name {name} {words}").stdout.strip()
        for name, words in {"shop": "--scope ingest -s orders", "eye": "--scope read -s orders"}.items()
    }
    assert receiver.post("orders", ROWS, "b").status_code == 401
    assert receiver.post("orders", ROWS, "b", **bearer(made["eye"])).status_code == 403
    assert receiver.post("events", ROWS, "b", **bearer(made["shop"])).status_code == 403
    assert receiver.post("orders", ROWS, "b", **bearer(made["shop"])).status_code == 200

    assert httpx.get(f"{receiver.url}/v1/lag").status_code == 401
    assert httpx.get(f"{receiver.url}/v1/lag", headers=bearer(made["shop"])).status_code == 403
    seen = httpx.get(f"{receiver.url}/v1/lag", headers=bearer(made["eye"]))
    assert [each["stream"] for each in seen.json()["streams"]] == ["orders"], "a bound token sees its streams alone"
    metrics = httpx.get(f"{receiver.url}/metrics", headers=bearer(made["eye"])).text
    assert set(re.findall(r'stream="(\w+)"', metrics)) == {"orders"}

    assert call(f"token revoke --directory {receiver.directory} --name shop --yes").exit_code == 0
    assert receiver.post("orders", ROWS, "c", **bearer(made["shop"])).status_code == 401
    assert call(f"token revoke --directory {receiver.directory} --name eye --yes").exit_code == 0
    assert receiver.post("orders", ROWS, "c").status_code == 401, "without its last token it is open to nobody"

    (receiver.directory / ".tokens.json").write_text("{}")
    assert receiver.post("orders", ROWS, "c").status_code == 503
    ended = receiver.stop()
    for secret in made.values():
        assert secret not in ended.out + ended.err


def test_an_open_slice_is_withdrawn_by_asking_the_receiver(receiver: Receiver) -> None:
    assert send_chunk(receiver, 1, 3).status_code == 200
    words = f"wal withdraw --url {receiver.url} --stream orders --producer shop"
    asked = call(words)
    assert asked.exit_code == 2
    assert "of producer shop is open: 1 of 3 chunks held" in asked.stdout
    done = call(f"{words} --yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "withdrew slice 1 of producer shop, of which 1 chunk had been received" in done.stdout
    again = call(f"{words} --yes")
    assert again.exit_code == 2
    assert "has no open slice in stream 'orders': nothing of it is held" in again.stderr
    assert send_chunk(receiver, 1, 1).status_code == 200
    whole = call(f"{words} --yes")
    assert "is whole and may have been read" in whole.stderr


def test_a_withdrawal_needs_a_token_where_others_do(receiver: Receiver) -> None:
    assert send_chunk(receiver, 1, 3).status_code == 200
    secret = TokenFile(str(receiver.directory)).create("shop", ["ingest"], ["orders"])
    reads = TokenFile(str(receiver.directory)).create("eye", ["read"])
    words = f"wal withdraw --url {receiver.url} --stream orders --producer shop --yes"
    without = call(words)
    assert without.exit_code == 2
    assert "answered 401" in without.stderr
    assert "penstock token create --scope ingest" in without.stderr
    assert "answered 403" in call(words, PENSTOCK_TOKEN=reads).stderr
    done = call(words, PENSTOCK_TOKEN=secret)
    assert done.exit_code == 0
    assert secret not in done.output


def test_a_receiver_that_does_not_answer() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = call(f"wal withdraw --url {url} --stream orders --producer shop --yes")
    assert done.exit_code == 3
    assert f"the receiver at {url} did not answer" in done.stderr


def test_beside_a_receiver_a_log_is_seen_and_its_slices_are_not_taken(receiver: Receiver) -> None:
    assert send_chunk(receiver, 1, 3).status_code == 200
    assert (
        "slice 1 (abababababab…) is open: 1 of 3 chunks" in call(f"wal inspect --directory {receiver.directory}").stdout
    )
    assert "orders: whole" in call(f"wal verify --directory {receiver.directory}").stdout
    refused = call(f"wal withdraw --directory {receiver.directory} --stream orders --producer shop --yes")
    assert refused.exit_code == 3
    assert "a receiver is running" in refused.stderr
    assert send_chunk(receiver, 2, 3).status_code == 200


def test_each_answer_of_the_receiver_comes_after_the_sync_of_its_record(tmp_path: Path) -> None:
    """Four clients at once, by the system calls: request, write, fsync, answer; new folders before the first answer."""
    directory, port = tmp_path / "received", free_port()

    def send(client: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            for number in range(6):
                key = f"key-{client}-{number}."
                path = protocol.batches_path("orders")
                assert http.post(path, content=BODY, headers=JSON | {protocol.KEY: key}).status_code == 200

    def talk(process: Popen[str]) -> None:
        wait_for(f"http://127.0.0.1:{port}", process)
        with ThreadPoolExecutor(4) as clients:
            list(clients.map(send, range(4)))
        [served] = psutil.Process(process.pid).children()
        served.terminate()

    command = [sys.executable, "-m", "penstock", "serve", "--directory", str(directory), "--port", str(port)]
    traced = trace(command, tmp_path / "trace", talk)
    folder = directory / "orders"
    written_at = [each for each in traced.find("pwritev2") if each.path == path_of(str(folder), 1)]
    created = traced.one("rename", text="000000000001.wal.new")
    received = [*traced.find("recvfrom"), *traced.find("read")]
    first = None
    for client in range(4):
        for number in range(6):
            key = f"key-{client}-{number}."
            [request] = [each for each in received if f"{key}\\r\\n" in each.arguments]
            [written] = [each for each in written_at if key in each.arguments]
            sent = [each for each in (*traced.find("sendto"), *traced.find("write")) if each.path == request.path]
            answer = next(each for each in sent if each.begun > request.ended and "HTTP/1.1 200" in each.arguments)
            assert follows(request, written, answer), key
            assert traced.is_synced(written, answer), key
            first = answer if first is None or answer.begun < first.begun else first
    assert first is not None
    for made in (directory, folder):
        calls = [each for each in traced.calls if each.name in ("mkdir", "mkdirat") and each.path == str(made)]
        synced = [each for each in traced.find("fsync", made.parent) if follows(calls[0], each, created)]
        assert synced, made
    named = [each for each in traced.find("fsync", folder) if follows(created, each, first)]
    assert named, "the segment's name was not on disk before the first answer"


#: a receiver whose fsync fails while a file is there
FAILING = """
import errno, os, sys
flag, real = sys.argv[1], os.fsync

def fsync(descriptor):
    if os.path.exists(flag):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    real(descriptor)

os.fsync = fsync
sys.argv[1:] = sys.argv[2:]
from penstock.cli import main
main()
"""


def wait_for(url: str, process: Popen[Any]) -> None:
    """Until it answers."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        try:
            httpx.get(f"{url}/readyz", timeout=1)
        except httpx.TransportError:
            assert process.poll() is None
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the receiver does not answer")


@contextmanager
def served(receiver: Receiver, *words: str) -> Iterator[Popen[bytes]]:
    """A receiver that is started by these words, until the block ends."""
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    command = [sys.executable, *words, *receiver.arguments()]
    with Popen(command, cwd=receiver.folder, env=environment, stderr=subprocess.PIPE) as process:
        try:
            wait_for(receiver.url, process)
            yield process
        finally:
            process.kill()
            process.communicate()


def test_after_a_failed_sync_not_even_what_is_held_is_confirmed(tmp_path: Path) -> None:
    """The kernel may have dropped what was written: the segment is read again first."""
    receiver, flag = Receiver(tmp_path / "here"), tmp_path / "failing"
    with served(receiver, "-c", FAILING, str(flag)):
        assert receiver.post("orders", ROWS, "a").status_code == 200
        assert send_chunk(receiver, 1, 2).status_code == 200
        producer = f"{receiver.url}{protocol.producer_path('orders', 'shop')}"
        assert httpx.get(producer).json()["open"]["held"] == 1
        flag.touch()
        assert receiver.post("orders", ROWS, "b").status_code == 503
        assert receiver.post("orders", ROWS, "a").status_code == 503
        assert send_chunk(receiver, 1, 2).status_code == 503
        assert httpx.get(producer).status_code == 503
        assert httpx.delete(f"{producer}/slices/{'ab' * 32}").status_code == 503
        assert receiver.post("others", ROWS, "a").status_code in (503, 507)
        flag.unlink()
        assert httpx.get(producer).json()["open"]["held"] == 1
        again = receiver.post("orders", ROWS, "a")
        assert (again.status_code, again.headers[protocol.REPLAYED]) == (200, "true")
        assert receiver.post("orders", ROWS, "b").status_code == 200
        assert send_chunk(receiver, 2, 2).status_code == 200
    assert len(receiver.rows("orders")) == 8
    assert verify_log(folder_of(str(receiver.directory), "orders")).faults == ()


def test_a_full_disk_is_507_loses_nothing_and_is_no_reason_not_to_start(tmp_path: Path) -> None:
    """A small disk, filled by batches; killed and started again while it is full; then a reader lets segments go."""
    receiver, size = Receiver(tmp_path / "here"), 1 << 20
    segments = {"segment_bytes": 100_000}
    receiver.section = {"create_streams": True, "log": segments}
    with mounted(receiver.directory, size) as is_mounted:
        words = ["-m", "penstock"]
        if not is_mounted:
            words = ["-c", LIMITED, str(receiver.directory), str(size)]

        def post(number: int) -> httpx.Response:
            return receiver.post("orders", [{"id": number, "noise": os.urandom(20_000).hex()}], f"key-{number}")

        with served(receiver, *words):
            taken = 0
            while (answer := post(taken)).status_code == 200:
                taken += 1
            assert answer.status_code == 507
            assert answer.json()["detail"] == "the disk under the log is full"
            assert answer.headers["retry-after"]
            assert 10 < taken < 60
            [orders] = httpx.get(f"{receiver.url}/v1/lag").json()["streams"]
            assert (orders["rows"], orders["problem"]) == (taken, None)
            assert post(taken).status_code == 507
        with served(receiver, *words):
            assert [row["id"] for row in receiver.rows("orders")] == [*range(taken)]
            assert post(taken).status_code == 507
            folder = folder_of(str(receiver.directory), "orders")
            readers.register(folder, "lake/orders", 1)
            readers.raise_mark(folder, "lake/orders", readers.Reader(list_numbers(folder)[-1], 1, 2))
            assert readers.delete_read(folder)
            assert post(taken).status_code == 200
            assert receiver.rows("orders")[-1]["id"] == taken
            assert verify_log(folder).faults == ()

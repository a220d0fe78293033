"""What a receiver finds when it starts: each case is refused, right, or said; none is silent, none holds up others."""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import google_crc32c
import httpx
import pytest
from tests.service.receiving import Receiver, chunk_of, lines, receiving, slice_id
from tests.service.test_batches import problem

from penstock.core.documents import canonical
from penstock.links.http import protocol
from penstock.service.bodies import compress
from penstock.wal.batches import Batch
from penstock.wal.folders import folder_of
from penstock.wal.ledger import Bare, Take
from penstock.wal.log import LogOptions
from penstock.wal.opening import open_log
from penstock.wal.segments import list_numbers, path_of

ROWS = [{"id": 1}]
#: small segments: a few batches need several
SMALL = {"create_streams": True, "log": {"segment_bytes": 600}}


def folder(receiver: Receiver, stream: str = "orders") -> str:
    return folder_of(str(receiver.directory), stream)


def send_slices(receiver: Receiver, first: int, last: int, stream: str = "orders") -> None:
    for number in range(first, last + 1):
        body = lines([{"id": number}])
        answer = receiver.send(stream, chunk_of(body, number), body)
        assert answer.status_code == 200, answer.text


def other_version(receiver: Receiver) -> None:
    """The header of the last segment says another version of the format."""
    path = Path(path_of(folder(receiver), list_numbers(folder(receiver))[-1]))
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack(">H", 1)) if struct.pack(">H", 1) in data[:16] else 8
    data[at + 1] ^= 0x7F
    path.write_bytes(bytes(data))


def segment_missing(receiver: Receiver) -> None:
    numbers = list_numbers(folder(receiver))
    assert len(numbers) >= 3
    Path(path_of(folder(receiver), numbers[1])).unlink()


def last_segment_missing(receiver: Receiver) -> None:
    Path(path_of(folder(receiver), list_numbers(folder(receiver))[-1])).unlink()


def schemas_damaged(receiver: Receiver) -> None:
    path = Path(folder(receiver), "schemas.json")
    path.write_text(path.read_text().replace("rows", "r0ws"))


def schemas_of_a_newer_version(receiver: Receiver) -> None:
    path = Path(folder(receiver), "schemas.json")
    document = json.loads(path.read_text())
    del document["checksum"]
    document["format"] = 2
    path.write_text(json.dumps(document | {"checksum": google_crc32c.value(canonical(document).encode())}))


def readers_damaged(receiver: Receiver) -> None:
    Path(folder(receiver), "readers.json").write_text("{")


BROKEN: dict[str, tuple[Callable[[Receiver], None], str]] = {
    "another version": (other_version, "use the version of penstock that wrote it"),
    "a segment is missing": (segment_missing, "segment 2 of the log"),
    "the last segment is missing": (last_segment_missing, "is missing"),
    "the schemas are damaged": (schemas_damaged, "its checksum is wrong"),
    "the schemas are of a newer version": (schemas_of_a_newer_version, "format 2, and this penstock reads format 1"),
    "the readers are damaged": (readers_damaged, "readers.json cannot be read"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_log_that_cannot_be_opened_is_said_and_holds_up_no_other_stream(tmp_path: Path, case: str) -> None:
    spoil, said = BROKEN[case]
    with receiving(tmp_path / "r", SMALL) as receiver:
        send_slices(receiver, 1, 6)
        send_slices(receiver, 1, 1, "others")
        receiver.kill()
        spoil(receiver)
        before = contents(receiver)
        receiver.start()
        found = problem(receiver.send("orders", chunk_of(b"{}", 7), b"{}"), 503)
        assert said in found["detail"] + found["next_step"]
        answer = httpx.get(f"{receiver.url}{protocol.producer_path('orders', 'shop')}")
        assert problem(answer, 503) == found
        assert httpx.get(f"{receiver.url}/readyz").json()["unavailable_streams"] == 1
        send_slices(receiver, 2, 2, "others")
        ended = receiver.stop()
        assert "stream orders is not available: " in ended.err
        assert said in ended.err
        assert contents(receiver) == before


def contents(receiver: Receiver) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder(receiver)).iterdir()}


def test_a_folder_that_is_no_log_holds_up_no_other_stream(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "r", SMALL)
    (receiver.directory / "orders" / "lock").mkdir(parents=True)
    (receiver.directory / "Not a stream").mkdir()
    receiver.start()
    try:
        assert "Is a directory (lock)" in problem(receiver.post("orders", ROWS, "k"), 503)["detail"]
        send_slices(receiver, 1, 1, "others")
        said = receiver.stop().err
        assert "stream orders is not available" in said
        assert "Not a stream" not in said
    finally:
        receiver.kill()


def test_one_log_that_somebody_else_has_open(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "r", {"create_streams": True})
    log = open_log(folder(receiver), LogOptions(), lambda: 1)
    try:
        receiver.start()
        assert "another process has the log" in problem(receiver.post("orders", ROWS, "k"), 503)["detail"]
        assert receiver.post("others", ROWS, "k").status_code == 200
    finally:
        log.close()
        receiver.kill()


def test_a_log_that_was_begun_and_never_written_takes_what_comes_first(tmp_path: Path) -> None:
    """A receiver that is killed while it creates a stream has not said yet whether the stream takes rows or ops."""
    receiver = Receiver(tmp_path / "r", {"create_streams": True})
    open_log(folder(receiver), LogOptions(), lambda: 1).close()
    receiver.start()
    try:
        assert httpx.get(f"{receiver.url}/readyz").json()["unavailable_streams"] == 0
        document = {"v": 1, "table": "t", "key": 1, "ops": [{"op": "set", "field": "a", "value": 1}]}
        taken = receiver.post("orders", [document], "k", to="ops")
        assert taken.status_code == 200, taken.text
        assert "stream orders takes ops" in problem(receiver.post("orders", ROWS, "l"), 409)["detail"]
    finally:
        receiver.kill()


def test_a_log_restored_from_an_older_copy_refuses_a_producer_that_is_ahead(tmp_path: Path) -> None:
    with receiving(tmp_path / "r", {"create_streams": True}) as receiver:
        send_slices(receiver, 1, 2)
        receiver.stop()
        shutil.copytree(receiver.directory, tmp_path / "copy")
        receiver.start()
        send_slices(receiver, 3, 5)
        receiver.stop()
        shutil.rmtree(receiver.directory)
        shutil.copytree(tmp_path / "copy", receiver.directory)
        receiver.start()
        for _ in range(2):
            body = lines([{"id": 6}])
            found = problem(receiver.send("orders", chunk_of(body, 6), body), 409)
            assert f"its predecessor is {slice_id(5)}, and the last slice held is {slice_id(2)}" in found["detail"]
            assert "penstock state recover" in found["next_step"]
        assert receiver.held("orders", "shop")["last"]["number"] == 2
        said = receiver.stop().err
        assert said.count("refused slice") == 1, "said once, however often the producer insists"
        receiver.start()
        send_slices(receiver, 3, 6)
        assert [row["id"] for row in receiver.rows("orders")] == [1, 2, 3, 4, 5, 6]


def test_a_torn_end_is_cut_kept_and_said(tmp_path: Path) -> None:
    with receiving(tmp_path / "r", {"create_streams": True}) as receiver:
        send_slices(receiver, 1, 3)
        receiver.kill()
        path = Path(path_of(folder(receiver), 1))
        path.write_bytes(path.read_bytes()[:-5])
        receiver.start()
        assert receiver.held("orders", "shop")["last"]["number"] == 2
        said = receiver.stop().err
        assert "bytes were cut off the end of segment 1" in said
        assert "acknowledged batches among them" in said
        assert len(list(Path(folder(receiver)).glob("*.torn-*"))) == 1


def test_a_flipped_bit_is_said_and_sending_goes_on(tmp_path: Path) -> None:
    with receiving(tmp_path / "r", {"create_streams": True}) as receiver:
        send_slices(receiver, 1, 2)
        before = Path(path_of(folder(receiver), 1)).stat().st_size
        send_slices(receiver, 3, 4)
        receiver.kill()
        path = Path(path_of(folder(receiver), 1))
        data = bytearray(path.read_bytes())
        data[before + 40] ^= 1
        path.write_bytes(bytes(data))
        receiver.start()
        send_slices(receiver, 5, 5)
        said = receiver.stop().err
        assert f"the record at 1:{before} is damaged" in said


# ---------------------------------------------------------------- schemas


DECLARED: dict[str, Any] = {"streams": {"orders": {"columns": {"id": "int64"}, "primary_key": ["id"]}}}
CHANGED: dict[str, Any] = {"streams": {"orders": {"columns": {"id": "bool", "note": "string"}}}}


def test_a_changed_schema_counts_from_then_on_and_is_said(tmp_path: Path) -> None:
    with receiving(tmp_path / "r", DECLARED) as receiver:
        body, second = lines([{"id": 1}]), lines([{"id": 2}])
        assert receiver.send("orders", chunk_of(body, 1, 1, 2), body).status_code == 200
        assert receiver.send("orders", chunk_of(second, 1, 2, 2), second).status_code == 200
        assert receiver.send("orders", chunk_of(body, 2, 1, 2), body).status_code == 200
        receiver.stop()
        receiver.section = CHANGED
        receiver.start()
        # A chunk that was taken is recognised, whatever the stream is declared to be now.
        again = receiver.send("orders", chunk_of(body, 2, 1, 2), body)
        assert (again.status_code, again.headers[protocol.REPLAYED]) == (200, "true")
        wrong = lines([{"id": 1.5}])
        assert problem(receiver.send("orders", chunk_of(wrong, 2, 2, 2), wrong), 422)["field"] == "id"
        good = lines([{"id": True}])
        assert receiver.send("orders", chunk_of(good, 2, 2, 2), good).status_code == 200
        said = receiver.stop().err
        assert "its schema has changed. Batches from now on are of version 2" in said
        receiver.start()
        assert "its schema has changed" not in receiver.stop().err, "it has not changed again"
        assert [row["id"] for row in receiver.rows("orders")] == [1, 2, 1, True]


def test_the_pipeline_that_reads_both_versions_says_so(tmp_path: Path) -> None:
    with receiving(tmp_path / "r", DECLARED) as receiver:
        send_slices(receiver, 1, 1)
        receiver.stop()
        receiver.section = {"streams": {"orders": {"columns": {"id": "int64", "note": "string"}}}}
        receiver.start()
        send_slices(receiver, 2, 2)
        ended = receiver.command.run("run", "receiver.yaml", "--json")
        assert ended.code == 0, ended.err
        said = [message["text"] for message in ended.messages if message["type"] == "log"]
        assert any("the schema of the stream changed between these batches: versions 1, 2" in text for text in said)


def test_a_stream_is_not_turned_into_one_of_ops(tmp_path: Path) -> None:
    with receiving(tmp_path / "r", DECLARED) as receiver:
        send_slices(receiver, 1, 1)
        receiver.stop()
        receiver.section = {"streams": {"orders": {"takes": "ops"}}}
        receiver.start()
        found = problem(receiver.post("orders", [], "k", to="ops"), 503)
        assert "it holds rows, and is declared to take ops" in found["detail"]


def test_a_stream_that_is_no_longer_declared_takes_nothing_and_stays_readable(tmp_path: Path) -> None:
    with receiving(tmp_path / "r", DECLARED) as receiver:
        send_slices(receiver, 1, 1)
        receiver.stop()
        receiver.section = {"streams": {"purchases": DECLARED["streams"]["orders"]}}
        receiver.start()
        body = lines([{"id": 2}])
        assert "there is no stream orders" in problem(receiver.send("orders", chunk_of(body, 2), body), 404)["detail"]
        assert receiver.rows("orders") == [{"id": 1}]
        said = receiver.stop().err
        assert "stream orders has a log and is not declared: nothing is taken for it" in said
        assert "its schema has changed" not in said


# ---------------------------------------------------------------- time


def test_a_clock_that_was_set_back_is_said_and_keys_still_count(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path / "r", {"create_streams": True, "log": {"key_time": "1h"}})
    body = json.dumps(ROWS).encode()
    ahead = time.time_ns() // 1000 + 10 * 24 * 3600 * 1_000_000
    log = open_log(folder(receiver), LogOptions(), lambda: ahead)
    old = Batch(Bare("", "old", protocol.digest_of(body), 1), 1, compress([json.dumps(ROWS[0])]))
    assert log.append([old]) == [Take()]
    log.close()
    receiver.start()
    try:
        assert receiver.post("orders", ROWS, "old").headers[protocol.REPLAYED] == "true"
        assert receiver.post("orders", ROWS, "new").status_code == 200
        again = receiver.post("orders", ROWS, "new")
        assert again.headers[protocol.REPLAYED] == "true"
        until = datetime.fromisoformat(again.json()["key_counts_until"]).timestamp()
        assert int(until) == int(ahead / 1_000_000) + 3600, "an hour by the log's clock"
        assert "clock is 86" in receiver.stop().err.replace(",", "")
        assert receiver.rows("orders") == ROWS * 2
    finally:
        receiver.kill()


def test_a_key_expires_by_the_logs_clock(tmp_path: Path) -> None:
    with receiving(tmp_path / "r", {"create_streams": True, "log": {"key_time": "1s"}}) as receiver:
        assert receiver.post("orders", ROWS, "k").status_code == 200
        until = time.monotonic() + 60
        while protocol.REPLAYED in receiver.post("orders", ROWS, "k").headers and time.monotonic() < until:
            time.sleep(0.2)
        assert receiver.rows("orders") == ROWS * 2

"""`penstock wal`: what people see of a log, every damage by its place, and what holds a log up removed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.wal.test_log import SMALL, chunk, opened
from typer.testing import CliRunner, Result

from penstock.cli import app
from penstock.service.schemas import add_version, free_schema
from penstock.wal import readers
from penstock.wal.batches import Batch
from penstock.wal.lag import measure_lag
from penstock.wal.ledger import Bare, Known, Take
from penstock.wal.segments import list_numbers, path_of, read_segment
from penstock.wal.verification import verify_log

FILE = """\
pipelines:
  lake:
    source: {type: wal, directory: received}
    sink: {type: files, directory: out, format: ndjson}
    streams: {orders: {columns: {id: int64}}}
"""


@pytest.fixture(autouse=True)
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two streams: orders with an open slice, three readers and a few segments; Events, empty but for one batch."""
    monkeypatch.chdir(tmp_path)
    Path("lake.yaml").write_text(FILE)
    log = opened(tmp_path / "received" / "orders", SMALL)
    for number in range(1, 5):
        assert log.append([chunk(number, body=bytes(200))]) == [Take()]
    assert log.append([chunk(5, 1, 3), Batch(Bare("token", "key", "d", 7), 7, b"x")]) == [Take(), Take()]
    log.close()
    other = opened(tmp_path / "received" / "%45vents")
    other.append([Batch(None, 2, b"y")])
    other.close()
    folder = str(tmp_path / "received" / "orders")
    for name, segment in {"lake/orders": 3, "old/orders": 2}.items():
        readers.register(folder, name, 1_700_000_000_000_000)
        at = readers.Reader(segment, 9, 1_700_000_000_000_000, batches=segment - 1, rows=2 * (segment - 1))
        readers.raise_mark(folder, name, at)
    assert readers.delete_read(folder) == [1]
    return tmp_path / "received"


def call(command: str, **given: str) -> Result:
    return CliRunner().invoke(app, command.split(), prog_name="penstock", env=given)


def document(command: str) -> Any:
    done = call(f"{command} --json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_inspect_shows_segments_producers_and_readers(received: Path) -> None:
    shown = document("wal inspect --directory received")
    events, orders = shown["streams"]
    assert (events["stream"], orders["stream"], shown["directory"]) == ("Events", "orders", "received")
    numbers = list_numbers(str(received / "orders"))
    assert [each["segment"] for each in orders["segments"]] == numbers
    sizes = [os.path.getsize(path_of(str(received / "orders"), number)) for number in numbers]
    assert [each["bytes"] for each in orders["segments"]] == sizes
    assert orders["bytes"] == sum(sizes)
    assert [(each["batches"], each["rows"]) for each in orders["segments"]] == [(1, 2)] * 3 + [(2, 9)]
    assert all(each["age_seconds"] > 0 for each in orders["segments"])
    assert (orders["batches"], orders["rows"], orders["floor"]) == (5, 15, 2)
    assert orders["end"] == {"segment": numbers[-1], "offset": sizes[-1]}
    [producer] = orders["producers"]
    assert producer["producer"] == "shop"
    assert (producer["last"]["slice"], producer["last"]["number"], producer["last"]["held"]) == ("s4", 4, 1)
    assert (producer["open"]["slice"], producer["open"]["held"], producer["open"]["chunks"]) == ("s5", 1, 3)
    behind = {each["reader"]: (each["segment"], each["batches"], each["rows"]) for each in orders["readers"]}
    assert behind == {"lake/orders": (3, 3, 11), "old/orders": (2, 4, 13)}
    lag = measure_lag(str(received / "orders"), 0)
    assert lag is not None
    assert [each["bytes"] for each in orders["readers"]] == [each.bytes for each in lag.readers]
    assert (orders["damages"], orders["kept"], orders["missing"], orders["ledger"]) == ([], [], [], "whole")
    assert (events["readers"], events["producers"], events["batches"]) == ([], [], 1)

    said = call("wal inspect lake.yaml --stream orders").stdout
    assert "orders: 5 batches, 15 rows so far; 4 segments" in said
    assert "producer shop: slice 4 (s4); slice 5 (s5) is open: 1 of 3 chunks held" in said
    assert "reader lake/orders: at 3:46, slice 9; 3 batches, 11 rows" in said
    assert "segments before 2 were read by all readers and deleted" in said
    assert f"durable up to {numbers[-1]}:{sizes[-1]} (segment:offset)" in said
    assert "Events: " not in said
    assert "no readers: everything is kept" in call("wal inspect --directory received").stdout


def test_inspect_names_damages_and_what_was_cut_off(received: Path) -> None:
    folder = str(received / "orders")
    record = read_segment(folder, 3).records[1]
    flip(Path(path_of(folder, 3)), record.offset + 2)
    last = list_numbers(folder)[-1]
    with open(path_of(folder, last), "ab") as file:
        file.write(b"half a record")
    log = opened(received / "orders", SMALL)
    end = log.end[1]
    log.close()
    shown = document("wal inspect --directory received --stream orders")["streams"][0]
    assert [(each["segment"], each["offset"]) for each in shown["damages"]] == [(3, record.offset)]
    assert shown["kept"] == [
        {"file": f"{last:012}.torn-{end}", "what": "torn", "segment": last, "offset": end, "bytes": 13}
    ]
    said = call("wal inspect --directory received --stream orders").stdout
    assert f"damaged: 3:{record.offset}: no whole record begins here" in said
    assert f"cut off the end: 13 bytes from {last}:{end}, kept in {last:012}.torn-{end}" in said
    (received / "orders" / "end").unlink()
    os.remove(path_of(folder, 4))
    said = call("wal inspect --directory received --stream orders").stdout
    assert "durable end: not known" in said
    assert "missing: segment 4" in said


def test_inspect_of_a_log_without_a_whole_ledger(received: Path) -> None:
    folder = str(received / "%45vents")
    flip(Path(path_of(folder, 1)), read_segment(folder, 1).records[0].offset + 30)
    assert document("wal inspect --directory received --stream Events")["streams"][0]["ledger"] == "damaged"
    assert "producers: not known" in call("wal inspect --directory received --stream Events").stdout


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_verify_names_each_damage_and_fails(received: Path) -> None:
    whole = call("wal verify --directory received")
    assert whole.exit_code == 0
    assert "orders: whole: 9 records in 4 segments" in whole.stdout
    assert document("wal verify --directory received")["damages"] == 0

    folder = str(received / "orders")
    records = read_segment(folder, 3).records
    flip(Path(path_of(folder, 3)), records[1].end - 1)
    done = call("wal verify lake.yaml")
    assert done.exit_code == 1
    assert f"000000000003.wal, offset {records[1].offset}: its checksum is wrong" in done.stdout
    assert "Events: whole" in done.stdout
    assert "Next: stop the receiver and put the named files back from a backup" in done.stdout
    done = call("wal verify lake.yaml --stream orders --json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["damages"] == 1
    [stream] = found["streams"]
    assert stream["damages"] == [
        {
            "file": "000000000003.wal",
            "reason": "its checksum is wrong",
            "segment": 3,
            "offset": records[1].offset,
            "end": None,
        }
    ]


def test_verify_reads_the_schemas_too(received: Path) -> None:
    folder = received / "orders"
    versions = add_version(str(folder), [], free_schema("rows"))
    assert len(versions) == 1
    assert call("wal verify --directory received").exit_code == 0
    whole = (folder / "schemas.json").read_bytes()
    for at in range(len(whole)):
        (folder / "schemas.json").write_bytes(whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :])
        done = call("wal verify --directory received --stream orders")
        assert done.exit_code == 1, at
        assert "schemas.json cannot be read" in done.stdout, at


def test_withdraw_takes_an_open_slice_back_on_disk(received: Path) -> None:
    asked = call("wal withdraw --directory received --stream orders --producer shop")
    assert asked.exit_code == 2
    assert "slice 5 (s5) of producer shop is open: 1 of 3 chunks held" in asked.stdout
    assert "add --yes" in asked.stderr
    assert document("wal withdraw lake.yaml --stream orders --producer shop --yes") == {
        "stream": "orders",
        "producer": "shop",
        "withdrawn": {"slice": "s5", "number": 5, "chunks": 1},
    }
    again = call("wal withdraw --directory received --stream orders --producer shop --yes")
    assert again.exit_code == 2
    assert "no open slice in stream 'orders': its last one, slice 4 (s4), is whole" in again.stderr
    log = opened(received / "orders", SMALL)
    assert log.append([chunk(4), chunk(5, 1, 1, digest="another")]) == [Known(2), Take()]
    log.close()
    assert verify_log(str(received / "orders")).faults == ()


def test_withdraw_beside_a_receiver_says_how_to_ask_it(received: Path) -> None:
    log = opened(received / "orders", SMALL)
    done = call("wal withdraw --directory received --stream orders --producer shop --yes")
    assert done.exit_code == 3
    assert "another process has the log in received/orders open: a receiver is running" in done.stderr
    assert "penstock wal withdraw --url http://HOST:PORT --stream orders --producer shop" in done.stderr
    section = "receiver: {directory: received, create_streams: true, host: '::1', port: 8799}\n"
    Path("receiver.yaml").write_text(section + FILE)
    done = call("wal withdraw receiver.yaml --stream orders --producer shop --yes")
    assert done.exit_code == 3
    assert "penstock wal withdraw --url http://[::1]:8799 --stream orders --producer shop" in done.stderr
    assert log.append([chunk(5, 2, 3), chunk(5, 3, 3)]) == [Take(), Take()]
    log.close()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("wal inspect --directory gone", "there is no directory gone"),
        ("wal inspect --directory received --stream ordrs", "did you mean 'orders'?"),
        ("wal verify", "either by FILE or by --directory"),
        ("wal withdraw --directory received --stream orders --producer shpo", "did you mean 'shop'?"),
        (
            "wal withdraw --directory received --url http://x --stream orders --producer shop",
            "name the receiver by one",
        ),
        ("wal withdraw --stream orders --producer shop", "either by FILE or by --directory"),
        ("wal readers drop --directory received --stream orders --reader lake/order", "did you mean 'lake/orders'?"),
    ],
)
def test_mistakes(command: str, said: str) -> None:
    done = call(command)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "FILE" not in done.stderr.partition("Next:")[2]


def test_readers_are_listed(received: Path) -> None:
    shown = document("wal readers list lake.yaml")["streams"]
    assert [each["stream"] for each in shown] == ["Events", "orders"]
    assert [each["reader"] for each in shown[1]["readers"]] == ["lake/orders", "old/orders"]
    said = call("wal readers list --directory received").stdout
    assert "orders: old/orders: 4 batches, 13 rows" in said
    assert "Events: no readers" in said


def test_a_reader_that_is_gone_is_dropped_after_saying_what_it_has_not_read(received: Path) -> None:
    folder = str(received / "orders")
    asked = call("wal readers drop --directory received --stream orders --reader old/orders")
    assert asked.exit_code == 2
    assert "orders: reader old/orders: 4 batches, 13 rows" in asked.stdout
    assert "what only it has not read is deleted" in asked.stdout
    assert set(readers.read_registry(folder).readers) == {"lake/orders", "old/orders"}
    dropped = document("wal readers drop lake.yaml --stream orders --reader old/orders --yes")
    assert dropped == {"directory": str(received), "stream": "orders", "dropped": "old/orders", "deleted": [2]}
    assert list_numbers(folder)[0] == 3
    last = call("wal readers drop --directory received --stream orders --reader lake/orders --yes").stdout
    assert "It is the only reader: everything is kept until another pipeline reads the stream." in last
    assert "dropped reader lake/orders; 0 segments deleted" in last
    assert list_numbers(folder)[0] == 3


def test_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for verb in ("inspect", "verify", "readers list"):
        done = call(f"wal {verb} --directory empty")
        assert (done.exit_code, done.stdout) == (
            0,
            "No streams in empty: nothing was sent to this receiver yet.\n",
        )

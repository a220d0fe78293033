"""Receivers of another kind: keys, templates, and the record of what was sent."""

from __future__ import annotations

import json
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.harness.http_receiver import Answered, KeyedReceiver, Seen, Served, in_turn
from tests.sinks.http.sending import STREAM, Sending
from tests.sources.servers.certificates import Authority

from penstock.core.slices import Kind
from penstock.errors import CommitUnclear, ConnectionFailed, StreamFailed, StreamStopped
from penstock.ports import Recovering, Withdrawing, has_capability
from penstock.sinks.http import StreamOptions
from penstock.testing.contracts.delivery import Crash, Crashing, after, deliver, position, stage_parts, table


class Wire:
    def __init__(self, folder: Path, url: str, receiver: KeyedReceiver) -> None:
        self.receiver = receiver
        self.sending = Sending(
            folder, url, {"protocol": "plain", "chunk_rows": 2}, {STREAM: StreamOptions(into="hooks")}
        )

    def ids(self) -> list[int]:
        return [row["id"] for row in self.receiver.rows("/hooks")]

    def shape(self, stream: StreamOptions, **options: Any) -> None:
        self.sending.streams = {STREAM: stream}
        self.sending.options |= options

    def bodies(self) -> list[Any]:
        return [json.loads(each.decoded) for each in self.receiver.posts]


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    receiver = KeyedReceiver()
    with Served(receiver) as served:
        wire = Wire(tmp_path, served.url, receiver)
        yield wire
        wire.sending.close()


# ---------------------------------------------------------------- the chain on this side


def test_slices_follow_each_other(wire: Wire) -> None:
    last = None
    for number in range(1, 4):
        last = deliver(wire.sending.sink(), after(last), table(number), attempt=f"a{number}")
        assert position(wire.sending.sink()) == last
    assert wire.ids() == [1, 2, 3]
    held = wire.sending.sink().held(STREAM)
    assert held is not None
    assert held.rows == 1


def test_each_request_has_a_key_and_says_which_it_is(wire: Wire) -> None:
    slice_ = wire.sending.send(1, 2, 3)
    first, second = wire.receiver.posts
    assert (first.method, first.path) == ("POST", "/hooks")
    assert [each.headers["idempotency-key"] for each in (first, second)] == [f"{slice_.id}/1", f"{slice_.id}/2"]
    assert (first.headers["penstock-chunk"], second.headers["penstock-rows"]) == ("1/2", "1")


def test_a_slice_without_rows_sends_nothing(wire: Wire) -> None:
    first = wire.sending.send(1)
    empty = after(first.position, kind=Kind.RESET)
    wire.sending.sink().commit(empty, "a2", [])
    assert len(wire.receiver.posts) == 1
    assert position(wire.sending.sink()) == empty.position


@pytest.mark.parametrize("call", range(3))
def test_a_process_that_dies_while_it_sends(call: int, wire: Wire) -> None:
    slice_, receipts = wire.sending.stage(1, 2, 3, 4, 5)
    with pytest.raises(Crash):
        wire.sending.sink(Crashing(at_call=call)).commit(slice_, "a1", receipts)
    assert wire.sending.sink().held(STREAM) is None
    wire.sending.sink().commit(slice_, "a1", receipts)
    assert wire.ids() == [1, 2, 3, 4, 5]
    assert len(wire.receiver.posts) == 3, "what is acknowledged is not sent again"
    assert position(wire.sending.sink()) == slice_.position


def test_a_lost_answer_is_sent_again_with_the_same_key_and_bytes(wire: Wire) -> None:
    wire.receiver.after.append(in_turn(None, ConnectionResetError("the answer is lost")))
    wire.sending.send(1, 2, 3, 4, 5)
    assert wire.ids() == [1, 2, 3, 4, 5]
    _, second, third, _ = wire.receiver.posts
    assert second.body == third.body
    assert second.headers == third.headers


def test_a_receiver_that_forgets_its_keys_gets_a_lost_answer_twice(wire: Wire) -> None:
    """What `explain` says of such receivers is true."""

    def forget(seen: Seen) -> None:
        wire.receiver.keys.clear()

    wire.receiver.before.append(forget)
    wire.receiver.after.append(in_turn(ConnectionResetError("the answer is lost")))
    wire.sending.send(1, 2)
    assert wire.ids() == [1, 2, 1, 2]


def test_a_process_that_was_replaced_does_not_take_the_record_back(wire: Wire) -> None:
    first, receipts = wire.sending.stage(1)
    late = wire.sending.sink(Crashing(at_call=0, action=lambda: _overtake(wire, first, receipts)))
    with pytest.raises(CommitUnclear, match="another slice"):
        late.commit(first, "a1", receipts)
    assert wire.ids() == [1, 2]
    held = wire.sending.sink().held(STREAM)
    assert held is not None
    assert held.position.number == 2


def _overtake(wire: Wire, first: Any, receipts: Any) -> None:
    wire.sending.sink().commit(first, "a1", receipts)
    wire.sending.send(2, last=first.position)


def test_another_slice_than_the_next_is_refused(wire: Wire) -> None:
    first = wire.sending.send(1)
    for wrong in (after(None, spool="another"), first, after(after(first.position).position)):
        with pytest.raises(CommitUnclear):
            wire.sending.sink().commit(wrong, "b1", [])
    assert wire.ids() == [1]


def test_the_record_is_lost(wire: Wire) -> None:
    first = wire.sending.send(1)
    shutil.rmtree(wire.sending.folder / "spools")
    assert wire.sending.sink().held(STREAM) is None, "neither knows anything: it begins at the beginning"
    wire.sending.last = first.position
    sink = wire.sending.sink()
    with pytest.raises(StreamStopped, match=r"record of what was sent.*is missing") as stopped:
        sink.held(STREAM)
    assert "state recover FILE" in str(stopped.value.next_step)
    assert "goes on after slice 1" in sink.recover(STREAM)[0]  # type: ignore[attr-defined]  # of this sink
    assert position(sink) == first.position
    assert sink.recover(STREAM) == []  # type: ignore[attr-defined]  # of this sink
    wire.sending.send(2, last=first.position)
    assert wire.ids() == [1, 2]


def test_what_this_sink_can_do(wire: Wire) -> None:
    assert has_capability(wire.sending.sink(), Recovering)
    assert not has_capability(wire.sending.sink(), Withdrawing), "such a receiver knows no open slice"


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_what_acknowledges(status: int, wire: Wire) -> None:
    wire.receiver.after.append(in_turn(Answered(status)))
    wire.sending.send(1)
    assert wire.ids() == [1]


def test_other_answers_may_acknowledge(wire: Wire) -> None:
    wire.receiver.after.append(in_turn(Answered(409, b"known")))
    wire.sending.send(1, success=[202, 204, 409])
    wire.receiver.after.append(in_turn(Answered(200)))
    with pytest.raises(StreamFailed, match="status 200"):
        wire.sending.send(1, 2, success=[202], last=position(wire.sending.sink()))


def test_a_conflict_is_tried_again(wire: Wire) -> None:
    """A receiver of keys answers 409 while it still works on the first request with the key."""
    wire.receiver.before.append(in_turn(Answered(409), Answered(409)))
    wire.sending.send(1)
    assert wire.ids() == [1]
    wire.receiver.before.append(in_turn(*[Answered(409)] * 9))
    with pytest.raises(StreamFailed, match=r"status 409.*2 retries did not help"):
        wire.sending.send(2, last=position(wire.sending.sink()), retries=2)


# ---------------------------------------------------------------- bodies, paths and headers


def test_one_row_in_each_request(wire: Wire) -> None:
    wire.shape(
        StreamOptions(
            into="/orders/{id}",
            row={"say": "Order {id}: {text}", "id": "{id}"},
            headers={"X-Order": "no. {id}", "X-A": "b"},
        ),
        format="object",
        method="PUT",
        compression="none",
        key_header="X-Key",
    )
    wire.receiver.key_header = "x-key"
    slice_ = wire.sending.send(1, 2)
    first, second = wire.receiver.posts
    assert (first.method, first.path, second.path) == ("PUT", "/orders/1", "/orders/2")
    assert (first.headers["x-order"], second.headers["x-a"]) == ("no. 1", "b")
    assert first.headers["content-type"] == "application/json"
    assert second.headers["x-key"] == f"{slice_.id}/2"
    assert wire.bodies() == [{"say": "Order 1: row 1", "id": 1}, {"say": "Order 2: row 2", "id": 2}]


def test_one_batch_in_each_request(wire: Wire) -> None:
    wire.shape(
        StreamOptions(body={"source": "shop", "events": "{rows}", "v": 1}, headers={"X-A": "{{b}}"}), format="json"
    )
    wire.sending.send(1, 2, 3)
    assert wire.bodies() == [
        {"source": "shop", "events": [{"id": 1, "text": "row 1"}, {"id": 2, "text": "row 2"}], "v": 1},
        {"source": "shop", "events": [{"id": 3, "text": "row 3"}], "v": 1},
    ]
    assert wire.receiver.posts[0].headers["x-a"] == "{b}"
    assert wire.receiver.posts[0].path == "/"


NASTY = ['"}, {"a": 1', "../../etc", "line\r\nX-Evil: 1", "{id}", "größe/?#", "\u2028\x00", "", ".."]


def test_a_value_cannot_leave_its_place(wire: Wire) -> None:
    wire.shape(
        StreamOptions(into="/v1/{text}/x", row={"t": "<{text}>", "whole": "{text}"}, headers={"X-Text": "a{text}b"}),
        format="object",
        compression="none",
    )
    slice_ = after(None)
    rows = pa.table({"id": list(range(len(NASTY))), "text": NASTY})
    wire.sending.sink().commit(slice_, "a1", stage_parts(wire.sending.sink(), slice_, rows))
    assert wire.bodies() == [{"t": f"<{text}>", "whole": text} for text in NASTY]
    for seen in wire.receiver.posts:
        assert seen.path.startswith("/v1/")
        assert seen.path.count("/") == 3
        assert "x-evil" not in seen.headers


def test_templates_come_from_the_seal(wire: Wire) -> None:
    """Like columns and sizes: what is sealed is sent as it was."""
    wire.shape(StreamOptions(into="/a/{id}", row={"a": "{id}"}), format="object")
    slice_, receipts = wire.sending.stage(1)
    wire.shape(StreamOptions(into="/b/{id}", row={"b": "{id}"}))
    wire.sending.sink().commit(slice_, "a1", receipts)
    assert (wire.receiver.posts[0].path, wire.bodies()) == ("/a/1", [{"a": 1}])


# ---------------------------------------------------------------- connecting


def test_check_finds_a_receiver_that_is_not_there(tmp_path: Path) -> None:
    with Served(KeyedReceiver()) as served:
        Wire(tmp_path, served.url, KeyedReceiver()).sending.sink().connect()
    sending = Wire(tmp_path, served.url, KeyedReceiver()).sending
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        sending.sink().connect()
    sending.close()


@pytest.mark.parametrize(("protocol", "scheme"), [("plain", "https"), ("penstock", "https"), ("plain", "HTTPS")])
def test_mutual_tls(protocol: str, scheme: str, tmp_path: Path) -> None:
    from tests.harness.http_receiver import LedgerReceiver

    receiver = KeyedReceiver() if protocol == "plain" else LedgerReceiver()
    authority, stranger = Authority(tmp_path, "root"), Authority(tmp_path, "stranger")
    certificate, key = authority.sign("server", host="localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority.root)
    context.verify_mode = ssl.CERT_REQUIRED
    # An older version tells a client within the handshake that its certificate is not accepted.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    mine, my_key = authority.sign("sender")
    theirs, their_key = stranger.sign("sender")
    with Served(receiver, context) as served:
        url = served.url.replace("127.0.0.1", "localhost").replace("https", scheme)
        tls = {"ca": str(authority.root), "certificate": str(mine), "key": str(my_key)}
        sending = Sending(tmp_path, url, {"protocol": protocol, "tls": tls})
        sending.sink().connect()
        sending.send(1)
        assert len(receiver.posts) == 1
        for wrong in (
            {"ca": str(authority.root)},
            {"ca": str(authority.root), "certificate": str(theirs), "key": str(their_key)},
            {"ca": str(stranger.root), "certificate": str(mine), "key": str(my_key)},
        ):
            with pytest.raises((ConnectionFailed, StreamFailed)):
                sending.sink(tls=wrong, wait=0, retries=0).connect()
        with pytest.raises(ConnectionFailed, match="files for TLS"):
            sending.sink(tls={"ca": str(tmp_path / "missing.pem")}).connect()
        assert len(receiver.posts) == 1
        sending.close()


def test_a_proxy_of_the_environment(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for the whole address; the receiver has no such name."""
    monkeypatch.setenv("http_proxy", wire.sending.url)
    sending = Sending(wire.sending.folder, "http://receiver.invalid", {"protocol": "plain"})
    sending.sink().connect()
    sending.send(1)
    sending.close()
    assert wire.receiver.posts[0].path == "http://receiver.invalid/"

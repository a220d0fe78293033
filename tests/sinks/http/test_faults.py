"""What each answer of a receiver does, over a real socket: tried again, waited for, or a stop that says why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from tests.harness.http_proxy import CUT, GARBAGE, HALF_ANSWER, LOST_ANSWER, Fault, HttpProxy, canned, silent
from tests.harness.http_receiver import LedgerReceiver, Served, ids_of
from tests.sinks.http.sending import PIPELINE, SECRET, STREAM, Sending

from penstock.errors import CommitUnclear, ConnectionFailed, PenstockError, StreamFailed, StreamStopped


class Wire:
    """A sink, a proxy and a receiver."""

    def __init__(self, folder: Path, receiver: LedgerReceiver, proxy: HttpProxy) -> None:
        self.receiver, self.proxy = receiver, proxy
        self.sending = Sending(folder, proxy.url, {"chunk_rows": 2})

    def ids(self) -> list[int]:
        return ids_of(self.receiver.readable.get(STREAM, []))

    def tries(self) -> list[int]:
        """How often each chunk was sent; every time with the same bytes and headers."""
        for exchanges in self.proxy.by_key().values():
            assert len({each.body for each in exchanges}) == 1
            assert len({tuple(sorted(each.headers.items())) for each in exchanges}) == 1
        return [len(exchanges) for exchanges in self.proxy.by_key().values()]


@contextmanager
def wired(folder: Path) -> Iterator[Wire]:
    receiver = LedgerReceiver()
    with Served(receiver) as served, HttpProxy(served.url) as proxy:
        wire = Wire(folder, receiver, proxy)
        yield wire
        wire.sending.close()


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    with wired(tmp_path) as wire:
        yield wire


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


# ---------------------------------------------------------------- what passes

PASSING = {
    "500": canned(500, body=b"a traceback"),
    "408": canned(408),
    "a cut connection": CUT,
    "garbage": GARBAGE,
    "half an answer": HALF_ANSWER,
    "a lost answer": LOST_ANSWER,
    "an answer of something else": canned(200, {"Content-Type": "text/html"}, b"<html>Please sign in</html>"),
    "an answer to another chunk": canned(200, body=b'{"slice": "00", "chunk": 1, "chunks": 3, "rows": 2}'),
    "no answer": silent(60),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_it_is_tried_again_with_the_same_bytes(fault: Fault, wire: Wire) -> None:
    wire.proxy.fail_next(fault, fault)
    wire.sending.send(1, 2, 3, 4, 5, timeout=0.5)
    assert wire.ids() == [1, 2, 3, 4, 5]
    assert wire.tries() == [3, 1, 1]


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_it_fails_the_stream_after_the_retries_and_the_next_run_goes_on(fault: Fault, wire: Wire) -> None:
    slice_, receipts = wire.sending.stage(1, 2, 3, 4, 5)
    wire.proxy.fail_next(*[Fault()] * 1, *[fault] * 3)
    with pytest.raises(StreamFailed, match="and 2 retries did not help") as failed:
        wire.sending.sink(timeout=0.5, retries=2).commit(slice_, "a1", receipts)
    assert "run again" in str(failed.value.next_step)
    assert wire.ids() == []
    wire.sending.sink().commit(slice_, "a1", receipts)
    assert wire.ids() == [1, 2, 3, 4, 5]
    assert wire.tries() == [1, 4, 1], "what is acknowledged is not sent again"


# ---------------------------------------------------------------- what is waited for


@pytest.mark.parametrize("status", [429, 502, 503, 504, 507])
def test_a_receiver_that_is_busy_is_waited_for_and_no_retry_is_counted(status: int, wire: Wire) -> None:
    wire.proxy.fail_next(canned(status), canned(status), canned(status))
    wire.sending.send(1, 2, 3, retries=0)
    assert wire.ids() == [1, 2, 3]
    assert wire.tries() == [4, 1]
    assert ["waiting for it" in wire.sending.said[0], "takes requests again" in wire.sending.said[1]] == [True, True]


@pytest.mark.parametrize("form", ["seconds", "date"])
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_kept(form: str, status: int, wire: Wire) -> None:
    slice_, receipts = wire.sending.stage(1)
    # A date has whole seconds, so up to one of the two is lost.
    after = "1" if form == "seconds" else in_seconds(2)
    begun = time.monotonic()
    wire.proxy.fail_next(canned(status, {"Retry-After": after}))
    wire.sending.sink(retries=0).commit(slice_, "a1", receipts)
    assert time.monotonic() - begun >= 0.95
    assert wire.ids() == [1]


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_longer_retry_after_than_the_wait_ends_the_run_at_once(form: str, wire: Wire) -> None:
    wire.proxy.fail_next(canned(429, {"Retry-After": "3600" if form == "seconds" else in_seconds(3600)}))
    with pytest.raises(ConnectionFailed, match=r"asks to wait for 3[56]\d\d s"):
        wire.sending.send(1, wait=5)
    assert wire.tries() == [1]


def test_a_500_with_retry_after_counts_as_a_retry_and_waits(wire: Wire) -> None:
    slice_, receipts = wire.sending.stage(1)
    begun = time.monotonic()
    wire.proxy.fail_next(canned(500, {"Retry-After": "1"}))
    with pytest.raises(StreamFailed):
        wire.sending.sink(retries=0).commit(slice_, "a1", receipts)
    wire.proxy.fail_next(canned(500, {"Retry-After": "1"}))
    wire.sending.sink(retries=1).commit(slice_, "a1", receipts)
    assert time.monotonic() - begun >= 0.95


def test_a_receiver_that_is_down_is_waited_for(tmp_path: Path) -> None:
    receiver = LedgerReceiver()
    with HttpProxy("http://127.0.0.1:9") as proxy:  # it answers 502 while nobody listens behind it
        sending = Sending(tmp_path, proxy.url, {"chunk_rows": 2, "retries": 0})
        with Served(receiver) as served:
            proxy.target = served.url
            slice_, receipts = sending.stage(1, 2, 3)
            proxy.target = "http://127.0.0.1:9"

            def come_back(_stream: str, _text: str) -> None:
                proxy.target = served.url

            sink = sending.sink()
            sink.sender._say = come_back
            sink.commit(slice_, "a1", receipts)
        sending.close()
    assert ids_of(receiver.readable[STREAM]) == [1, 2, 3]


def test_nobody_listens_and_nobody_comes(tmp_path: Path) -> None:
    with Served(LedgerReceiver()) as gone:
        pass
    sending = Sending(tmp_path, gone.url)
    slice_, receipts = sending.stage(1)
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        sending.sink(wait=0.5).commit(slice_, "a1", receipts)
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        sending.sink(wait=60).connect()
    sending.close()


# ---------------------------------------------------------------- what stops

REFUSED = {
    400: "correct what the receiver says",
    403: "the scope `ingest`",
    404: "create the stream",
    413: "raise the receiver's limit",
    415: "set `format` and `compression`",
    422: "correct the row",
}


@pytest.mark.parametrize("status", REFUSED)
def test_a_refusal_stops_the_stream_with_the_answer_and_without_secrets(status: int, wire: Wire) -> None:
    slice_, receipts = wire.sending.stage(1, 2, 3)
    wire.proxy.fail_next(canned(status, body=f"row 2: no such field; you sent {SECRET}\n".encode() + b"x" * 5000))
    with pytest.raises(StreamFailed) as failed:
        wire.sending.sink().commit(slice_, "a1", receipts)
    said = str(failed.value)
    assert f"chunk 1 of 2 of slice 1: status {status}: row 2: no such field; you sent ***" in said
    assert SECRET not in said
    assert len(said) < 1000
    assert REFUSED[status] in str(failed.value.next_step)
    assert wire.tries() == [1]
    wire.sending.sink().commit(slice_, "a1", receipts)
    assert wire.ids() == [1, 2, 3]


def test_wrong_credentials_end_the_run(wire: Wire) -> None:
    wire.proxy.fail_next(canned(401, body=b"unknown token " + SECRET.encode()))
    with pytest.raises(ConnectionFailed, match=r"does not accept the credentials.*\*\*\*") as failed:
        wire.sending.send(1)
    assert failed.value.exit_code == 3
    assert SECRET not in str(failed.value)
    assert wire.tries() == [1]


def test_a_redirect_is_not_followed(wire: Wire) -> None:
    wire.proxy.fail_next(canned(307, {"Location": "https://elsewhere.example/v1?key=1"}))
    with pytest.raises(StreamFailed, match=r"status 307, which leads to elsewhere.example/v1: it is not followed"):
        wire.sending.send(1)


def test_a_conflict_is_decided_by_what_the_receiver_holds(wire: Wire) -> None:
    slice_, receipts = wire.sending.stage(1, 2, 3)
    wire.proxy.fail_next(canned(409, body=b"no"))
    with pytest.raises(CommitUnclear):
        wire.sending.sink().commit(slice_, "a1", receipts)
    wire.sending.sink().commit(slice_, "a1", receipts)
    assert wire.ids() == [1, 2, 3]
    again = wire.sending.sink()
    with pytest.raises(CommitUnclear, match="does not hold the slice before"):
        again.commit(slice_, "a1", receipts)
    held = again.held(STREAM)
    assert held is not None
    assert held.position == slice_.position


def test_other_bytes_under_a_known_key_stop_the_stream(wire: Wire) -> None:
    slice_, receipts = wire.sending.stage(1, 2, 3)
    _, others = wire.sending.stage(4, 5, 6)
    wire.proxy.fail_next(Fault(), canned(400))
    with pytest.raises(StreamFailed):
        wire.sending.sink().commit(slice_, "a1", receipts)
    for path in wire.sending.folder.rglob("_acknowledged"):
        path.unlink()
    with pytest.raises(StreamStopped, match="chunk 1 of slice 1 with other contents"):
        wire.sending.sink().commit(slice_, "a1", others)


# ---------------------------------------------------------------- questions

QUESTIONS: dict[str, tuple[Fault, type[PenstockError]]] = {
    "500 for ever": (canned(500), StreamFailed),
    "401": (canned(401), ConnectionFailed),
    "403": (canned(403), PenstockError),
    "garbage": (GARBAGE, StreamFailed),
    "a page": (canned(200, body=b"<html>"), StreamFailed),
    "another document": (canned(200, body=b'{"last": 7}'), StreamFailed),
}


@pytest.mark.parametrize(("fault", "error"), QUESTIONS.values(), ids=QUESTIONS)
def test_what_is_held_is_never_guessed(fault: Fault, error: type[PenstockError], wire: Wire) -> None:
    """An empty answer taken for "nothing" would deliver everything again."""
    wire.sending.send(1, 2, 3)
    wire.proxy.fail_next(*[fault] * 9, method="GET")
    with pytest.raises(error):
        wire.sending.sink(retries=1).held(STREAM)
    wire.proxy.fail_next()
    held = wire.sending.sink().held(STREAM)
    assert held is not None
    assert held.rows == 3


def test_the_headers_of_a_chunk(wire: Wire) -> None:
    slice_ = wire.sending.send(1, 2, 3)
    first, second = wire.proxy.posts
    assert first.key == f"{slice_.id}/1"
    assert first.path == f"/v1/streams/{STREAM}/batches"
    assert [each.headers["penstock-chunk"] for each in (first, second)] == ["1/2", "2/2"]
    assert [each.headers["penstock-rows"] for each in (first, second)] == ["2", "1"]
    assert first.headers["penstock-producer"] == PIPELINE
    assert first.headers["authorization"] == f"Bearer {SECRET}"
    assert first.headers["content-encoding"] == "gzip"
    assert [row["id"] for row in first.rows] == [1, 2]

"""Rows that a receiver refuses, and rows that are too large for a request: a stop, or the quarantine."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.harness.http_receiver import Answered, KeyedReceiver, LedgerReceiver, Seen, Served, in_turn
from tests.sinks.http.sending import PIPELINE, STREAM, Sending

from penstock.core.outcome import Outcome
from penstock.errors import CommitUnclear, StoreRefused, StreamFailed
from penstock.links.spools import FolderSpools
from penstock.sinks.http import StreamOptions
from penstock.sinks.http.memory import Memory
from penstock.testing.contracts.delivery import Crash, Crashing, after, position, stage_parts, table


class Wire:
    def __init__(self, folder: Path, url: str, receiver: Any, protocol: str) -> None:
        self.receiver, self.protocol = receiver, protocol
        options = {"protocol": protocol, "chunk_rows": 2, "refused": "quarantine"}
        self.sending = Sending(folder, url, options, {STREAM: StreamOptions(into="orders")})

    def ids(self) -> list[int]:
        plain = self.protocol == "plain"
        rows = self.receiver.rows("/orders") if plain else self.receiver.readable.get("orders", [])
        return [row["id"] for row in rows]

    def refuse(self, *ids: int, status: int = 422) -> None:
        """Refuse whatever has one of these rows, from now on."""

        def judge(seen: Seen) -> Answered | None:
            rows = b" ".join([seen.decoded]) if seen.method == "POST" else b""
            if any(f'"id":{id_},'.encode() in rows for id_ in ids):
                return Answered.of(status, {"detail": "row 2, field text: too long"})
            return None

        self.receiver.before[:] = [judge]

    def accept(self) -> None:
        self.receiver.before.clear()

    def listed(self) -> list[tuple[str, str, str]]:
        counts, rows = self.sending.sink().quarantined([], limit=100)
        assert sum(counts.values()) == len(rows)
        return [(row.key, row.code, row.reason) for row in rows]


@pytest.fixture(params=["penstock", "plain"])
def wire(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Wire]:
    receiver = LedgerReceiver() if request.param == "penstock" else KeyedReceiver()
    with Served(receiver) as served:
        wire = Wire(tmp_path, served.url, receiver, request.param)
        yield wire
        wire.sending.close()


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_chunk_goes_into_quarantine_and_the_others_arrive(status: int, wire: Wire) -> None:
    wire.refuse(3, status=status)
    slice_, receipts = wire.sending.stage(1, 2, 3, 4, 5)
    outcome = wire.sending.sink().commit(slice_, "a1", receipts)
    assert outcome == Outcome(created=3, quarantined=2)
    assert wire.ids() == [1, 2, 5]
    reason = f'status {status}: {{"detail": "row 2, field text: too long"}}'
    assert wire.listed() == [
        ('{"row": "{\\"id\\":3,\\"text\\":\\"row 3\\"}"}', str(status), reason),
        ('{"row": "{\\"id\\":4,\\"text\\":\\"row 4\\"}"}', str(status), reason),
    ]
    held = wire.sending.sink().held(STREAM)
    assert held is not None
    assert (held.position, held.outcome) == (slice_.position, outcome)
    second = wire.sending.send(6, last=slice_.position)
    assert wire.ids() == [1, 2, 5, 6]
    wire.sending.sink().sweep(STREAM, second.position)
    assert len(wire.listed()) == 2, "rows stay in quarantine until they are replayed or dropped"


@pytest.mark.parametrize("status", [403, 404, 415])
def test_what_is_no_fault_of_the_rows_stops_all_the_same(status: int, wire: Wire) -> None:
    wire.refuse(1, status=status)
    with pytest.raises(StreamFailed):
        wire.sending.send(1, 2, 3)
    assert wire.listed() == []


def test_without_the_option_the_stream_stops(wire: Wire) -> None:
    wire.refuse(3)
    with pytest.raises(StreamFailed, match="refused chunk 2 of 3"):
        wire.sending.send(1, 2, 3, 4, 5, refused="stop")
    assert wire.listed() == []


@pytest.mark.parametrize("call", range(4))
def test_the_decision_survives_a_process_that_dies(call: int, wire: Wire) -> None:
    """Also if the receiver would take the rows by now: an empty chunk may be there already."""
    wire.refuse(3)
    slice_, receipts = wire.sending.stage(1, 2, 3, 4, 5)
    with pytest.raises(Crash):
        wire.sending.sink(Crashing(at_call=call)).commit(slice_, "a1", receipts)
    decided = len(wire.listed()) == 2
    assert decided == (call > 0)
    wire.accept()
    if wire.sending.sink().held(STREAM) is None:
        wire.sending.sink().commit(slice_, "a1", receipts)
    assert wire.ids() == ([1, 2, 5] if decided else [1, 2, 3, 4, 5])
    assert position(wire.sending.sink()) == slice_.position


def test_two_processes_decide_alike(wire: Wire) -> None:
    """One is frozen before it sends the chunk that is refused; the other one finishes the slice."""
    slice_, receipts = wire.sending.stage(1, 2, 3, 4)

    def overtake() -> None:
        wire.refuse(3)
        wire.sending.sink().commit(slice_, "a1", receipts)
        wire.accept()

    frozen = wire.sending.sink(Crashing(at_call=0, action=overtake))
    try:
        frozen.commit(slice_, "a1", receipts)
    except CommitUnclear:
        assert position(frozen) == slice_.position
    assert sorted({*wire.ids()} - {3, 4}) == [1, 2]
    if wire.protocol == "penstock":
        assert wire.ids() == [1, 2], "the number is taken"


# ---------------------------------------------------------------- too large


LARGE = "x" * 3000


def large(*ids: int) -> Any:
    return table(*ids).set_column(1, "text", [[LARGE if id_ % 2 == 0 else "small" for id_ in ids]])


@pytest.mark.parametrize("form", [{"format": "ndjson"}, {"format": "json"}])
def test_a_row_that_is_too_large_fails_the_slice_or_goes_into_quarantine(form: dict[str, str], wire: Wire) -> None:
    slice_ = after(None)
    options: dict[str, Any] = {**form, "chunk_bytes": 2048}
    with pytest.raises(StreamFailed, match=r"a row has 30\d\d bytes as JSON, and a request takes at most"):
        stage_parts(wire.sending.sink(**options), slice_, large(1, 2, 3), attempt="b1")
    assert not [*wire.sending.folder.rglob("part-*")]
    options["oversized"] = "quarantine"
    receipts = stage_parts(wire.sending.sink(**options), slice_, large(1, 2, 3, 4, 5), large(6), large(7))
    assert [(each.read, each.rows) for each in receipts] == [(5, 5), (1, 1), (1, 1)]
    outcome = wire.sending.sink(**options).commit(slice_, "a1", receipts)
    assert outcome == Outcome(created=4, quarantined=3)
    sent = [seen.decoded for seen in wire.receiver.posts]
    assert all(len(body) <= 2048 for body in sent)
    assert [id_ for id_ in range(1, 8) if any(f'"id":{id_},'.encode() in body for body in sent)] == [1, 3, 5, 7]
    assert [code for _, code, _ in wire.listed()] == ["oversized"] * 3


def test_only_rows_that_are_too_large(wire: Wire) -> None:
    options: dict[str, Any] = {"chunk_bytes": 2048, "oversized": "quarantine"}
    slice_ = after(None)
    receipts = stage_parts(wire.sending.sink(**options), slice_, large(2, 4))
    assert wire.sending.sink(**options).commit(slice_, "a1", receipts) == Outcome(quarantined=2)
    assert position(wire.sending.sink()) == slice_.position
    (path,) = wire.sending.folder.rglob("*.oversized")
    sink = wire.sending.sink()
    assert sink.is_staged(slice_, "a1", receipts)
    path.unlink()
    assert not sink.is_staged(slice_, "a1", receipts)


# ---------------------------------------------------------------- list, replay, drop


def test_rows_are_replayed_once_the_receiver_takes_them(wire: Wire) -> None:
    wire.refuse(3, 7)
    first = wire.sending.send(1, 2, 3, 4)
    wire.sending.send(5, 6, 7, 8, last=first.position)
    sink = wire.sending.sink()
    counts, rows = sink.quarantined([STREAM], limit=3)
    assert (counts, len(rows)) == ({STREAM: 4}, 3)
    assert sink.quarantined(["other"], limit=3) == ({}, [])
    assert sink.replay(STREAM, [], overwrite=False) == Outcome(quarantined=4)
    assert len(wire.listed()) == 4
    wire.refuse(7, status=413)
    assert sink.replay(STREAM, [], overwrite=False) == Outcome(created=2, quarantined=2)
    assert wire.ids() == [1, 2, 5, 6, 3, 4]
    assert [code for _, code, _ in wire.listed()] == ["413", "413"], "the new reason"
    wire.accept()
    (one, other) = sink.quarantined([], limit=10)[1]
    assert sink.replay(STREAM, [other.id], overwrite=False) == Outcome(created=1)
    assert wire.ids()[-1:] == [8]
    assert sink.drop([STREAM], [one.id]) == 1
    assert wire.listed() == []
    assert sink.drop([], []) == 0


def test_a_replay_whose_answer_is_lost_is_recognised(wire: Wire) -> None:
    """The user tries again, with another process."""
    wire.refuse(1)
    wire.sending.send(1, 2)
    wire.accept()
    wire.receiver.after.append(in_turn(ConnectionResetError("the answer is lost")))
    with pytest.raises(StreamFailed):
        wire.sending.sink(retries=0).replay(STREAM, [], overwrite=False)
    assert len(wire.listed()) == 2
    assert wire.sending.sink().replay(STREAM, [], overwrite=False) == Outcome(created=2)
    first, second = wire.receiver.posts[-2:]
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert gzip.decompress(first.body) == gzip.decompress(second.body)
    assert wire.listed() == []


def test_a_replay_has_the_body_of_the_template(tmp_path: Path) -> None:
    receiver = KeyedReceiver()
    with Served(receiver) as served:
        wire = Wire(tmp_path, served.url, receiver, "plain")
        wire.sending.options |= {"format": "json"}
        wire.sending.streams = {STREAM: StreamOptions(into="orders", body={"a": [1], "rows": "{rows}", "b": 2})}
        wire.refuse(2)
        wire.sending.send(1, 2)
        assert [json.loads(json.loads(key)["row"]) for key, _, _ in wire.listed()] == table(1, 2).to_pylist()
        wire.accept()
        assert wire.sending.sink().replay(STREAM, [], overwrite=False) == Outcome(created=2)
        wire.sending.close()
    assert json.loads(receiver.posts[-1].decoded) == {"a": [1], "rows": table(1, 2).to_pylist(), "b": 2}


def test_a_replay_keeps_path_and_headers(tmp_path: Path) -> None:
    receiver = KeyedReceiver()
    with Served(receiver) as served:
        wire = Wire(tmp_path, served.url, receiver, "plain")
        wire.sending.options |= {"format": "object", "compression": "none"}
        wire.sending.streams = {STREAM: StreamOptions(into="/orders/{id}", headers={"X-Id": "{id}"})}
        wire.refuse(2)
        wire.sending.send(1, 2)
        wire.accept()
        assert wire.sending.sink().replay(STREAM, [], overwrite=False) == Outcome(created=1)
        wire.sending.close()
    last = receiver.posts[-1]
    assert (last.path, last.headers["x-id"], json.loads(last.body)) == ("/orders/2", "2", {"id": 2, "text": "row 2"})


def test_rows_of_a_slice_that_was_dropped_are_forgotten(wire: Wire) -> None:
    """They come again with the slice that takes its place."""
    wire.refuse(3)
    slice_, receipts = wire.sending.stage(1, 2, 3, 4, 5)
    with pytest.raises(Crash):
        wire.sending.sink(Crashing(at_call=1)).commit(slice_, "a1", receipts)
    assert len(wire.listed()) == 2
    other = after(None, spool="another")
    if wire.protocol == "penstock":
        wire.sending.sink().withdraw(STREAM, slice_.id)  # type: ignore[attr-defined]  # of this sink
    sink = wire.sending.sink()
    sink.commit(other, "b1", stage_parts(sink, other, table(1, 2, 3, 4, 5), attempt="b1"))
    assert len(wire.listed()) == 4
    sink.sweep(STREAM, other.position)
    assert len(wire.listed()) == 2
    assert [sink.memory.count_of(STREAM, each.id) for each in (slice_, other)] == [0, 2]


def test_a_list_of_nothing_makes_no_file(tmp_path: Path) -> None:
    memory = Memory(FolderSpools(str(tmp_path / "spools"), PIPELINE))
    assert memory.count_rows([]) == {}
    assert memory.list_rows([], 10) == []
    assert memory.rows_of(STREAM, []) == []
    assert memory.drop([], []) == memory.count_of(STREAM, "x") == 0
    assert memory.last_sent(STREAM) is None
    assert not (tmp_path / "spools").exists()


def test_a_file_of_a_newer_penstock_is_refused(wire: Wire) -> None:
    wire.refuse(1)
    wire.sending.send(1, 2)
    (path,) = wire.sending.folder.rglob("http.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 2")
    with pytest.raises(StoreRefused, match=r"a newer penstock has written .*http\.db \(version 2; this one knows 1\)"):
        wire.listed()


def test_a_file_that_is_damaged_is_named(wire: Wire) -> None:
    wire.refuse(1)
    slice_ = wire.sending.send(1, 2)
    (path,) = wire.sending.folder.rglob("http.db")
    path.write_bytes(b"this is no database" * 1000)
    with pytest.raises(StreamFailed, match=r"cannot use .*http\.db: file is not a database"):
        wire.sending.send(3, last=slice_.position)

"""Commits that wait for each other: as long as they may, and no longer than one that says nothing any more."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass
from unittest import mock

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.postgres.deliveries import STREAM, Deliveries

from penstock.core.outcome import Outcome
from penstock.errors import CommitUnclear, StreamFailed
from penstock.links import watch
from penstock.links.postgres import write_connection
from penstock.ports import NoProbe
from penstock.testing.contracts.delivery import after, deliver, stage_parts, table


class Halts:
    """A probe that halts at a point until it may go on."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.there, self.go = threading.Event(), threading.Event()

    def at(self, point: str, **about: object) -> None:
        if point == self.point:
            self.there.set()
            assert self.go.wait(20)


def test_a_process_that_says_nothing_in_its_transaction_loses_it(database: str) -> None:
    """The server ends it after a while; who waited comes in, and the other one asks the sink when it wakes."""
    halts = Halts("postgres.merged")
    orders, frozen = (
        Deliveries(database, pipeline="contract", probe=probe, more={"lock_timeout": 15})
        for probe in (NoProbe(), halts)
    )
    slice_ = after(None)
    said: list[Outcome | CommitUnclear] = []
    with closing(orders.sink) as sink:
        receipts = stage_parts(sink, slice_, table(1, 2))

    def commits() -> None:
        with closing(frozen.sink) as sink:
            try:
                said.append(sink.commit(slice_, "a1", receipts))
            except CommitUnclear as unclear:
                said.append(unclear)

    with mock.patch.object(write_connection, "IDLE_TRANSACTION_SECONDS", 2.0):
        first = threading.Thread(target=commits)
        first.start()
        assert halts.there.wait(20)
    with closing(orders.sink) as sink:
        position = deliver(sink, slice_, table(1, 2), attempt="a2")
        halts.go.set()
        first.join(20)
        assert isinstance(said[0], CommitUnclear)
        held = sink.held(STREAM)
        assert held is not None
        assert (held.position, held.outcome) == (position, Outcome(created=2))
    assert orders.rows("SELECT id FROM orders ORDER BY id") == [(1,), (2,)]


def test_who_is_waited_for_is_named(database: str) -> None:
    orders = Deliveries(database, pipeline="contract")
    with closing(orders.sink) as sink:
        last = deliver(sink, after(None), table(1))
        slice_ = after(last)
        receipts = stage_parts(sink, slice_, table(2))
        with psycopg.connect(database) as other:
            other.execute("UPDATE penstock_sink.ledger SET rows = rows")
            with pytest.raises(CommitUnclear) as unclear:
                sink.commit(slice_, "a1", receipts)
            pid = other.info.backend_pid
            who = f"process {pid} of the server (user penstock, idle in transaction for "
            assert f"another attempt is still committing it: {who}" in unclear.value.what
            other.rollback()
        assert sink.commit(slice_, "a1", receipts) == Outcome(created=1)


class Counts:
    """A probe that counts how often a point is passed."""

    def __init__(self, point: str) -> None:
        self.point, self.times = point, 0

    def at(self, point: str, **about: object) -> None:
        self.times += point == self.point


def test_a_deadlock_is_tried_again(database: str) -> None:
    """We wait for a row of another, which comes to wait for our ledger: the server ends one, which is us."""
    moved = Counts("postgres.moved")
    orders = Deliveries(database, {"key": ["id"]}, probe=moved)
    rows = pa.table({"id": [1, 2], "note": ["a", "b"]})
    orders.deliver(rows)
    assert moved.times == 1
    outcomes: list[Outcome] = []
    newer = rows.set_column(1, "note", [["c", "d"]])
    way = threading.Thread(target=lambda: outcomes.append(orders.deliver(newer)))
    with psycopg.connect(database) as other:
        other.execute("SET deadlock_timeout = '1min'")
        other.execute("UPDATE orders SET note = note WHERE id = 1")
        way.start()
        while orders.rows("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(0,)]:
            assert way.is_alive()
        other.execute("SELECT FROM penstock_sink.ledger FOR UPDATE")
    way.join(20)
    assert outcomes == [Outcome(updated=2)]
    assert moved.times == 3, "the second slice was tried twice"
    assert orders.rows() == [(1, "c"), (2, "d")]


@dataclass
class Ending:
    """A probe that ends the run at a point."""

    point: str
    is_ended: bool = False

    def at(self, point: str, **about: object) -> None:
        if point == self.point:
            self.is_ended = True
            time.sleep(0.6)


@pytest.mark.parametrize(
    ("point", "lands"), [("postgres.moved", False), ("postgres.merged", False), ("postgres.landed", True)]
)
def test_a_commit_is_cancelled_only_before_its_end(point: str, lands: bool, database: str) -> None:
    probe = Ending(point)
    orders = Deliveries(database, pipeline="contract", probe=probe, is_cancelled=lambda: probe.is_ended)
    slice_ = after(None)
    with closing(orders.sink) as sink:
        receipts = stage_parts(sink, slice_, table(1, 2))
        if lands:
            assert sink.commit(slice_, "a1", receipts) == Outcome(created=2)
        else:
            with pytest.raises(StreamFailed, match="because the run is to end"):
                sink.commit(slice_, "a1", receipts)
            assert sink.held(STREAM) is None
            probe.is_ended, probe.point = False, "none"
            assert sink.commit(slice_, "a1", receipts) == Outcome(created=2)


def test_a_long_merge_is_reported(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "REPORT_SECONDS", 0.3)
    doing: list[str] = []
    orders = Deliveries(database, pipeline="contract", report=lambda _, text, **more: doing.append(text))
    with closing(orders.sink) as sink:
        deliver(sink, after(None), table(1))
        slice_ = after(sink.held(STREAM).position)  # type: ignore[union-attr]  # it was delivered just before
        receipts = stage_parts(sink, slice_, table(2, 3))
        with psycopg.connect(database) as other:
            other.execute("LOCK TABLE orders IN EXCLUSIVE MODE")
            release = threading.Timer(1.0, other.rollback)
            release.start()
            sink.commit(slice_, "a1", receipts)
            release.join()
    assert doing[0].startswith("merging 2 rows, ")

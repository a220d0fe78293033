"""What a table holds, and which table it is, is looked at again inside the transaction that commits a slice."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.sinks.postgres.deliveries import STREAM, Deliveries
from tests.sinks.postgres.runs import open_source

from penstock.core.marks import Mark
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, following
from penstock.errors import CommitUnclear, StreamFailed, StreamRefused, StreamStopped
from penstock.ports import StreamInfo
from penstock.testing.contracts.delivery import stage_parts

TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"
ROWS = pa.table({"id": [1, 2], "note": ["a", "b"]})


@dataclass
class Another:
    """A probe: another session runs a statement, once, just before the transaction of a commit."""

    url: str
    statement: str
    done: bool = False

    def at(self, point: str, **about: Any) -> None:
        if point == "postgres.prepared" and not self.done:
            self.done = True
            with psycopg.connect(self.url) as other:
                other.execute(self.statement.encode())


def test_rows_that_come_between_the_check_and_the_commit_of_the_first_refresh(database: str) -> None:
    orders = Deliveries(database, {"mode": "replace"})
    orders.run(TABLE)
    orders.probe = Another(database, "INSERT INTO orders VALUES (9, 'theirs')")
    with pytest.raises(StreamRefused, match="holds rows that this stream did not write"):
        orders.deliver(ROWS, kind=Kind.REFRESH, key=["id"])
    assert orders.rows() == [(9, "theirs")]
    orders.options = {"mode": "replace", "replace_existing": True}
    assert orders.deliver(ROWS, kind=Kind.REFRESH, key=["id"]) == Outcome(created=2, deleted=1)
    assert orders.rows() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("key", [["id"], []])
def test_a_transaction_that_inserts_while_the_first_refresh_is_committed(database: str, key: list[str]) -> None:
    """It is waited for: what it brings is seen, and not deleted."""
    orders = Deliveries(database, {"mode": "replace"}, more={"lock_timeout": 0.2})
    orders.run(TABLE)
    with psycopg.connect(database) as other:
        other.execute("INSERT INTO orders VALUES (9, 'theirs')")
        with pytest.raises(StreamFailed, match="waiting for a lock on public"):
            orders.deliver(ROWS, kind=Kind.REFRESH, key=key)
    assert orders.rows() == [(9, "theirs")]
    with pytest.raises(StreamRefused, match="holds rows that this stream did not write"):
        orders.deliver(ROWS, kind=Kind.REFRESH, key=key)


@pytest.mark.parametrize("kind", [Kind.ROWS, Kind.REFRESH])
def test_a_table_that_is_made_again_while_a_slice_is_committed(database: str, kind: Kind) -> None:
    orders = Deliveries(database, {"key": ["id"]})
    orders.deliver(ROWS, kind=kind)
    orders.probe = Another(database, f"DROP TABLE orders; {TABLE}")
    with pytest.raises(CommitUnclear, match="not the table that the slices before it went into"):
        orders.deliver(ROWS, kind=kind)
    assert orders.rows() == []
    with closing(orders.sink) as sink, pytest.raises(StreamStopped, match="is another one than before"):
        sink.held(STREAM)


def test_rows_in_quarantine_do_not_go_into_another_table(database: str) -> None:
    orders = Deliveries(database, {"key": ["id"], "bad_rows": "quarantine"})
    orders.run("CREATE TABLE orders (id bigint PRIMARY KEY, note text CHECK (note <> 'b'))")
    assert orders.deliver(ROWS) == Outcome(created=1, quarantined=1)
    orders.run(f"DROP TABLE orders; {TABLE}")
    with closing(orders.sink) as sink, pytest.raises(StreamStopped, match="is another one than before"):
        sink.replay(STREAM, [], overwrite=False)
    assert orders.rows() == []


def test_a_slice_that_was_begun_elsewhere_is_not_committed_into_its_own_source(database: str) -> None:
    """A slice that is open is not checked again: the sink's URL may have changed since it was begun."""
    orders = Deliveries(database, {"mode": "append"})
    orders.run(f"{TABLE}; INSERT INTO orders VALUES (1, 'a')")
    with closing(open_source(database, stream=STREAM)) as source:
        source.connect()
        content = source.content(STREAM)
    slice_ = following(None, pipeline="shop", stream=STREAM, upto=Mark.of({}), content=content, kind=Kind.REFRESH)
    with closing(orders.sink) as sink, pytest.raises(StreamRefused, match="source and sink are the same table"):
        sink.commit(slice_, "a1", stage_parts(sink, slice_, ROWS))
    assert orders.rows() == [(1, "a")]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"database": "renamed"}, True),
        ({"timeline": 77}, False),
        ({"timeline": None}, True),
        ({"oid": "1"}, False),
        ({"system": "1"}, False),
        ({"system": None}, True),
        ({"system": None, "database": "another"}, False),
    ],
)
def test_the_database_that_is_read_is_told_by_its_identity(database: str, change: dict[str, Any], same: bool) -> None:
    """A copy of the server that went its own way has another timeline; one that will not tell is known by its name."""
    orders = Deliveries(database)
    orders.run(TABLE)
    with closing(open_source(database, stream=STREAM)) as source:
        source.connect()
        content = source.content(STREAM)
    with closing(orders.sink) as sink:
        told = replace(content, identity={**content.identity, **change})
        refused = pytest.raises(StreamRefused, match="source and sink are the same table") if same else nullcontext()
        with refused:
            sink.check(StreamInfo(STREAM, Kind.REFRESH), told)

"""A process dies at each point of a commit: the slice that is delivered again leads to the same state, once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from random import Random

from tests.sinks.postgres.state.entities import INFO, PLAIN, Draw, Entities, tables

from penstock.ports import NoProbe
from penstock.testing.contracts.delivery import Crash, Crashing, stage_parts


def points(entities: Entities, probe: Crashing) -> Iterator[str]:
    """Deliver a slice with a crash; yields its point if there is one."""
    slice_ = entities.slice()
    documents = Draw(Random(entities.last.number if entities.last else 0), PLAIN, barriers=0.1).documents(20)
    rows = list(enumerate(documents, start=100 * slice_.number))
    with closing(entities.open()) as sink:
        receipts = stage_parts(sink, slice_, *tables(rows, 1))
    entities.probe = probe
    try:
        with closing(entities.open()) as sink:
            sink.begin_run([INFO])
            sink.commit(slice_, "a1", receipts)
    except Crash as crash:
        yield str(crash)
    entities.probe = NoProbe()
    with closing(entities.open()) as sink:
        sink.begin_run([INFO])
        held = sink.held(INFO.name)
        if held is None or held.position != slice_.position:
            sink.commit(slice_, "a2", stage_parts(sink, slice_, *tables(rows, 1), attempt="a2"))
        sink.sweep(INFO.name, slice_.position)
    entities.last = slice_.position
    entities.follow(rows)


def test_a_crash_at_each_point(database: str) -> None:
    entities, seen = Entities(database), list[str]()
    for number in range(20):
        died = list(points(entities, Crashing(at_call=number)))
        assert entities.differences() == []
        assert entities.rows("SELECT relname FROM pg_class WHERE relname LIKE 's\\_%' AND relkind = 'r'") == []
        if not died:
            break
        seen += died
    assert seen == [f"postgres.{point}" for point in ("prepared", "moved", "folded", "merged", "landed")]


def test_parts_that_were_moved_twice_and_rows_of_no_receipt(database: str) -> None:
    """What another try of a part has staged is not applied, and parts are in order whatever their tries are called."""
    entities = Entities(database)
    for number in range(3):
        slice_ = entities.slice()
        rows = list(enumerate(Draw(Random(number), PLAIN).documents(30), start=100 * number))
        with closing(entities.open()) as sink:
            sink.begin_run([INFO])
            stage_parts(sink, slice_, *tables(rows[:20], 2))
            receipts = stage_parts(sink, slice_, *tables(rows, 3))
            sink.commit(slice_, "a1", receipts[::-1])
        entities.last = slice_.position
        entities.follow(rows)
        assert entities.differences() == []

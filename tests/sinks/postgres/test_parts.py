"""Parts that are tried more than once: what the receipts name comes in, once, whatever else was staged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.postgres.deliveries import STREAM, Deliveries, content_of

from penstock.core.marks import Mark
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, Part, Receipt, Slice, following
from penstock.errors import PenstockError
from penstock.ports import StreamInfo, Writer
from penstock.sinks.postgres import PostgresSink

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
#: by mode: the sink's options, and the key that the stream says
MODES: dict[str, dict[str, Any]] = {"append": {"mode": "append"}, "upsert": {"key": ["id"]}}


class Died(Exception):
    """A worker dies in the middle of a part."""


def batches(part: int, *, rows: int = 300, size: int = 50) -> Iterator[pa.RecordBatch]:
    """A part's rows: each time the same."""
    for first in range(0, rows, size):
        ids = range(part * rows + first, part * rows + first + size)
        yield pa.record_batch([list(ids), [f"row {id_}" for id_ in ids]], schema=SCHEMA)


@dataclass
class Try:
    """One try of one part; `until` a batch comes through, then it dies, or waits until it may go on."""

    part: int
    dies_after: int | None = None
    waits_after: int | None = None
    waiting: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def write(self, writer: Writer) -> Receipt:
        return writer.write(pa.RecordBatchReader.from_batches(SCHEMA, self._given()), Part(self.part, "{}"))

    def _given(self) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(self.part), 1):
            yield batch
            if number == self.dies_after:
                raise Died
            if number == self.waits_after:
                self.waiting.set()
                assert self.go.wait(60)


@contextmanager
def begun(orders: Deliveries) -> Iterator[tuple[PostgresSink, Slice]]:
    """A sink with the next slice at hand."""
    content = content_of(SCHEMA)
    upto = Mark.of({"key": [str(orders.last.number + 1 if orders.last else 1)]})
    slice_ = following(orders.last, pipeline=orders.pipeline, stream=STREAM, upto=upto, content=content)
    info = StreamInfo(STREAM, Kind.ROWS)
    with closing(orders.sink) as sink:
        sink.begin_run([info])
        sink.check(info, content)
        yield sink, slice_


def left(orders: Deliveries) -> int:
    ((count,),) = orders.rows(r"SELECT count(*) FROM pg_class WHERE relname LIKE 's\_%' AND relkind = 'r'")
    return int(count)


def exactly(orders: Deliveries, parts: int) -> bool:
    """Whether each row of the parts is there, once."""
    wanted = [(id_, f"row {id_}") for id_ in range(300 * parts)]
    return orders.rows("SELECT id, text FROM orders ORDER BY id, text") == wanted


@pytest.fixture(params=sorted(MODES))
def orders(request: pytest.FixtureRequest, database: str) -> Deliveries:
    return Deliveries(database, MODES[request.param])


def test_a_part_whose_tries_died(orders: Deliveries) -> None:
    """One in the middle of its COPY, one when all was staged and nobody had its receipt."""
    with begun(orders) as (sink, slice_):
        writer = sink.writer(slice_, "a1")
        with pytest.raises(Died):
            Try(0, dies_after=3).write(writer)
        Try(0).write(writer)
        receipts = [Try(part).write(writer) for part in (0, 1)]
        assert sink.commit(slice_, "a1", receipts) == Outcome(created=600)
    assert exactly(orders, 2)
    assert left(orders) == 0


def test_a_part_that_two_tries_have_done(orders: Deliveries) -> None:
    """Both are whole; the receipts name the one or the other."""
    with begun(orders) as (sink, slice_):
        writer = sink.writer(slice_, "a1")
        tries = [[Try(part).write(writer) for _ in range(2)] for part in (0, 1)]
        assert sink.commit(slice_, "a1", [tries[0][0], tries[1][1]]) == Outcome(created=600)
    assert exactly(orders, 2)
    assert left(orders) == 0


def test_a_try_that_still_writes_when_the_slice_is_committed(orders: Deliveries) -> None:
    """Nobody waits for it: the slice comes in, a sweep passes it over, and the next one finds it ended."""
    slow = Try(0, waits_after=2)
    ended: list[Receipt | PenstockError] = []
    with begun(orders) as (sink, slice_):
        writer = sink.writer(slice_, "a1")

        def goes_on() -> None:
            try:
                ended.append(slow.write(writer))
            except PenstockError as error:
                ended.append(error)

        worker = threading.Thread(target=goes_on)
        worker.start()
        assert slow.waiting.wait(60)
        receipts = [Try(part).write(writer) for part in (0, 1)]
        assert sink.commit(slice_, "a1", receipts) == Outcome(created=600)
        sink.sweep(STREAM, slice_.position)
        assert left(orders) == 1, "it is still written to"
        slow.go.set()
        worker.join(60)
        assert len(ended) == 1
        sink.sweep(STREAM, slice_.position)
    assert exactly(orders, 2)
    assert left(orders) == 0

"""Pipelines that land in one lake, slice by slice, by hand; and the table as a reader sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from penstock.core.marks import Mark, Position
from penstock.core.slices import Kind, Part, Receipt, Slice, following
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.table_state import TableState
from penstock.lake.tables import extract_state, load_table
from penstock.ports import Context, NoProbe, NoSpark, Probe, Spark, is_never_cancelled, report_nothing
from penstock.sinks.lake import LakeSink, Options, StreamOptions, build
from penstock.testing.contracts.delivery import CONTENT

STREAM = "orders"


class At:
    """A probe that does something at every passage, up to a number of times, through a point."""

    def __init__(self, point: str, action: Callable[[], Any], times: int = 1) -> None:
        self.point, self.action, self.left = point, action, times
        self.passed: list[str] = []

    def at(self, point: str, **about: Any) -> None:
        self.passed.append(point)
        if point == self.point and self.left:
            self.left -= 1
            self.action()


def rows(*ids: int, text: str = "row") -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    return pa.table({"id": list(ids), "text": [f"{text} {each}" for each in ids]}, schema=schema)


@dataclass
class Lane:
    """One pipeline's stream into a table; every landing by a sink of its own, as another process would have."""

    folder: Path
    pipeline: str = "shop"
    namespace: str = "n"
    mode: str = "append"
    spark: Spark = field(default_factory=NoSpark)
    attempts: int = 0
    said: list[str] = field(default_factory=list)
    is_cancelled: Callable[[], bool] = is_never_cancelled
    report: Callable[..., None] = report_nothing

    def sink(self, probe: Probe | None = None) -> LakeSink:
        merge = StreamOptions(mode="merge", key=("id",)) if self.mode == "merge" else StreamOptions()
        context = Context(
            self.pipeline,
            str(self.folder),
            probe or NoProbe(),
            self.spark,
            say=self.say,
            report=self.report,
            is_cancelled=self.is_cancelled,
        )
        return build(Options(namespace=self.namespace), {STREAM: merge}, context)

    def say(self, stream: str, text: str) -> None:
        self.said.append(f"{stream}: {text}")

    @property
    def lake(self) -> Lake:
        return self.sink().lake

    @property
    def held(self) -> Position | None:
        held = self.sink().held(STREAM)
        return held.position if held else None

    def next(self, last: Position | None = None, kind: Kind = Kind.ROWS) -> Slice:
        last = last or self.held
        upto = Mark.of({"key": [last.number + 1 if last else 1]})
        return following(last, pipeline=self.pipeline, stream=STREAM, upto=upto, content=CONTENT, kind=kind)

    def aside(self, sink: LakeSink, slice_: Slice, *parts: pa.Table) -> tuple[str, list[Receipt]]:
        self.attempts += 1
        attempt = f"{self.pipeline}{self.attempts}"
        writer = sink.writer(slice_, attempt)
        return attempt, [writer.write(part.to_reader(), Part(index, "{}")) for index, part in enumerate(parts)]

    def deliver(self, *parts: pa.Table, probe: Probe | None = None) -> Slice:
        """The next slice, with a sink of its own."""
        sink, slice_ = self.sink(probe), self.next()
        sink.commit(slice_, *self.aside(sink, slice_, *parts))
        sink.sweep(STREAM, slice_.position)
        return slice_

    # ------------------------------------------------------------ the table

    @property
    def table(self) -> Table:
        table = load_table(self.lake, STREAM)
        assert table is not None
        return table

    @property
    def state(self) -> TableState:
        return extract_state(self.table)

    def table_rows(self) -> list[tuple[int, int, str]]:
        """(number, id, text) of every row, in the order of their numbers."""
        found = self.table.scan().to_arrow().sort_by(names.SEQ)
        numbers, ids, texts = (found.column(name).to_pylist() for name in (names.SEQ, "id", "text"))
        return list(zip(numbers, ids, texts, strict=True))

    def seen(self) -> list[tuple[int, int, str]]:
        """The same; no number is there twice."""
        found = self.table_rows()
        assert len({number for number, _, _ in found}) == len(found)
        return found

    def ids(self) -> list[int]:
        return sorted(each for _, each, _ in self.seen())

    def files(self) -> set[str]:
        return {Path(task.file.file_path).name for task in self.table.scan().plan_files()}


@dataclass
class Poller:
    """A reader that takes everything up to the head, time after time."""

    lane: Lane
    head: int = 0
    got: list[int] = field(default_factory=list)

    def poll(self) -> None:
        state, seen = self.lane.state, self.lane.seen()
        self.got += [id_ for number, id_, _ in seen if self.head < number <= state.head]
        assert state.head >= self.head
        self.head = state.head

    def has(self, ids: Sequence[int]) -> bool:
        """Whether it got each of these, and nothing else, exactly once."""
        self.poll()
        return sorted(self.got) == sorted(ids)

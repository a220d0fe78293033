"""A sink on a real database, and slices delivered to it by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from tests.harness.contents import columns_of as columns_in

from penstock.core.content import Content
from penstock.core.marks import Mark, Position
from penstock.core.outcome import Outcome
from penstock.core.slices import Kind, following
from penstock.ports import Context, NoProbe, Probe, StreamInfo, is_never_cancelled, report_nothing
from penstock.sinks.postgres import Options, PostgresSink, StreamOptions, build
from penstock.sinks.postgres.columns import CHANGE
from penstock.testing.contracts.delivery import stage_parts

STREAM = "orders"


@dataclass
class Deliveries:
    """One stream of one pipeline."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)
    pipeline: str = "shop"
    probe: Probe = field(default_factory=NoProbe)
    #: options of the sink itself
    more: Mapping[str, Any] = field(default_factory=dict)
    last: Position | None = None
    report: Callable[..., None] = report_nothing
    is_cancelled: Callable[[], bool] = is_never_cancelled

    @property
    def sink(self) -> PostgresSink:
        context = Context(self.pipeline, ".", self.probe, report=self.report, is_cancelled=self.is_cancelled)
        streams = {STREAM: StreamOptions.model_validate(dict(self.options))}
        return build(Options.model_validate({"url": self.url, "lock_timeout": 2, **self.more}), streams, context)

    def deliver(self, *parts: pa.Table, kind: Kind = Kind.ROWS, key: Sequence[str] = ()) -> Outcome:
        """One slice of these parts, checked and committed."""
        content = content_of(parts[0].schema)
        info = StreamInfo(STREAM, kind, tuple(key))
        number = self.last.number + 1 if self.last else 1
        slice_ = following(
            self.last,
            pipeline=self.pipeline,
            stream=STREAM,
            upto=Mark.of({"key": [str(number)]}),
            content=content,
            kind=kind,
        )
        with closing(self.sink) as sink:
            sink.begin_run([info])
            sink.check(info, content)
            outcome = sink.commit(slice_, "a1", stage_parts(sink, slice_, *parts))
            held = sink.held(STREAM)
        assert held is not None
        assert (held.position, held.outcome) == (slice_.position, outcome)
        self.last = slice_.position
        return outcome

    def rows(self, query: str = "SELECT * FROM orders ORDER BY 1") -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as db:
            return db.execute(query.encode()).fetchall()

    def run(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(statement.encode())


def content_of(schema: pa.Schema) -> Content:
    """As the lake's source says it: the column that tells deletes from others is not listed."""
    columns = tuple(column for column in columns_in(schema) if column.name != CHANGE)
    return Content(columns, changes=CHANGE in schema.names)

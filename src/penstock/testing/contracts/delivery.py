"""By hand what the engine does with a Sink, and a Sink's destination with a reader's eyes: tools of its contract."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from penstock.core.content import Column, Content
from penstock.core.marks import Mark, Position
from penstock.core.slices import Part, Receipt, Slice, following
from penstock.core.types import Plain
from penstock.ports import Probe, Sink

if TYPE_CHECKING:
    import pyarrow as pa

PIPELINE, STREAM = "contract", "orders"
CONTENT = Content((Column("id", Plain.INT64), Column("text", Plain.STRING)))
#: the same of a source that sees deletes
CHANGES = replace(CONTENT, changes=True)
#: a row of the source has a key of its own, `row`; rows that share an `id` follow each other by `at`
VERSIONS = Content(tuple(Column(name, Plain.INT64) for name in ("row", "id", "at")))


class Destination(Protocol):
    """Where the rows of a sink under test go, seen with a reader's eyes."""

    def open(self, probe: Probe, pipeline: str = PIPELINE) -> Sink:
        """Another sink on the same place, built from the same configuration."""
        ...

    def rows(self, stream: str, column: str = "id") -> list[int]:
        """The ids, or another column, that readers of a stream see now, each as often as they see it."""
        ...

    def occupy(self, stream: str, *ids: int) -> None:
        """Put rows of others there, by another tool, before the stream's first slice."""
        ...

    def count_leftovers(self) -> int:
        """How much lies there that readers do not see and that no slice needs: leftovers, in whatever unit."""
        ...

    def damage(self, stream: str) -> None:
        """Take away something that the stream's last slice needs."""
        ...


class Crash(BaseException):
    """The process dies at a probe point; no handler for errors may catch it."""


@dataclass
class Crashing:
    """A probe that remembers its points and, at the n-th, crashes or lets something else happen."""

    at_call: int | None = None
    points: list[str] = field(default_factory=list)
    action: Callable[[], None] | None = None

    def at(self, point: str, **about: Any) -> None:
        self.points.append(point)
        if self.at_call == len(self.points) - 1:
            if self.action is None:
                raise Crash(point)
            self.action()


def table(*ids: int) -> pa.Table:
    import pyarrow as pa

    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    return pa.table({"id": list(ids), "text": [f"row {each}" for each in ids]}, schema=schema)


def changes(*rows: tuple[int, str]) -> pa.Table:
    """Ids, each with what happened to its row; a delete has nothing but its key."""
    ids, said = [id_ for id_, _ in rows], [change for _, change in rows]
    texts = [None if change == "delete" else f"row {id_}" for id_, change in rows]
    return table(*ids).set_column(1, "text", [texts]).append_column("_change", [said])


def versions(*rows: tuple[int, int, int]) -> pa.Table:
    """(row, id, at) of each."""
    import pyarrow as pa

    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(column, pa.int64()) for column in columns], names=["row", "id", "at"])


def after(last: Position | None, *, stream: str = STREAM, pipeline: str = PIPELINE, **more: Any) -> Slice:
    """The slice that comes after `last`; by default one with rows."""
    number = last.number + 1 if last else 1
    upto = more.pop("upto", Mark.of({"key": [str(number)]}))
    content = more.pop("content", CONTENT)
    return following(last, pipeline=pipeline, stream=stream, upto=upto, content=content, **more)


def stage_parts(sink: Sink, slice_: Slice, *parts: pa.Table, attempt: str = "a1", first_part: int = 0) -> list[Receipt]:
    """Write tables as the parts of a slice, through a pickled writer as a worker would."""
    writer = pickle.loads(pickle.dumps(sink.writer(slice_, attempt)))
    return [
        writer.write(part.to_reader(max_chunksize=2), Part(index, "{}")) for index, part in enumerate(parts, first_part)
    ]


def deliver(sink: Sink, slice_: Slice, *parts: pa.Table, attempt: str = "a1") -> Position:
    """Stage a slice and commit it."""
    sink.commit(slice_, attempt, stage_parts(sink, slice_, *parts, attempt=attempt))
    return slice_.position


def position(sink: Sink, stream: str = STREAM) -> Position | None:
    held = sink.held(stream)
    return held.position if held else None

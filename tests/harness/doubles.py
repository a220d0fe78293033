"""Stand-ins for the engine's own tests: a source in memory, a mover that is a plain loop, a clock set by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.core.content import Column, Content
from penstock.core.documents import Document, canonical, parse
from penstock.core.marks import Mark, Position
from penstock.core.slices import Kind, Part, Receipt, Slice
from penstock.core.types import Plain
from penstock.errors import PenstockError, StreamFailed, StreamRefused
from penstock.links.pipe import carry
from penstock.ports import Budget, DiscoveredStream, Planned, Reader, Reading, Remaining, Remark, StreamInfo, Writer

if TYPE_CHECKING:
    import pyarrow as pa


#: the first line of a program that imports `tests` and runs in any folder
FIND_TESTS = f"import sys; sys.path.append({str(Path(__file__).parents[2])!r})\n"

_COLUMNS = ("place", "key", "version")


@dataclass
class Clock:
    """Time that moves only when told."""

    moment: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self.moment += timedelta(microseconds=1)
        return self.moment

    def elapsed(self) -> float:
        return self.moment.timestamp()


class LoopMover:
    """Moves parts one after the other, in this process."""

    workers = 1

    def __init__(self) -> None:
        self.cancelled = False

    def begin(self) -> None:
        return None

    def warm(self) -> None:
        return None

    def move(self, reader: Reader, writer: Writer, parts: Sequence[Part]) -> Sequence[Receipt]:
        receipts = []
        for part in parts:
            if self.cancelled:
                raise StreamFailed("the move was cancelled on request", next_step="run again")
            try:
                receipts.append(carry(reader, writer, part))
            except PenstockError:
                raise
            except Exception as error:
                first = (str(error).splitlines() or [""])[0]
                raise StreamFailed(
                    f"a part could not be moved: {type(error).__name__}: {first}", next_step="run again"
                ) from error
        return receipts

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        return None


@dataclass
class Rows:
    """A log of rows: a row has a place, and an updated row leaves its place and takes a new one at the end."""

    #: place -> (key, version); a vacated place is absent
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    arrived: int = 0

    def arrive(self, key: int, version: int = 0) -> None:
        self.arrived += 1
        self.places[self.arrived] = (key, version)

    def update(self, place: int) -> None:
        key, version = self.places.pop(place)
        self.arrive(key, version + 1)

    def between(self, after: int, upto: int) -> list[tuple[int, int, int]]:
        return [(p, *self.places[p]) for p in range(after + 1, upto + 1) if p in self.places]


@dataclass(frozen=True)
class _MemoryReader:
    rows: Rows

    def open(self, part: Part) -> pa.RecordBatchReader:
        terms = parse(part.terms)
        return batches_of(self.rows.between(terms["after"], terms["upto"]))


def batches_of(rows: Sequence[Sequence[int]]) -> pa.RecordBatchReader:
    """Rows of place, key and version as Arrow batches."""
    import pyarrow as pa

    schema = pa.schema([(name, pa.int64()) for name in _COLUMNS])
    columns = [pa.array([row[i] for row in rows], pa.int64()) for i in range(len(_COLUMNS))]
    return pa.RecordBatchReader.from_batches(schema, [pa.RecordBatch.from_arrays(columns, schema=schema)])


class MemorySource:
    """Streams of numbered rows in memory, read at most `most` places a slice, cut into parts of one place each."""

    def __init__(self, streams: dict[str, Rows], most: int = 2, identity: str = "here") -> None:
        self.streams, self.most, self.identity = streams, most, identity
        #: the stream and the mark of every `prepare`
        self.prepared: list[tuple[str, Mark | None]] = []
        #: the same of every `advanced`, with the slice's number
        self.released: list[tuple[str, int, Mark | None]] = []

    def connect(self) -> None:
        return None

    def catalog(self) -> Sequence[StreamInfo]:
        return [StreamInfo(name, Kind.ROWS, ("key",), ("place",)) for name in self.streams]

    def discover(self) -> Sequence[DiscoveredStream]:
        columns = tuple((name, "int64") for name in _COLUMNS)
        reasons = ("rows are numbered in the order in which they arrive",)
        return [
            DiscoveredStream(name, "list", columns, ("key",), rows.arrived, reasons=reasons)
            for name, rows in self.streams.items()
        ]

    def content(self, stream: str) -> Content:
        columns = tuple(Column(name, Plain.INT64) for name in _COLUMNS)
        return Content(columns, identity={"source": self.identity})

    def accept(self, stream: str, last: Position, content: Content) -> None:
        if last.mark is not None and "place" not in last.mark.document:
            raise StreamRefused("another mark", next_step="use the source that made the mark", stream=stream)
        if Content.parse(last.content).identity != content.identity:
            raise StreamRefused("another source", next_step="use the source the mark was made from", stream=stream)

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        self.prepared.append((stream, last.mark if last else None))
        return ()

    def advanced(self, stream: str, position: Position) -> None:
        self.released.append((stream, position.number, position.mark))

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        return {"place": self.streams[stream].arrived} if self.streams[stream].arrived else None

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        at, top = _place(after), ceiling["place"]
        assert isinstance(top, int)
        fitting = int(budget.bytes / budget.row_bytes) or 1 if budget.row_bytes else self.most
        upto = min(top, at + self.most, at + fitting, at + (budget.rows if budget.rows is not None else self.most))
        return Planned(Mark.of({"place": upto}), rows=upto - at, exact=True) if upto > at else None

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        top = ceiling["place"]
        assert isinstance(top, int)
        return Remaining(top - _place(after), exact=True)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        return [Remark("guarantee", "every place is read once, in order")]

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        after, upto = _place(slice_.after), _place(slice_.upto)
        parts = [
            Part(index, canonical({"after": place, "upto": place + 1}))
            for index, place in enumerate(range(after, upto))
        ]
        yield Reading(_MemoryReader(self.streams[slice_.stream]), parts)

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        at = _place(last.mark if last else None)
        if not (to.isascii() and to.isdigit()):
            raise StreamRefused(f"{to!r} is not a place", next_step=f"give a number from 0 to {at}", stream=stream)
        if int(to) > at:
            raise StreamRefused(
                f"cannot rewind forward: place {to} comes after place {at}",
                next_step=f"give a number from 0 to {at}",
                stream=stream,
            )
        return Mark.of({"place": int(to)}) if int(to) else None

    def describe(self, mark: Mark | None) -> str:
        return f"place {_place(mark)}"

    def close(self) -> None:
        return None


def _place(mark: Mark | None) -> int:
    place: Any = mark.document["place"] if mark else 0
    return int(place)

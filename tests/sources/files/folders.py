"""A folder with files of orders as an origin of rows, and sources on it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyarrow import csv, orc, parquet

from penstock.core.marks import Mark, Position
from penstock.links.spools import FolderSpools
from penstock.ports import Budget, Context, NoProbe, find_mark, no_position
from penstock.sources import files
from penstock.sources.files import FilesSource
from penstock.testing.contracts.source import MANY_PARTS, PIPELINE, Origin, next_slice, read

#: rows of one file
ROWS = 4
COLUMNS = {"id": "int64", "note": "string"}


def table(ids: Sequence[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "note": pa.array([f"note {id_}" for id_ in ids], pa.string())})


def write(path: Path, rows: pa.Table, *, time: int | None = None) -> None:
    """A file of the format that its name says; it has its name only when it is whole. `time` orders files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    if path.suffix == ".parquet":
        parquet.write_table(rows, hidden, row_group_size=50)
    elif path.suffix == ".orc":
        orc.write_table(rows, hidden)
    elif path.suffix == ".csv":
        csv.write_csv(rows, hidden)
    elif path.suffix == ".json":
        hidden.write_text(json.dumps(rows.to_pylist()))
    else:
        hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()))
    if time is not None:
        os.utime(hidden, ns=(0, 1_700_000_000_000_000_000 + time))
    hidden.rename(path)


def make_source(
    folder: Path,
    streams: Mapping[str, Mapping[str, Any]],
    *,
    settle: int = 0,
    said: list[str] | None = None,
    last_position: Callable[[str], Position | None] = no_position,
    directory: str = "in",
) -> FilesSource:
    """A source on a folder; `said` gets what it prints."""
    lines: list[str] = [] if said is None else said
    context = Context(
        PIPELINE,
        str(folder),
        NoProbe(),
        spools=FolderSpools(str(folder / "spools"), PIPELINE),
        say=lambda _, text: lines.append(text),
        warn=lambda _, text: lines.append(f"warning: {text}"),
        last_position=last_position,
    )
    options = files.Options.model_validate({"directory": directory, "settle": settle})
    return files.build(options, {n: files.StreamOptions.model_validate(o) for n, o in streams.items()}, context)


class Orders:
    """Orders in files of a few rows each, whose ids grow."""

    stream = "orders"

    def __init__(self, folder: Path, format_: str = "parquet", **options: Any) -> None:
        self.folder, self.format = folder, format_
        self.options: dict[str, Any] = {"path": f"orders/*.{format_}", **options}
        self._ids: list[int] = []
        self._files = 0
        (folder / "in" / "orders").mkdir(parents=True)

    @property
    def spools(self) -> FolderSpools:
        return FolderSpools(str(self.folder / "spools"), PIPELINE)

    def open(self) -> FilesSource:
        return self.open_with(self.stream, self.options)

    def open_with(self, stream: str, options: Mapping[str, Any]) -> FilesSource:
        return make_source(self.folder, {stream: options})

    def arrive(self, count: int) -> None:
        first = len(self._ids) + 1
        ids = list(range(first, first + count))
        self._ids += ids
        # Some files are large, so that they are cut.
        size = ROWS if count < 2000 else count // 3
        for at in range(0, count, size):
            self._files += 1
            path = self.folder / "in" / "orders" / f"{self._files:06}.{self.format}"
            write(path, table(ids[at : at + size]), time=self._files)

    def rows(self) -> Sequence[Hashable]:
        return [(number, f"note {number}") for number in self._ids]

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        return [(row["id"], row["note"]) for row in batch.to_pylist()]

    def traces(self) -> Hashable:
        return tuple(sorted((str(path), path.stat().st_mtime_ns) for path in self.folder.rglob("*") if path.is_file()))


class Inbox:
    """A folder of which a stream is read, run by run, as the engine would."""

    stream = "orders"

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.options = folder, options
        self.directory = "in"
        self.others: dict[str, Mapping[str, Any]] = {}
        #: where the stream is
        self.last: Position | None = None
        self.many_parts = False
        #: whether an open slice is checked before it is read
        self.checks_open_slices = False
        #: of the last slice
        self.parts = 0
        #: called between a slice's plan and its reading; and after the first batch of each part
        self.before_reading: Callable[[], object] | None = None
        self.while_reading: Callable[[], object] | None = None
        self._said: list[str] = []
        self._read: list[dict[str, Any]] = []
        self.place.mkdir(parents=True, exist_ok=True)

    @property
    def place(self) -> Path:
        return self.folder / "in"

    @property
    def spools(self) -> FolderSpools:
        return FolderSpools(str(self.folder / "spools"), PIPELINE)

    def put(self, name: str, text: str | bytes, *, time: int | None = None) -> None:
        """A file that has its name once it is whole."""
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = self.folder / "being-written"
        hidden.write_bytes(text.encode() if isinstance(text, str) else text)
        if time is not None:
            os.utime(hidden, ns=(0, (1_700_000_000 + time) * 10**9))
        hidden.rename(path)

    def told(self) -> list[str]:
        """What was printed since the last time, without repetitions."""
        said, self._said = [line.replace(str(self.place), "IN") for line in self._said], []
        return list(dict.fromkeys(said))

    def open(self, settle: int = 0) -> FilesSource:
        return make_source(
            self.folder,
            {self.stream: self.options, **self.others},
            settle=settle,
            said=self._said,
            last_position=lambda _: self.last,
            directory=self.directory,
        )

    def run(self, settle: int = 0) -> list[dict[str, Any]]:
        """Deliver what is new; the rows."""
        source, origin = self.open(settle), cast(Origin, self)  # what a run asks for
        source.connect()
        rows: list[dict[str, Any]] = []
        budget = MANY_PARTS if self.many_parts else Budget(64 << 20, workers=2)
        content = source.content(self.stream)
        if self.last is not None:
            source.accept(self.stream, self.last, content)
        ceiling = source.ceiling(self.stream, content, "run", self.last.mark if self.last else None)
        while ceiling is not None:
            slice_ = next_slice(source, origin, self.last, content=content, ceiling=ceiling, budget=budget)
            if slice_ is None:
                break
            if self.before_reading:
                self.before_reading()
            if self.checks_open_slices:
                source.check_open_slice(slice_)
            self._read = []
            self.parts = len(read(source, origin, slice_).parts)
            rows += self._read
            self.last = slice_.position
            content = source.content(self.stream)
        return rows

    def rewind(self, to: str) -> Mark | None:
        source = self.open()
        content = source.content(self.stream)
        mark = find_mark(source, self.stream, content, self.last, to)
        assert self.last is not None
        self.last = replace(self.last, mark=mark, number=self.last.number + 1, id=f"rewound {self.last.number}")
        return mark

    def tell(self, batch: pa.RecordBatch) -> Sequence[Hashable]:
        self._read += batch.to_pylist()
        if self.while_reading:
            self.while_reading()
        return []

"""A folder with a files sink on it, and what lies there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.core.slices import Part, Receipt, Slice
from penstock.ports import Context, NoProbe, Probe
from penstock.sinks.files import FilesSink, Options, StreamOptions, build
from penstock.testing.contracts.delivery import PIPELINE, STREAM, after


def open_sink(
    folder: Path,
    *,
    streams: Mapping[str, Mapping[str, Any]] | None = None,
    pipeline: str = PIPELINE,
    probe: Probe | None = None,
    **options: Any,
) -> FilesSink:
    """A sink as a pipeline file would build it, into `folder`/out."""
    said = {name: StreamOptions.model_validate(stream) for name, stream in (streams or {}).items()}
    context = Context(pipeline=pipeline, folder=str(folder), probe=probe or NoProbe())
    return build(Options.model_validate({"directory": "out", **options}), said, context)


def write(sink: FilesSink, slice_: Slice, batches: Sequence[pa.RecordBatch], attempt: str = "a1") -> Receipt:
    """Put batches aside as one part."""

    def given() -> Iterator[pa.RecordBatch]:
        yield from batches

    reader = pa.RecordBatchReader.from_batches(batches[0].schema, given())
    return sink.writer(slice_, attempt).write(reader, Part(0, "{}"))


def deliver(sink: FilesSink, *tables: pa.Table, stream: str = STREAM) -> None:
    """One slice with a part for each table."""
    held = sink.held(stream)
    slice_ = after(held.position if held else None, stream=stream)
    writer = sink.writer(slice_, "a1")
    sink.commit(slice_, "a1", [writer.write(t.to_reader(), Part(i, "{}")) for i, t in enumerate(tables)])


def tree(folder: Path) -> list[str]:
    """Every file and link below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())


def data_files(folder: Path, stream: str = STREAM) -> list[Path]:
    """The files that readers of a stream see, in the order they were written."""
    found = [path for path in (folder / "out" / stream).rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: (path.name[:8], int(path.name.split(".")[0].rpartition("-")[2])))


def only_file(folder: Path) -> Path:
    (found,) = data_files(folder)
    return found

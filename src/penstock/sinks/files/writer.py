"""Inside a worker: write the rows of one part into files that nobody sees yet."""

from __future__ import annotations

import errno
import hashlib
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.core.documents import canonical, digest
from penstock.core.slices import Part, Receipt
from penstock.errors import StreamFailed
from penstock.links.durable import sync
from penstock.ports import Probe
from penstock.sinks.files.manifest import SliceFile
from penstock.sinks.files.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sinks.files.formats import Encoder

#: Arrow bytes that wait for their row groups, over all open files of a part
MAX_WAITING_BYTES = 32 << 20
#: files of one part that are open at the same time; a further one closes the one that was opened first
MAX_OPEN_FILES = 32


@dataclass(frozen=True)
class FilesWriter:
    """Stages parts. Small and picklable."""

    root: str
    #: folder of this attempt, relative to the root
    staged: str
    #: folder in which the files will become visible
    final: str
    #: the slice's number, with which every file name begins
    number: int
    attempt: str
    options: Options
    partition: Sequence[str]
    probe: Probe

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        # Another attempt at this part, even one that still runs, has another name.
        name = f"{self.attempt}{uuid.uuid4().hex[:8]}"
        staged = _StagedFiles(self, f"{name}-{part.index:03d}")
        rows = size = 0
        try:
            schema = batches.schema
            split = self._splitter(schema)
            for batch in batches:  # outside, because an error of the source is not an error of the disk
                rows += batch.num_rows
                size += batch.nbytes
                with translate_errors(self.root):
                    for folder, piece in split(batch) if batch.num_rows else ():
                        staged.add(folder, piece)
            with translate_errors(self.root):
                files = staged.finish()
        except BaseException:
            staged.discard()  # no receipt names these files
            raise
        self.probe.at("files.part_written", part=part.index)
        text = schema.remove_metadata().to_string()
        return Receipt(
            part=part.index,
            attempt=name,
            read=rows,
            rows=sum(file.rows for file in files),
            bytes=size,
            schema=digest(text),
            pieces=canonical({"files": [asdict(file) for file in files], "schema": text}),
        )

    def _splitter(self, schema: pa.Schema):  # type: ignore[no-untyped-def]  # pyarrow has no types of its own
        if not self.partition:
            return lambda batch: [("", batch)]
        from penstock.sinks.files.partitions import make_folder_splitter

        return make_folder_splitter(schema, self.partition)


class _StagedFiles:
    """The files of one part."""

    def __init__(self, writer: FilesWriter, name: str) -> None:
        from penstock.sinks.files import formats

        self.writer = writer
        self.name = name
        self.formats = formats
        self.waiting: dict[str, list[pa.RecordBatch]] = {}
        self.bytes: dict[str, int] = {}
        self.open: dict[str, tuple[str, Encoder]] = {}
        #: the paths of all files, and those that are complete
        self.paths: list[str] = []
        self.complete: list[SliceFile] = []

    def add(self, folder: str, batch: pa.RecordBatch) -> None:
        self.waiting.setdefault(folder, []).append(batch)
        self.bytes[folder] = self.bytes.get(folder, 0) + batch.nbytes
        if self.bytes[folder] >= self.writer.options.target_file_size:
            self.flush(folder)
        while sum(self.bytes.values()) >= MAX_WAITING_BYTES:
            self.flush(max(self.bytes, key=lambda f: self.bytes[f]))

    def flush(self, folder: str) -> None:
        """Write the rows that wait for one folder; close its file once it is large enough."""
        batches = self.waiting.pop(folder, [])
        self.bytes.pop(folder, None)
        if not batches:
            return
        if folder not in self.open:
            if len(self.open) >= MAX_OPEN_FILES:
                self.close(next(iter(self.open)))
            self.open[folder] = self._open(batches[0].schema)
        self.open[folder][1].write(batches)
        if self.open[folder][1].size() >= self.writer.options.target_file_size:
            self.close(folder)

    def _open(self, schema: pa.Schema) -> tuple[str, Encoder]:
        options = self.writer.options
        suffix = self.formats.choose_suffix(options)
        name = f"{self.writer.number:08d}-{self.name}-{len(self.paths)}{suffix}"
        path = os.path.join(self.writer.root, self.writer.staged, name)
        self.paths.append(path)
        return name, self.formats.open_encoder(path, schema, options)

    def close(self, folder: str) -> None:
        name, encoder = self.open.pop(folder)
        rows = encoder.close()
        staged = os.path.join(self.writer.staged, name)
        with open(os.path.join(self.writer.root, staged), "rb") as file:
            os.fsync(file.fileno())
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        final = os.path.join(self.writer.final, folder, name)
        self.complete.append(SliceFile(name=final, staged=staged, rows=rows, bytes=size, sha256=checksum))

    def finish(self) -> list[SliceFile]:
        for folder in list(self.waiting):
            self.flush(folder)
        for folder in list(self.open):
            self.close(folder)
        if self.paths:
            sync(os.path.join(self.writer.root, self.writer.staged))
        return self.complete

    def discard(self) -> None:
        for _, encoder in self.open.values():
            encoder.abandon()
        for path in self.paths:
            if os.path.exists(path):
                os.unlink(path)


@contextmanager
def translate_errors(root: str) -> Iterator[None]:
    """Raise errors of the operating system as StreamFailed, with a next step."""
    try:
        yield
    except OSError as error:
        raise _explain(root, error) from error


def _explain(root: str, error: OSError) -> StreamFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
        return StreamFailed(
            f"no space left for {root}",
            next_step="free some space and run again; the slice is moved again from its start",
            safe="Nothing was lost: the mark has not moved, and incomplete files are not visible.",
        )
    if error.errno == errno.EXDEV:
        return StreamFailed(
            f"{error.filename2 or error.filename or root} is on another file system than the folder in which files are "
            "staged: a file cannot be renamed into it",
            next_step=f"make everything below {root} one file system again, then run again to make the files visible",
            safe="Nothing was lost: the files are staged, and the next run makes them visible.",
        )
    return StreamFailed(
        f"cannot write to {root}: {error.strerror or error}",
        next_step="check that the folder exists and that this user may write in it, then run again",
    )

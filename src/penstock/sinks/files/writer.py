"""Inside a worker: one part's rows into files that nobody sees yet."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.core.documents import canonical, digest
from penstock.core.slices import Part, Receipt
from penstock.ports import Probe
from penstock.sinks.files.failures import failed_write
from penstock.sinks.files.manifest import Named, sync_folder
from penstock.sinks.files.options import Options, PartitionBy

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sinks.files.formats import Encoder

#: Arrow bytes that are gathered before they become a row group, over all open files of a part
GATHER = 32 << 20
#: files of one part that are open at the same time; partitions beyond it close the one that waited longest
OPEN_FILES = 32


@dataclass(frozen=True)
class FilesWriter:
    """Puts parts aside. Small and picklable."""

    pipeline: str
    stream: str
    root: str
    #: folder of this attempt, relative to the root
    staged: str
    #: folder in which the files will become visible
    final: str
    #: beginning of every file name: number and range
    stem: str
    attempt: str
    options: Options
    partition: PartitionBy | None
    probe: Probe

    def write(self, batches: pa.RecordBatchReader, part: Part) -> Receipt:
        # Another try at this part, even one that still runs, has another name.
        name = f"{self.attempt}{uuid.uuid4().hex[:8]}"
        aside = _Aside(self, f"{name}-{part.index:03d}")
        rows = size = 0
        try:
            schema = batches.schema
            split = self._splitter(schema)
            for batch in batches:  # outside `writing`: what the source cannot give is not what the disk refuses
                rows += batch.num_rows
                size += batch.nbytes
                with self._writing():
                    for folder, piece in split(batch) if batch.num_rows else ():
                        aside.add(folder, piece)
            with self._writing():
                files = aside.finish()
        except BaseException:
            aside.discard()  # under a name of its own, in no receipt: nobody can miss it
            raise
        self.probe.at("files.part_written", part=part.index)
        text = schema.remove_metadata().to_string()
        return Receipt(
            part=part.index,
            attempt=name,
            read=rows,
            rows=sum(named.rows for named in files),
            bytes=size,
            schema=digest(text),
            pieces=canonical({"files": [asdict(named) for named in files], "schema": text}),
        )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise failed_write(self.pipeline, self.stream, self.root, error) from error

    def _splitter(self, schema: pa.Schema):  # type: ignore[no-untyped-def]  # pyarrow has no types of its own
        if self.partition is None:
            return lambda batch: [("", batch)]
        from penstock.sinks.files.partitions import splitter

        return splitter(schema, self.partition, pipeline=self.pipeline, stream=self.stream)


class _Aside:
    """The files of one part that are being written."""

    def __init__(self, writer: FilesWriter, name: str) -> None:
        from penstock.sinks.files import formats

        self.writer = writer
        self.name = name
        self.formats = formats
        self.waiting: dict[str, list[pa.RecordBatch]] = {}
        self.bytes: dict[str, int] = {}
        self.open: dict[str, tuple[str, Encoder]] = {}
        self.made: list[str] = []
        self.done: list[Named] = []

    def add(self, folder: str, batch: pa.RecordBatch) -> None:
        self.waiting.setdefault(folder, []).append(batch)
        self.bytes[folder] = self.bytes.get(folder, 0) + batch.nbytes
        if self.bytes[folder] >= self.writer.options.target_file_size:
            self.flush(folder)
        while sum(self.bytes.values()) >= GATHER:
            self.flush(max(self.bytes, key=lambda f: self.bytes[f]))

    def flush(self, folder: str) -> None:
        """Write what waits for one folder; close its file once it is large enough."""
        batches = self.waiting.pop(folder, [])
        self.bytes.pop(folder, None)
        if not batches:
            return
        if folder not in self.open:
            if len(self.open) >= OPEN_FILES:
                self.close(next(iter(self.open)))
            self.open[folder] = self.begin(batches[0].schema)
        self.open[folder][1].write(batches)
        if self.open[folder][1].size() >= self.writer.options.target_file_size:
            self.close(folder)

    def begin(self, schema: pa.Schema) -> tuple[str, Encoder]:
        options = self.writer.options
        suffix = self.formats.suffix(options)
        name = f"{self.writer.stem}-{self.name}-{len(self.made)}{suffix}"
        path = os.path.join(self.writer.root, self.writer.staged, name)
        self.made.append(path)
        return name, self.formats.encoder(path, schema, options)

    def close(self, folder: str) -> None:
        name, encoder = self.open.pop(folder)
        rows = encoder.close()
        staged = os.path.join(self.writer.staged, name)
        with open(os.path.join(self.writer.root, staged), "rb") as file:
            os.fsync(file.fileno())
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        final = os.path.join(self.writer.final, folder, name)
        self.done.append(Named(name=final, staged=staged, rows=rows, bytes=size, sha256=checksum))

    def finish(self) -> list[Named]:
        for folder in list(self.waiting):
            self.flush(folder)
        for folder in list(self.open):
            self.close(folder)
        if self.made:
            sync_folder(os.path.join(self.writer.root, self.writer.staged))
        return self.done

    def discard(self) -> None:
        for _, encoder in self.open.values():
            encoder.abandon()
        for path in self.made:
            if os.path.exists(path):
                os.unlink(path)

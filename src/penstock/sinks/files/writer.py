"""Inside a worker: write the rows of one part into files that nobody sees yet."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.documents import canonical, digest
from penstock.core.slices import Part, Receipt
from penstock.ports import Probe
from penstock.sinks.files.folder import Folder, StagedFile
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

    folder: Folder
    #: where this attempt stages its files
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
                with self.folder.translate_errors():
                    for folder, piece in split(batch) if batch.num_rows else ():
                        staged.add(folder, piece)
            with self.folder.translate_errors():
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
            pieces=canonical({"files": [file.document() for file in files], "schema": text}),
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
        self.open: dict[str, tuple[str, StagedFile, Encoder]] = {}
        #: all files, and those that are complete
        self.staged: list[StagedFile] = []
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
            self.open[folder] = self._open(folder, batches[0].schema)
        self.open[folder][2].write(batches)
        if self.open[folder][2].size() >= self.writer.options.target_file_size:
            self.close(folder)

    def _open(self, folder: str, schema: pa.Schema) -> tuple[str, StagedFile, Encoder]:
        writer = self.writer
        suffix = self.formats.choose_suffix(writer.options)
        name = f"{writer.number:08d}-{self.name}-{len(self.staged)}{suffix}"
        final = "/".join(filter(None, (writer.final, folder, name)))
        staged = writer.folder.stage(writer.staged, final)
        self.staged.append(staged)
        return final, staged, self.formats.open_encoder(staged.stream, schema, writer.options)

    def close(self, folder: str) -> None:
        final, file, encoder = self.open.pop(folder)
        rows = encoder.close()
        done = file.finish()
        self.complete.append(SliceFile(final, done.staged, rows, done.bytes, done.sha256, done.etags))

    def finish(self) -> list[SliceFile]:
        for folder in list(self.waiting):
            self.flush(folder)
        for folder in list(self.open):
            self.close(folder)
        return self.complete

    def discard(self) -> None:
        for _, _, encoder in self.open.values():
            encoder.abandon()
        for staged in self.staged:
            staged.discard()

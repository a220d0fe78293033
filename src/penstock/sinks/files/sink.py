"""The files sink: stage files, commit them by a manifest, make them visible, sweep, recover."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from penstock.core.content import Content
from penstock.core.marks import Position
from penstock.core.slices import Kind, Receipt, Slice
from penstock.errors import CommitUnclear, InputError, PenstockError, SliceRefused, refuse_all
from penstock.ports import Held, Probe, Remark, StreamInfo
from penstock.sinks.files.chain import Chain
from penstock.sinks.files.check import find_problems
from penstock.sinks.files.folder import Folder, NotStaged
from penstock.sinks.files.layout import Layout
from penstock.sinks.files.manifest import Manifest, SliceFile
from penstock.sinks.files.options import Options, StreamOptions
from penstock.sinks.files.writer import FilesWriter


class FilesSink:
    """Slices as files in a local folder or in a bucket."""

    def __init__(
        self, pipeline: str, folder: Folder, options: Options, streams: Mapping[str, StreamOptions], probe: Probe
    ) -> None:
        self.pipeline = pipeline
        self.folder = folder
        self.options = options
        self.streams = streams
        self.probe = probe

    def chain(self, stream: str) -> Chain:
        return Chain(self.folder, Layout(self.pipeline, stream), self.probe)

    @property
    def root(self) -> str:
        """The output folder as messages name it."""
        return self.folder.place

    def connect(self) -> None:
        if conflict := self.options.find_conflict():
            raise InputError(conflict[0], next_step=conflict[1], pipeline=self.pipeline)
        try:
            with self.folder.translate_errors():
                self.folder.connect()
        except PenstockError as error:
            error.at(pipeline=self.pipeline)
            raise

    def begin_run(self, streams: Sequence[StreamInfo]) -> Mapping[str, Collection[str]]:
        return {}

    def check(self, stream: StreamInfo, content: Content) -> None:
        # Before a slice is planned, since an open slice keeps its columns.
        layout, format_ = Layout(self.pipeline, stream.name), self.options.format
        with self._naming(stream.name):
            refuse_all(find_problems(self.folder, layout, stream, content, format_, self._partition(stream.name)))

    def explain(self, stream: StreamInfo, content: Content) -> Sequence[Remark]:
        from penstock.shaping.sink_remarks import explain_strings
        from penstock.sinks.files.explain import explain_stream

        with self._naming(stream.name):
            remarks = explain_stream(self.folder, self.options.format, Layout(self.pipeline, stream.name), stream)
        return [*remarks, *explain_strings(content)]

    def held(self, stream: str) -> Held | None:
        with self._naming(stream):
            manifest = self.chain(stream).last()
        return Held(manifest.slice.position, manifest.rows, manifest.arrow_bytes) if manifest else None

    # ------------------------------------------------------------ one slice

    def writer(self, slice_: Slice, attempt: str) -> FilesWriter:
        layout = Layout(self.pipeline, slice_.stream)
        with self._naming(slice_.stream):
            staged = self.folder.prepare(layout, slice_.number, attempt)
        return FilesWriter(
            folder=self.folder,
            staged=staged,
            final=layout.final(slice_, attempt),
            number=slice_.number,
            attempt=self.folder.name_attempt(self.pipeline, attempt),
            options=self.options,
            partition=self._partition(slice_.stream),
            probe=self.probe,
        )

    def _partition(self, stream: str) -> Sequence[str]:
        options = self.streams.get(stream)
        return options.partition_by if options else ()

    def commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> None:
        with self._naming(slice_.stream):
            self._commit(slice_, attempt, receipts)
        self.probe.at("files.all_visible", number=slice_.number)

    def _commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> None:
        chain = self.chain(slice_.stream)
        pieces = [json.loads(receipt.pieces) for receipt in receipts]
        files = tuple(SliceFile.read(file) for piece in pieces for file in piece["files"])
        self._check_staged(chain, slice_, receipts, files)
        held = chain.last()
        if (held.slice.id if held else "") != slice_.previous:
            raise _unclear(slice_, "the folder does not have the previous slice")
        self.folder.check_targets(chain.layout, {file.name.rpartition("/")[0] for file in files})
        manifest = Manifest(
            slice=slice_,
            attempt=attempt,
            rows=sum(receipt.rows for receipt in receipts),
            arrow_bytes=sum(receipt.bytes for receipt in receipts),
            schema=pieces[0]["schema"] if pieces else "",
            files=files,
            link=self._stage_current(chain, slice_, attempt),
        )
        self._create(chain, manifest)
        chain.make_visible(manifest)
        chain.remember(manifest)

    def _check_staged(
        self, chain: Chain, slice_: Slice, receipts: Sequence[Receipt], files: Sequence[SliceFile]
    ) -> None:
        """The files that the receipts name must exist, and add up."""
        rows, file_rows = sum(receipt.rows for receipt in receipts), sum(file.rows for file in files)
        if rows != file_rows:
            raise _refused(slice_, f"the receipts count {rows} rows, their files {file_rows}")
        try:
            sizes = chain.each(self.folder.check_staged, files)
        except NotStaged as gone:
            # Another attempt has committed the slice, or a sweep has removed the file: the chain decides.
            raise _unclear(slice_, str(gone)) from None
        for file, size in zip(files, sizes, strict=True):
            if size != file.bytes:
                what = f"{self.folder.path(file.name)} was staged with {size} bytes, its receipt says {file.bytes}"
                raise _refused(slice_, what)

    def _stage_current(self, chain: Chain, slice_: Slice, attempt: str) -> tuple[str, str] | None:
        if slice_.kind is not Kind.REFRESH:
            return None
        return self.folder.stage_current(chain.layout, slice_.number, attempt)

    def _create(self, chain: Chain, manifest: Manifest) -> None:
        """Create the manifest only if there is none with its number: this is the commit."""
        number = manifest.slice.number
        created = self.folder.create(
            chain.manifest_name(number),
            manifest.text(),
            near=chain.layout.attempt(number, manifest.attempt),
            before=lambda: self.probe.at("files.manifest_written", number=number),
        )
        if not created:
            raise _unclear(manifest.slice, "another attempt came first")
        self.probe.at("files.manifest_linked", number=number)

    # ------------------------------------------------------------ afterwards

    def sweep(self, stream: str, held: Position) -> None:
        with self._naming(stream):
            chain = self.chain(stream)

            def named(number: int) -> set[str]:
                return {file.staged for file in chain.read(number).files}

            self.folder.sweep(chain.layout, held.number, named)

    def recover(self, stream: str) -> Sequence[str]:
        from penstock.sinks.files.recover import withdraw_broken

        with self._naming(stream):
            return withdraw_broken(self.chain(stream))

    def archive(self, stream: str, label: str) -> Sequence[str]:
        with self._naming(stream):
            return self.folder.archive(Layout(self.pipeline, stream), label, self.probe)

    def close(self) -> None:
        return None

    @contextmanager
    def _naming(self, stream: str) -> Iterator[None]:
        """Raise errors of the disk or the bucket as penstock's own, and name the pipeline and the stream in them."""
        try:
            with self.folder.translate_errors():
                yield
        except PenstockError as error:
            error.at(pipeline=self.pipeline, stream=stream)
            raise


def _unclear(slice_: Slice, why: str) -> CommitUnclear:
    what = f"slice {slice_.number} was not committed by this attempt: {why}"
    return CommitUnclear(what, next_step="ask the sink which slice it holds")


def _refused(slice_: Slice, why: str) -> SliceRefused:
    what = f"slice {slice_.number} was not committed: {why}"
    return SliceRefused(what, next_step="run again; if it happens again, report it as a defect")

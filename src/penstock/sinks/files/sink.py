"""The files sink: stage files, commit them by a manifest, make them visible, sweep, recover."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from penstock.core.content import Content
from penstock.core.marks import Position
from penstock.core.slices import Kind, Receipt, Slice
from penstock.errors import CommitUnclear, InputError, PenstockError, SliceRefused, refuse_all
from penstock.links.durable import make_folder, sync, write_durably
from penstock.ports import Held, Probe, Remark, StreamInfo
from penstock.sinks.files.chain import Chain
from penstock.sinks.files.check import find_problems, refuse_other_file_system
from penstock.sinks.files.layout import Layout, attempt_number, list_names
from penstock.sinks.files.manifest import Manifest, SliceFile
from penstock.sinks.files.options import Options, StreamOptions
from penstock.sinks.files.writer import FilesWriter, translate_errors


class FilesSink:
    """Slices as files in a local folder."""

    def __init__(
        self, pipeline: str, root: str, options: Options, streams: Mapping[str, StreamOptions], probe: Probe
    ) -> None:
        self.pipeline = pipeline
        self.root = root
        self.options = options
        self.streams = streams
        self.probe = probe

    def chain(self, stream: str) -> Chain:
        return Chain(self.root, Layout(self.pipeline, stream), self.probe)

    def connect(self) -> None:
        if self.options.format != "parquet" and self.options.compression == "snappy":
            raise InputError(
                f"sink.compression: snappy does not fit format {self.options.format}",
                next_step="use none, gzip or zstd",
                pipeline=self.pipeline,
            )
        existing = self.root
        while not os.path.lexists(existing):
            existing = os.path.dirname(existing)
        why = None if os.access(existing, os.W_OK | os.X_OK) else f"no permission to write in {existing}"
        if why := why if os.path.isdir(existing) else f"{existing} is not a folder":
            raise InputError(
                f"the output folder {self.root} cannot be written: {why}",
                next_step="choose another sink.directory, or give this user the right to write there",
                pipeline=self.pipeline,
            )

    def begin_run(self, streams: Sequence[StreamInfo]) -> Mapping[str, Collection[str]]:
        return {}

    def check(self, stream: StreamInfo, content: Content) -> None:
        # Before a slice is planned, since an open slice keeps its columns.
        layout, format_ = Layout(self.pipeline, stream.name), self.options.format
        with self._naming(stream.name):
            refuse_all(find_problems(self.root, layout, stream, content, format_, self._partition(stream.name)))

    def explain(self, stream: StreamInfo, content: Content) -> Sequence[Remark]:
        from penstock.shaping.sink_remarks import explain_strings
        from penstock.sinks.files.explain import explain_stream

        remarks = explain_stream(self.root, self.options.format, Layout(self.pipeline, stream.name), stream)
        return [*remarks, *explain_strings(content)]

    def held(self, stream: str) -> Held | None:
        with self._naming(stream):
            manifest = self.chain(stream).last()
        return Held(manifest.slice.position, manifest.rows, manifest.arrow_bytes) if manifest else None

    # ------------------------------------------------------------ one slice

    def writer(self, slice_: Slice, attempt: str) -> FilesWriter:
        layout = Layout(self.pipeline, slice_.stream)
        staged = layout.attempt(slice_.number, attempt)
        with self._naming(slice_.stream):
            make_folder(os.path.join(self.root, staged))
        return FilesWriter(
            root=self.root,
            staged=staged,
            final=layout.final(slice_, attempt),
            number=slice_.number,
            attempt=attempt,
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
        files = tuple(SliceFile(**file) for piece in pieces for file in piece["files"])
        self._check_staged(slice_, receipts, files)
        held = chain.last()
        if (held.slice.id if held else "") != slice_.previous:
            raise _unclear(slice_, "the folder does not have the previous slice")
        refuse_other_file_system(self.root, chain.layout, {os.path.dirname(file.name) for file in files})
        manifest = Manifest(
            slice=slice_,
            attempt=attempt,
            rows=sum(receipt.rows for receipt in receipts),
            arrow_bytes=sum(receipt.bytes for receipt in receipts),
            schema=pieces[0]["schema"] if pieces else "",
            files=files,
            link=self._stage_link(slice_, attempt) if slice_.kind is Kind.REFRESH else None,
        )
        self._create(chain, manifest)
        chain.make_visible(manifest)

    def _check_staged(self, slice_: Slice, receipts: Sequence[Receipt], files: Sequence[SliceFile]) -> None:
        """The files that the receipts name must exist, and add up."""
        rows, file_rows = sum(receipt.rows for receipt in receipts), sum(file.rows for file in files)
        if rows != file_rows:
            raise _refused(slice_, f"the receipts count {rows} rows, their files {file_rows}")
        for file in files:
            path = os.path.join(self.root, file.staged)
            try:
                size = os.stat(path).st_size
            except FileNotFoundError:
                # Another attempt has committed the slice, or a sweep has removed the file: the chain decides.
                raise _unclear(slice_, f"{path} does not exist any more") from None
            if size != file.bytes:
                raise _refused(slice_, f"{path} has {size} bytes, its receipt says {file.bytes}")

    def _stage_link(self, slice_: Slice, attempt: str) -> tuple[str, str]:
        layout = Layout(self.pipeline, slice_.stream)
        staged = os.path.join(layout.attempt(slice_.number, attempt), f"current-{uuid.uuid4().hex}")
        target = os.path.relpath(layout.refresh(slice_.number, attempt), layout.data)
        folder = os.path.join(self.root, os.path.dirname(staged))
        make_folder(folder)
        os.symlink(target, os.path.join(self.root, staged))
        sync(folder)
        return staged, target

    def _create(self, chain: Chain, manifest: Manifest) -> None:
        """Create the manifest only if there is none with its number: link() fails where rename() would replace."""
        folder = chain.path(chain.layout.manifests)
        make_folder(folder)
        temporary = os.path.join(folder, f".{manifest.slice.number}.{uuid.uuid4().hex}")
        try:
            write_durably(temporary, manifest.text())
            self.probe.at("files.manifest_written", number=manifest.slice.number)
            os.link(temporary, chain.manifest_path(manifest.slice.number))
        except FileExistsError:
            raise _unclear(manifest.slice, "another attempt came first") from None
        finally:
            _remove(temporary)
        sync(folder)
        self.probe.at("files.manifest_linked", number=manifest.slice.number)

    # ------------------------------------------------------------ afterwards

    def sweep(self, stream: str, held: Position) -> None:
        with self._naming(stream):
            self._sweep(self.chain(stream), held.number)

    def _sweep(self, chain: Chain, upto: int) -> None:
        staged, manifests = chain.path(chain.layout.staged), chain.path(chain.layout.manifests)
        for name in list_names(staged):
            number = attempt_number(name)
            if number is not None and number <= upto:
                named = {os.path.basename(file.staged) for file in chain.read(number).files}
                _remove_except(os.path.join(staged, name), named)
        for name in list_names(manifests):
            # A manifest that was never linked: `.<number>.<random>`.
            parts = name.split(".")
            if name.startswith(".") and parts[1].isdigit() and int(parts[1]) <= upto:
                _remove(os.path.join(manifests, name))
        # The target of `current` and the one before it stay, for readers that are still at work.
        refreshes = chain.path(chain.layout.refreshes)
        numbered = sorted((number, name) for name in list_names(refreshes) if (number := attempt_number(name)))
        for _, name in numbered[:-2]:
            shutil.rmtree(os.path.join(refreshes, name), ignore_errors=True)

    def recover(self, stream: str) -> Sequence[str]:
        from penstock.sinks.files.recover import withdraw_broken

        with self._naming(stream):
            return withdraw_broken(self.chain(stream))

    def archive(self, stream: str, label: str) -> Sequence[str]:
        from penstock.sinks.files.archive import archive

        with self._naming(stream):
            return archive(self.root, Layout(self.pipeline, stream), label, self.probe)

    def close(self) -> None:
        return None

    @contextmanager
    def _naming(self, stream: str) -> Iterator[None]:
        """Raise errors of the operating system as penstock's own, and name the pipeline and the stream in them."""
        try:
            with translate_errors(self.root):
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


def _remove_except(folder: str, keep: set[str]) -> None:
    """Remove the other files of a folder; a writer that lost the race may still be writing into it."""
    for name in list_names(folder):
        if name not in keep:
            _remove(os.path.join(folder, name))
    with suppress(OSError):  # not empty, or gone: the next sweep removes it
        os.rmdir(folder)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)

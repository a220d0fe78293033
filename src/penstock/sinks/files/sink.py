"""The files sink: put aside, commit by manifest, make visible, sweep, recover."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from penstock.core.content import Content
from penstock.core.drift import absent
from penstock.core.marks import Position
from penstock.core.slices import Kind, Receipt, Slice
from penstock.core.types import TIMESTAMPS, Plain, Type
from penstock.errors import CommitUnclear, InputError, SliceRefused, StreamRefused, problems_of, refuse_all
from penstock.ports import Held, Probe, Remark, StreamInfo
from penstock.sinks.files.chain import Chain
from penstock.sinks.files.failures import failed_write
from penstock.sinks.files.file_systems import check_one_file_system
from penstock.sinks.files.layout import Layout, attempt_number, stem
from penstock.sinks.files.manifest import Manifest, Named, make_folders, sync_folder, write_durably
from penstock.sinks.files.options import Options, StreamOptions
from penstock.sinks.files.textual import refusal
from penstock.sinks.files.writer import FilesWriter

#: types whose values have a date
DATES = (Plain.DATE, *TIMESTAMPS)


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
        place = self.root
        while not os.path.lexists(place):
            place = os.path.dirname(place)
        if not os.path.isdir(place):
            raise self._unwritable(f"{place} is not a folder")
        if not os.access(place, os.W_OK | os.X_OK):
            raise self._unwritable(f"no permission to write in {place}")

    def begin_run(self, streams: Sequence[StreamInfo]) -> Mapping[str, Collection[str]]:
        return {}

    def check(self, stream: StreamInfo, content: Content) -> None:
        refuse_all(self._problems(stream, content))

    def _problems(self, stream: StreamInfo, content: Content) -> Iterator[StreamRefused]:
        # Before anything is intended, since a slice once open keeps its columns.
        columns = {column.name: column.type for column in content.columns}
        for what, step in self._columns(stream.name, columns, absent(content)):
            yield StreamRefused(what, next_step=step, pipeline=self.pipeline, stream=stream.name)
        layout = Layout(self.pipeline, stream.name)
        rules: list[Callable[[], object]] = [lambda: check_one_file_system(self.root, layout)]
        if stream.kind is Kind.REFRESH:
            rules.append(lambda: self._check_alone(stream.name))
        rules.append(lambda: self._check_unmixed(stream))
        yield from problems_of(rules)

    def explain(self, stream: StreamInfo, content: Content) -> Sequence[Remark]:
        from penstock.shaping.sink_remarks import explain_strings
        from penstock.sinks.files.explain import remarks

        said = remarks(self.root, self.options.format, Layout(self.pipeline, stream.name), stream)
        return [*said, *explain_strings(content)]

    def _check_unmixed(self, stream: StreamInfo) -> None:
        """Slices and a full refresh side by side would show readers the same rows twice."""
        layout = Layout(self.pipeline, stream.name)
        folder = os.path.join(self.root, layout.data)
        others = {name for name in _names(folder) if name[0] not in "._"} - {os.path.basename(layout.current)}
        if stream.kind is Kind.REFRESH and others:
            what = f"holds other files ({min(others)}), and a full refresh beside them would show readers both"
        elif stream.kind is not Kind.REFRESH and os.path.islink(os.path.join(self.root, layout.current)):
            what = "holds a full refresh (`current`), and slices beside it would show readers both"
        else:
            return
        raise StreamRefused(
            f"the folder {folder} {what}",
            next_step=f"run `penstock state migrate FILE --stream {stream.name}`: it moves that folder out of the way, "
            "and the next run begins the stream again; or give the stream another name, with `table` for what it reads",
            pipeline=self.pipeline,
            stream=stream.name,
        )

    def _columns(self, stream: str, columns: Mapping[str, Type], gone: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Columns that cannot be written as the options say, each with what to do."""
        options = self.streams.get(stream)
        partition = options.partition_by if options else None
        if partition and partition.column not in columns:
            yield (
                f"partition_by names the column {partition.column!r}, which the stream does not have",
                f"use one of: {', '.join(columns)}",
            )
        elif partition and partition.column in gone:
            yield (
                f"partition_by names the column {partition.column!r}, which the stream no longer has",
                f"bring it back, or use one of: {', '.join(name for name in columns if name not in gone)}",
            )
        elif partition and columns[partition.column] not in DATES:
            yield (
                f"partition_by needs a date or timestamp column; {partition.column!r} is {columns[partition.column]}",
                "choose another column for partition_by",
            )
        for name, type_ in columns.items():
            if refused := refusal(name, type_, self.options.format):
                yield refused

    def _check_alone(self, stream: str) -> None:
        """A refresh replaces what readers see, so no other pipeline may write the same stream here."""
        mine = Layout(self.pipeline, stream)
        if others := mine.other_pipelines(self.root):
            raise StreamRefused(
                f"a full refresh would replace {os.path.join(self.root, mine.data)}, "
                f"which pipeline {others[0]!r} writes too",
                next_step="give this pipeline a directory of its own, or the stream a cursor",
                pipeline=self.pipeline,
                stream=stream,
            )

    def held(self, stream: str) -> Held | None:
        with self._writing(stream):
            manifest = self.chain(stream).last()
        return Held(manifest.slice.position, manifest.rows, manifest.arrow_bytes) if manifest else None

    def writer(self, slice_: Slice, attempt: str) -> FilesWriter:
        layout = Layout(self.pipeline, slice_.stream)
        options = self.streams.get(slice_.stream)
        with self._writing(slice_.stream):
            make_folders(os.path.join(self.root, layout.attempt(slice_.number, attempt)), self.root)
        return FilesWriter(
            pipeline=self.pipeline,
            stream=slice_.stream,
            root=self.root,
            staged=layout.attempt(slice_.number, attempt),
            final=layout.final(slice_, attempt),
            stem=stem(slice_),
            attempt=attempt,
            options=self.options,
            partition=options.partition_by if options else None,
            probe=self.probe,
        )

    def commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> None:
        with self._writing(slice_.stream):
            self._commit(slice_, attempt, receipts)
        self.probe.at("files.all_visible", number=slice_.number)

    def _commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> None:
        chain = self.chain(slice_.stream)
        files = tuple(Named(**named) for receipt in receipts for named in json.loads(receipt.pieces)["files"])
        self._check_aside(slice_, receipts, files)
        held = chain.last()
        if (held.slice.id if held else "") != slice_.previous:
            raise self._unclear(slice_, "the folder does not hold the slice before it")
        check_one_file_system(self.root, chain.layout, {os.path.dirname(named.name) for named in files})
        schemas = {json.loads(receipt.pieces)["schema"] for receipt in receipts}
        manifest = Manifest(
            slice=slice_,
            attempt=attempt,
            rows=sum(receipt.rows for receipt in receipts),
            arrow_bytes=sum(receipt.bytes for receipt in receipts),
            schema=schemas.pop() if schemas else "",
            files=files,
            link=self._put_link_aside(slice_, attempt) if slice_.kind is Kind.REFRESH else None,
        )
        self._create(chain, manifest)
        chain.make_visible(manifest)

    def _check_aside(self, slice_: Slice, receipts: Sequence[Receipt], files: Sequence[Named]) -> None:
        """What the receipts name must lie there, and add up."""
        rows, named_rows = sum(receipt.rows for receipt in receipts), sum(named.rows for named in files)
        if rows != named_rows:
            raise self._refused(slice_, f"the receipts count {rows} rows, their files {named_rows}")
        for named in files:
            path = os.path.join(self.root, named.staged)
            try:
                size = os.stat(path).st_size
            except FileNotFoundError:
                # A slice that was committed elsewhere has taken or swept it: the chain will tell.
                raise self._unclear(slice_, f"{path} is not there any more") from None
            if size != named.bytes:
                raise self._refused(slice_, f"{path} has {size} bytes, its receipt says {named.bytes}")

    def _put_link_aside(self, slice_: Slice, attempt: str) -> tuple[str, str]:
        layout = Layout(self.pipeline, slice_.stream)
        staged = os.path.join(layout.attempt(slice_.number, attempt), f"current-{uuid.uuid4().hex}")
        target = os.path.relpath(layout.refresh(slice_.number, attempt), layout.data)
        make_folders(os.path.join(self.root, os.path.dirname(staged)), self.root)
        os.symlink(target, os.path.join(self.root, staged))
        sync_folder(os.path.join(self.root, os.path.dirname(staged)))
        return staged, target

    def _create(self, chain: Chain, manifest: Manifest) -> None:
        """Create the manifest only if there is none with its number: link() fails where rename() would replace."""
        folder = chain.path(chain.layout.manifests)
        make_folders(folder, self.root)
        temporary = os.path.join(folder, f".{manifest.slice.number}.{uuid.uuid4().hex}")
        try:
            write_durably(temporary, manifest.text())
            self.probe.at("files.manifest_written", number=manifest.slice.number)
            os.link(temporary, chain.manifest_path(manifest.slice.number))
        except FileExistsError:
            raise self._unclear(manifest.slice, "another attempt came first") from None
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
        sync_folder(folder)
        self.probe.at("files.manifest_linked", number=manifest.slice.number)

    def sweep(self, stream: str, held: Position) -> None:
        with self._writing(stream):
            self._sweep(self.chain(stream), held)

    def _sweep(self, chain: Chain, held: Position) -> None:
        staged = chain.path(chain.layout.staged)
        for name in _names(staged):
            number = attempt_number(name)
            if number is not None and number <= held.number:
                named = {os.path.basename(file.staged) for file in chain.read(number).files}
                _remove_except(os.path.join(staged, name), named)
        for name in _names(chain.path(chain.layout.manifests)):
            if name.startswith("."):
                temporary = int(name.split(".")[1]) if name.split(".")[1].isdigit() else None
                if temporary is not None and temporary <= held.number:
                    _unlink(os.path.join(chain.path(chain.layout.manifests), name))
        self._sweep_refreshes(chain)

    def _sweep_refreshes(self, chain: Chain) -> None:
        """Keep what `current` points to and the one before it, for readers that are under way."""
        folder = chain.path(chain.layout.refreshes)
        numbered = sorted((number, name) for name in _names(folder) if (number := attempt_number(name)) is not None)
        for _, name in numbered[:-2]:
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)

    def recover(self, stream: str) -> Sequence[str]:
        from penstock.sinks.files.recover import make_whole

        with self._writing(stream):
            return make_whole(self.chain(stream))

    def archive(self, stream: str, label: str) -> Sequence[str]:
        from penstock.sinks.files.archive import archive

        with self._writing(stream):
            return archive(self.root, Layout(self.pipeline, stream), label, self.probe)

    def close(self) -> None:
        return None

    def _unclear(self, slice_: Slice, why: str) -> CommitUnclear:
        return CommitUnclear(
            f"slice {slice_.number} was not committed by this attempt: {why}",
            next_step="ask the sink which slice it holds",
            pipeline=self.pipeline,
            stream=slice_.stream,
        )

    def _refused(self, slice_: Slice, why: str) -> SliceRefused:
        return SliceRefused(
            f"slice {slice_.number} was not committed: {why}",
            next_step="run again; if it happens again, report it as a defect",
            pipeline=self.pipeline,
            stream=slice_.stream,
        )

    @contextlib.contextmanager
    def _writing(self, stream: str) -> Iterator[None]:
        """What the operating system refuses fails the stream, in words."""
        try:
            yield
        except OSError as error:
            raise failed_write(self.pipeline, stream, self.root, error) from error

    def _unwritable(self, why: str) -> InputError:
        return InputError(
            f"the output folder {self.root} cannot be written: {why}",
            next_step="choose another sink.directory, or give this user the right to write there",
            pipeline=self.pipeline,
        )


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _remove_except(folder: str, keep: set[str]) -> None:
    """Remove a folder's files but those to keep; a writer that lost may be at work in it at this moment."""
    for name in _names(folder):
        if name not in keep:
            _unlink(os.path.join(folder, name))
    try:
        os.rmdir(folder)
    except OSError:
        return  # not empty, or gone: the next sweep sees to it


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return

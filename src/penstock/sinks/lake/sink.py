"""The lake sink: creates and widens tables, stages slices as stamped files, and lands each by one conditional commit.

PyIceberg is imported only once a row must move: `metadata.read_state`, with which every run begins, does not need it.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.core.content import Content
from penstock.core.drift import absent
from penstock.core.marks import Position
from penstock.core.outcome import Outcome
from penstock.core.ranges import Key
from penstock.core.sizes import count_noun
from penstock.core.slices import Kind, Receipt, Slice
from penstock.errors import CommitUnclear, InputError, SliceRefused
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.metadata import read_state
from penstock.lake.options import NAME
from penstock.lake.table_state import TableState, describe_stopped_readers, find_link
from penstock.links.watch import Watch
from penstock.ports import (
    ComparedColumns,
    Context,
    DiscoveredStream,
    Held,
    Quarantined,
    Remark,
    SinkComparison,
    StreamInfo,
    Writer,
)
from penstock.sinks.lake.checks import Checks, newer_than
from penstock.sinks.lake.leftovers import leftovers
from penstock.sinks.lake.options import Options, StreamOptions
from penstock.sinks.lake.state_tables import collect, layout_of, make_folding, make_writer

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from penstock.lake.landing import Landing, StagedSlice
    from penstock.lake.parquet import FileLayout


class LakeSink:
    """Slices as snapshots of Iceberg tables."""

    def __init__(self, lake: Lake, options: Options, streams: Mapping[str, StreamOptions], context: Context) -> None:
        self.lake = lake
        self.options = options
        self.streams = streams
        self.context = context
        self.pipeline = context.pipeline
        self._infos: dict[str, StreamInfo] = {}
        #: by attempt: how its files were written, and the table's uuid
        self._staged: dict[str, tuple[FileLayout, str]] = {}
        #: by stream: attempts of this process at the current slice
        self._attempts: Counter[str] = Counter()
        #: by stream: the slice up to which the folder of data files is known to hold nothing that was left behind
        self._swept: dict[str, int] = {}
        #: by stream: files that were stamped again, of slices that have landed since
        self._left: dict[str, list[str]] = {}
        context.spark.require(lake.spark_settings(), lake.spark_packages())

    # ------------------------------------------------------------ names and options

    def stream_options(self, stream: str) -> StreamOptions:
        return self.streams.get(stream) or StreamOptions()

    def table(self, stream: str) -> str:
        """The name of a stream's table."""
        given = self.stream_options(stream).into
        if given:
            return given
        plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in stream)
        return plain if NAME.fullmatch(plain) else f"t_{plain}"

    def key(self, stream: str) -> tuple[str, ...]:
        info = self._infos.get(stream)
        return self.stream_options(stream).key or (info.primary_key if info else ())

    def _mode(self, stream: str) -> str:
        return self.stream_options(stream).mode

    def newer_than(self, stream: str) -> str | None:
        """The column by which a row of a merged table is newer than another of its key; None: the last one is."""
        info, options = self._infos.get(stream), self.stream_options(stream)
        return newer_than(options, info) if info else options.newer_than

    # ------------------------------------------------------------ before anything moves

    def connect(self) -> None:
        self._must_be_apart(self.streams)
        folder = self.lake.folder
        if folder is None:
            from penstock.lake.bucket import check_bucket

            check_bucket(self.lake)
            return
        existing = folder
        while not os.path.lexists(existing):
            existing = os.path.dirname(existing)
        if not os.path.isdir(existing) or not os.access(existing, os.W_OK | os.X_OK):
            why = "is not a folder" if not os.path.isdir(existing) else "is not writable for this user"
            raise InputError(
                f"the warehouse {folder} cannot be used: {existing} {why}",
                next_step="choose another sink.warehouse, or give this user the right to write there",
                pipeline=self.pipeline,
            )

    def begin_run(self, streams: Sequence[StreamInfo]) -> Mapping[str, Collection[str]]:
        self._infos = {info.name: info for info in streams}
        self._must_be_apart(self._infos)
        return {}

    def _must_be_apart(self, streams: Iterable[str]) -> None:
        twice = [t for t, n in Counter(self.table(stream) for stream in streams).items() if n > 1]
        if twice:
            raise InputError(
                f"two streams would land in one table {twice[0]!r}",
                next_step="give one of them another `into`",
                pipeline=self.pipeline,
            )

    def check(self, stream: StreamInfo, content: Content) -> None:
        self._checks(stream, content).run(self._state(stream.name))

    def _checks(self, stream: StreamInfo, content: Content) -> Checks:
        options = self.stream_options(stream.name)
        return Checks(
            lake=self.lake,
            pipeline=self.pipeline,
            stream=stream.name,
            kind=stream.kind,
            table=self.table(stream.name),
            options=options,
            named=bool(self.options.namespace or options.into),
            key=self._key(options, stream, content),
            newer_than=newer_than(options, stream),
            content=content,
        )

    def _key(self, options: StreamOptions, stream: StreamInfo, content: Content) -> Sequence[str]:
        if options.mode == "state" and content.entities is not None:
            return tuple(column.name for column in layout_of(content).key)
        return options.key or stream.primary_key

    def keeps_one_row(self, stream: StreamInfo) -> bool:
        return self._mode(stream.name) != "append"

    def propose(self, streams: Sequence[DiscoveredStream]) -> Sequence[Mapping[str, Any]]:
        taken = {self.table(stream).lower() for stream in self.streams}
        found: list[dict[str, Any]] = []
        for stream in streams:
            stem, number = self.table(stream.name), 1
            into = stem
            while into.lower() in taken:
                number += 1
                into = f"{stem}_{number}"
            taken.add(into.lower())
            options = {"into": into} if into != stem else {}
            # With a number that only new rows get, no key repeats, and appending is cheaper than merging.
            if "cursor" in stream.options and stream.primary_key and not stream.options.get("unique"):
                options["mode"] = "merge"
            found.append(options)
        return found

    def explain(self, stream: StreamInfo, content: Content) -> Sequence[Remark]:
        from penstock.shaping.sink_remarks import explain_stale_rows, explain_strings
        from penstock.sinks.lake.explain import explain

        found = explain(self._checks(stream, content), self._state(stream.name))
        merges = self.keeps_one_row(stream) and stream.kind is Kind.ROWS
        # A time of day is text in the lake.
        found = [*found, *explain_strings(content, also=["time"]), *(explain_stale_rows(content) if merges else ())]
        return [*found, *(Remark("gap", line) for line in self.notices(stream.name))]

    def notices(self, stream: str) -> Sequence[str]:
        return describe_stopped_readers(self._state(stream), f"{self.lake.namespace}.{self.table(stream)}")

    def held(self, stream: str) -> Held | None:
        link = find_link(self._state(stream), self.pipeline, stream, self.table(stream))
        return Held(link.position, link.rows, link.bytes) if link else None

    def _state(self, stream: str) -> TableState | None:
        return read_state(self.lake, self.table(stream))

    # ------------------------------------------------------------ one slice

    def _prepare_table(self, slice_: Slice) -> Table:
        """Load the stream's table, such that the slice's rows fit."""
        from penstock.lake.disk_space import name_full_disk
        from penstock.sinks.lake.table_setup import prepare_table

        info = self._infos.get(slice_.stream) or StreamInfo(slice_.stream, slice_.kind)
        checks = self._checks(replace(info, kind=slice_.kind), Content.parse(slice_.content))
        with name_full_disk(self.lake.warehouse, pipeline=self.pipeline, stream=slice_.stream):
            return prepare_table(checks, first=not slice_.previous, say=partial(self.context.say, slice_.stream))

    def writer(self, slice_: Slice, attempt: str) -> Writer:
        from penstock.lake.tables import extract_state
        from penstock.lake.writing import LakeWriter
        from penstock.sinks.lake.table_setup import make_layout

        table = self._prepare_table(slice_)
        if self._mode(slice_.stream) == "state":
            self._attempts[slice_.stream] += 1
            stem = names.file_stem(self.pipeline, slice_.stream, slice_.number, f"{attempt}staged")
            return make_writer(table, slice_, attempt, stem=stem, probe=self.context.probe)
        keyed = self.stream_options(slice_.stream).mode == "merge"
        layout = make_layout(table, self.options, self.key(slice_.stream) if keyed else ())
        state = extract_state(table)
        self._staged[attempt] = (layout, state.uuid)
        self._attempts[slice_.stream] += 1
        return LakeWriter(
            pipeline=self.pipeline,
            stream=slice_.stream,
            layout=layout,
            name=names.file_stem(self.pipeline, slice_.stream, slice_.number, attempt),
            attempt=attempt,
            start=state.head + 1,
            empty=absent(Content.parse(slice_.content)),
            probe=self.context.probe,
        )

    def commit(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> Outcome | None:
        from penstock.lake.landing import Landing

        is_fold = self._mode(slice_.stream) == "state" and bool(receipts)
        staged = collect(receipts) if is_fold else self._collect(slice_, attempt, receipts)
        if not slice_.previous and not staged.files and attempt not in self._staged:
            # A stream that begins without rows: no writer, which creates the table, was asked for.
            self._prepare_table(slice_)
        say = partial(self.context.say, slice_.stream)
        landing = Landing(
            self.lake,
            self.table(slice_.stream),
            slice_,
            attempt,
            self.context.probe,
            say,
            self.options.upkeep.snapshots.limits,
            self.context.is_cancelled,
        )
        committer = None
        if is_fold:
            return self._fold(slice_, landing, staged, receipts)
        if self.stream_options(slice_.stream).mode == "merge" and staged.files:
            from penstock.lake.merging import Merging

            options, changes = self.stream_options(slice_.stream), Content.parse(slice_.content).changes
            merging = Merging(
                landing,
                self.key(slice_.stream),
                self.context.spark,
                newer_than=self.newer_than(slice_.stream),
                # A slice without deletes needs no rule for them.
                deletes=options.deletes if changes else "hard",
                deleted_at=options.marker if changes else None,
                replaces_equal=slice_.kind is Kind.REPAIR,
            )
            committer = merging.commit
        doing = f"{'merging' if committer else 'landing'} {count_noun(staged.rows, 'row')}"
        with Watch(self.context, slice_.stream).report(doing):
            landing.land(staged, committer)
        return None

    def _fold(self, slice_: Slice, landing: Landing, staged: StagedSlice, receipts: Sequence[Receipt]) -> Outcome:
        folding = make_folding(
            landing,
            slice_,
            receipts,
            self._prepare_table(slice_),
            self.stream_options(slice_.stream),
            self.context.spark,
        )
        with Watch(self.context, slice_.stream).report(f"folding {count_noun(staged.rows, 'document')}"):
            landing.land(staged, folding.commit)
        for line in folding.counts.lines():
            self.context.say(slice_.stream, line)
        self._left.setdefault(slice_.stream, []).extend(part.uri for part in folding.parts)
        return folding.counts.outcome(staged.rows)

    def _collect(self, slice_: Slice, attempt: str, receipts: Sequence[Receipt]) -> StagedSlice:
        from penstock.lake.landing import StagedSlice
        from penstock.lake.stamping import restamp
        from penstock.lake.writing import decode_files, read_last_number

        files = [file for receipt in sorted(receipts, key=lambda r: r.part) for file in decode_files(receipt)]
        rows, named = sum(receipt.rows for receipt in receipts), sum(file.record_count for file in files)
        if rows != named:
            raise SliceRefused(
                f"slice {slice_.number} was not committed: the receipts count {rows} rows, their files {named}",
                next_step="run again; if it happens again, report it as a defect",
                pipeline=self.pipeline,
                stream=slice_.stream,
            )
        layout, uuid = self._staged.get(attempt, (None, None))

        def again(old: Sequence[DataFile], was: int, now: int) -> Sequence[DataFile]:
            stem = names.file_stem(self.pipeline, slice_.stream, slice_.number, attempt)
            self._left.setdefault(slice_.stream, []).extend(file.file_path for file in old)
            return restamp(old, layout or self._layout(slice_.stream), old_start=was, new_start=now, name=stem)

        lasts = [(last, receipt.read) for receipt in receipts if (last := read_last_number(receipt)) is not None]
        return StagedSlice(
            files=files,
            rows=rows,
            bytes=sum(receipt.bytes for receipt in receipts),
            start=min((last - read + 1 for last, read in lasts), default=1),
            last=max((last for last, _ in lasts), default=0),
            restamp=again,
            uuid=uuid,
        )

    def _layout(self, stream: str) -> FileLayout:
        """How files of a stream's table are written now, for receipts that this process did not make."""
        from penstock.lake.tables import load_table
        from penstock.sinks.lake.table_setup import make_layout

        table = load_table(self.lake, self.table(stream))
        if table is None:
            raise CommitUnclear(
                f"the table {self.table(stream)} no longer exists",
                next_step="ask the sink which slice it holds",
                pipeline=self.pipeline,
                stream=stream,
            )
        return make_layout(table, self.options, ())

    # ------------------------------------------------------------ comparing

    def compare(self, stream: StreamInfo, columns: ComparedColumns) -> SinkComparison:
        from penstock.sinks.lake.comparing import compare

        options, table = self.stream_options(stream.name), self.table(stream.name)
        key, state = options.key or stream.primary_key, self._state(stream.name)
        return compare(stream, options, key, columns, state, self.lake.spark_table(table), self.context.spark)

    def check_delete_search(self, stream: StreamInfo) -> None:
        from penstock.shaping.comparing import check_delete_search

        options = self.stream_options(stream.name)
        key = (options.key or stream.primary_key) if options.mode == "merge" else ()
        check_delete_search(stream, key, options.deletes)

    def find_quarantined(self, stream: StreamInfo, columns: ComparedColumns, keys: Sequence[Key]) -> Collection[Key]:
        return ()

    def explain_foreign_rows(self, stream: StreamInfo) -> str | None:
        from penstock.sinks.lake.comparing import explain_foreign_rows

        return explain_foreign_rows(self._state(stream.name), self.pipeline, stream.name)

    # ------------------------------------------------------------ ops in quarantine

    def quarantined(self, streams: Sequence[str], *, limit: int) -> tuple[Mapping[str, int], Sequence[Quarantined]]:
        from penstock.lake.folding.quarantine import count_ops, list_ops

        named = [stream for stream in self.streams if self._mode(stream) == "state" and stream in (streams or [stream])]
        counts = {stream: count for stream in named if (count := count_ops(self.lake, self.table(stream)))}
        rows: list[Quarantined] = []
        for stream in counts:
            rows += list_ops(self.lake, self.table(stream), stream, limit=limit - len(rows))
        return counts, rows

    def replay(self, stream: str, ids: Sequence[int], *, overwrite: bool) -> Outcome:
        from penstock.lake.folding.quarantine import refuse_change

        raise refuse_change("replayed")

    def drop(self, streams: Sequence[str], ids: Sequence[int]) -> int:
        from penstock.lake.folding.quarantine import refuse_change

        raise refuse_change("dropped")

    # ------------------------------------------------------------ afterwards

    def sweep(self, stream: str, find_link: Position) -> None:
        """Remove leftovers of attempts at slices that the table holds: branches, files stamped again, local files.

        Upkeep removes leftovers of a dead process on S3.
        """
        self._staged.clear()
        state = self._state(stream)
        tag = names.stream_tag(self.pipeline, stream)
        old = [
            name
            for name in (state.branches if state else ())
            if (about := names.parse_branch(name)) and about[0] == tag and about[1] <= find_link.number
        ]
        left = self._left.pop(stream, [])
        tries = self._attempts.pop(stream, 0)
        # A slice that nobody had begun before, and that went through in one attempt, has left nothing behind. What a
        # process that was replaced writes later is found when the next run begins.
        if state is not None and (tries > 1 or find_link.number > self._swept.get(stream, -1)):
            found = leftovers(state, self.pipeline, stream, find_link)
            self._swept[stream] = find_link.number + (not found.next_begun)
            left += found.files
        if not old and not left:
            return
        from penstock.lake.parquet import remove
        from penstock.lake.tables import LostRace, drop_refs, load_table

        table = load_table(self.lake, self.table(stream))
        if table is None:
            return
        for path in left:
            remove(path, table.io)
        if old:
            with contextlib.suppress(LostRace):  # the next sweep drops them
                drop_refs(table, old)

    def recover(self, stream: str) -> Sequence[str]:
        from penstock.lake.recovery import recover

        return recover(self.lake, self.table(stream), self.pipeline, stream)

    def archive(self, stream: str, label: str) -> Sequence[str]:
        from penstock.lake.tables import archive_table

        return archive_table(self.lake, self.table(stream), self.pipeline, stream, label)

    def close(self) -> None:
        return None

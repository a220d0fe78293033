"""The lake as a source: the table's metadata alone shows whether there are new rows; PyIceberg then plans the read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.names import did_you_mean
from penstock.core.slices import Kind, Slice
from penstock.errors import StreamRefused, StreamStopped
from penstock.lake import names
from penstock.lake.lake import Lake
from penstock.lake.metadata import list_tables, read_state
from penstock.lake.table_state import TableState
from penstock.ports import Budget, Context, DiscoveredStream, Planned, Reading, Remaining, Remark, StreamInfo
from penstock.sources.lake import lost_rows
from penstock.sources.lake.content import AsNow, TableContent, compare_with_table
from penstock.sources.lake.marks import make_mark, read_began, read_number, read_snapshot, read_table
from penstock.sources.lake.options import Options, StreamOptions
from penstock.sources.lake.validate import validate

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.lake.data_files import ScanFile


class LakeSource:
    """Tables of one namespace."""

    def __init__(self, lake: Lake, options: Options, streams: Mapping[str, StreamOptions], context: Context) -> None:
        self.lake = lake
        self.options = options
        self.streams = streams
        self.context = context
        self.pipeline = context.pipeline
        #: the bounds that a stream was last planned between, and the files found there
        self._planned: dict[str, tuple[tuple[int, int], list[ScanFile]]] = {}

    def stream_options(self, stream: str) -> StreamOptions:
        return self.streams.get(stream) or StreamOptions()

    def table(self, stream: str) -> str:
        return self.stream_options(stream).table or stream

    # ------------------------------------------------------------ what there is

    def connect(self) -> None:
        list_tables(self.lake)

    def catalog(self) -> Sequence[StreamInfo]:
        found = []
        for stream in self.streams or list_tables(self.lake):
            state = read_state(self.lake, self.table(stream))
            key = state.key if state else ()
            found.append(StreamInfo(stream, Kind.ROWS, primary_key=key, order=(names.SEQ,), in_order=True))
        return found

    def discover(self) -> Sequence[DiscoveredStream]:
        from penstock.sources.lake.discovery import describe_table

        found = ((name, read_state(self.lake, name)) for name in list_tables(self.lake))
        read = {self.table(stream): stream for stream in self.streams}
        return [
            replace(describe_table(name, state), read_by=read.get(name) if self.streams else name)
            for name, state in found
            if state is not None
        ]

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        from penstock.lake.foreign import foresee
        from penstock.sources.lake.discovery import explain

        changes = foresee(self.lake, self.table(stream))
        remarks = explain(TableContent.read(content), self._state(stream))
        return [*remarks, *(Remark("gap", line) for line in changes)]

    def content(self, stream: str) -> Content:
        try:
            return validate(self.stream_options(stream), self._state(stream), self._name(stream)).content()
        except StreamRefused as refused:
            raise refused.at(pipeline=self.pipeline, stream=stream) from None

    def accept(self, stream: str, last: Position, content: Content) -> None:
        if last.mark is None:
            return
        self._must_fit(stream, self._state(stream), read_table(last.mark), read_number(last.mark))

    def _must_fit(self, stream: str, state: TableState, uuid: str, seq: int, *, is_open: bool = False) -> None:
        """A mark, or that of an open slice (`is_open`), must be one of this very table, and not above its head."""
        name = self._name(stream)
        recover = f"`penstock state recover FILE --stream {stream}`"
        if uuid != state.uuid:
            drop = f"drop the open slice with {recover}, then " if is_open else ""
            raise self._refused(
                stream,
                f"the table {name} is not the one that was read before: it was dropped and created again, or replaced",
                f"restore the old table; or, to read the new one from its beginning, {drop}`penstock state reset FILE "
                f"--stream {stream}`",
            )
        if state.head < seq:
            otherwise = (
                f"drop the open slice with {recover}, and the next one is planned again"
                if is_open
                else f"go on from what the table holds: `penstock rewind FILE --to {state.head} --stream {stream}`. "
                "Rows that the table gets again are then delivered again"
            )
            raise StreamStopped(
                f"the table {name} is behind this reader: its highest number is {state.head}, and {seq} was read. "
                "Its catalog was restored from an older copy",
                next_step=f"restore the catalog as it was; or {otherwise}",
                safe="Nothing was changed.",
                pipeline=self.pipeline,
                stream=stream,
            )

    def _must_go_on(self, stream: str, state: TableState, mark: Mark) -> None:
        """What comes after a mark must still be there as it was. Not checked when the mark is moved."""
        seq, seen = read_number(mark), read_snapshot(mark)
        rewind = f"`penstock rewind FILE --to {{}} --stream {stream}`"
        if state.keyed and (lost := state.lost(self.pipeline, stream)):
            raise lost_rows.make_deletes_lost(lost, self._name(stream), pipeline=self.pipeline, stream=stream)
        if lost_rows.has_lost(state, seq, read_began(mark)):
            step = f"to go on without them: {rewind.format(state.floor)}"
            raise self._gone(stream, state, seq, step)
        if seen and not state.shows(*seen):
            raise StreamStopped(
                f"the table {self._name(stream)} was rolled back to a snapshot before the one that was read: rows that "
                "this reader has delivered are not in it, and may come again under new numbers",
                next_step=f"restore the table as it was; or choose where to go on: {rewind.format('NUMBER')} "
                f"(it was at {seq})",
                safe="Nothing was changed.",
                pipeline=self.pipeline,
                stream=stream,
            )

    def _gone(self, stream: str, state: TableState, seq: int, step: str) -> StreamStopped:
        return lost_rows.make_stop(state, self._name(stream), seq, step, pipeline=self.pipeline, stream=stream)

    # ------------------------------------------------------------ what is new

    def prepare(self, stream: str, content: Content, last: Position | None) -> Sequence[str]:
        from penstock.lake.adoption import adopt
        from penstock.lake.foreign import stamp
        from penstock.lake.readers import needs_registration, register

        lines: list[str] = []
        state = self._state(stream)
        table = self.table(stream)
        read = TableContent.read(content)
        if last and last.mark:
            self._must_go_on(stream, state, last.mark)
        elif read.start.isdigit() and int(read.start) < state.floor:
            raise self._refused(
                stream,
                f"{lost_rows.describe_floor(state, self._name(stream))}, so from: {read.start} cannot be kept",
                f"use `beginning` for all that is there, `now`, or a number from {state.floor} to {state.head}",
            )
        if read.where:
            from penstock.lake.filtering import read_filter

            read_filter(read.where, self._loaded(stream).schema())
        if not state.ours:
            self.context.say(stream, f"adopts {self._name(stream)}: {state.size} are rewritten once, with numbers")
            lines += adopt(self.lake, table)
        lines += stamp(self.lake, table, self.context.mover, self.context.probe, partial(self.context.say, stream))
        state = self._state(stream)
        lost = state.lost(self.pipeline, stream)
        if lost and not (last and last.mark):
            lines.append(f"goes on without {lost} rows that retention removed before this reader had seen them")
        mark = read_number(last.mark) if last and last.mark else self._start(read, state)
        if needs_registration(state, self.pipeline, stream, mark):
            line = register(self.lake, table, self.pipeline, stream, mark, number=last.number if last else 0)
            lines += [line] if line else []
        return lines

    def _start(self, content: TableContent, state: TableState) -> int:
        """Where a stream without a mark begins."""
        return state.head if content.start == "now" else _start_number(content)

    def advanced(self, stream: str, position: Position) -> None:
        """Tell the table now: retention should not wait for the next row."""
        from penstock.lake.readers import is_late, needs_registration, register

        state, number = self._state(stream), position.number
        if position.mark is None or is_late(state, self.pipeline, stream, number):
            return
        mark = read_number(position.mark)
        if needs_registration(state, self.pipeline, stream, mark):
            register(self.lake, self.table(stream), self.pipeline, stream, mark, number=number, follows=True)

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        state = self._state(stream)
        unsettled = state.main is not None and not (state.ours and state.orderly)
        main = state.main
        at: Document | None = {"snapshot": str(main.id), "sequence": main.sequence} if main else None
        return {"head": state.head, "table": state.uuid, "at": at, "unsettled": unsettled}

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        head, uuid, at = ceiling["head"], ceiling["table"], ceiling["at"]
        assert isinstance(head, int)
        assert isinstance(uuid, str)
        assert at is None or isinstance(at, Mapping)
        read = TableContent.read(content)
        if budget.look and ceiling["unsettled"]:
            self._must_be_numbered(stream)
        if after is None and read.start == "now":
            # Made durable as a slice without rows: what comes from now on is not skipped by a run that comes later.
            return Planned(make_mark(uuid, head, at, began=head), kind=Kind.REWIND, rows=0)
        # One that starts at a number is to go on from what another delivered up to there.
        began = read_began(after) if after else _start_number(read, default=head)
        seq = read_number(after) if after else _start_number(read)
        if after:
            # Also for a look, and where nothing is new: a reader that must stop should know.
            self._must_go_on(stream, self._state(stream), after)
        if budget.look:
            look = head > seq or ceiling["unsettled"]
            return Planned(make_mark(uuid, head, at, began=began)) if look else None
        if head <= seq:
            return None
        from penstock.lake.planning import find_end, find_files, open_data_files

        table = self._loaded(stream)
        found = find_files(table, table.metadata.current_snapshot_id, seq, head)
        self._planned[stream] = (seq, head), found
        with open_data_files(table) as files:
            upto = find_end(files, found, seq, head, budget=budget.bytes, rows=budget.rows, row_bytes=budget.row_bytes)
        rows = sum(scan_file.rows for scan_file in found if scan_file.within(seq, upto))
        known, exact = rows if upto == head else None, read.where is None
        lake = make_mark(uuid, upto, at, began=began)
        return Planned(lake, plan=_plan(budget), rows=known, exact=exact and known is not None)

    def remaining(self, stream: str, content: Content, after: Mark | None, ceiling: Document) -> Remaining:
        """From the files' own counts; a filter of the user's is not taken into account."""
        from penstock.lake.planning import find_files

        head, read = ceiling["head"], TableContent.read(content)
        assert isinstance(head, int)
        seq = read_number(after) if after else self._start(read, self._state(stream))
        planned = self._planned.get(stream)
        if planned and planned[0] == (seq, head):
            found = planned[1]
        else:
            table = self._loaded(stream)
            found = find_files(table, table.metadata.current_snapshot_id, seq, head)
        return Remaining(sum(scan_file.rows_within(seq, head) for scan_file in found))

    def _must_be_numbered(self, stream: str) -> None:
        """Rows of others must not stop every reader. Only a table in doubt is examined: a look must be cheap."""
        from penstock.lake.foreign import foresee

        state = self._state(stream)
        if state.ours and state.stopped:
            foresee(self.lake, self.table(stream))

    def check_open_slice(self, slice_: Slice) -> None:
        self._must_be_numbered(slice_.stream)
        self._check_slice(slice_, self._state(slice_.stream))

    def _check_slice(self, slice_: Slice, state: TableState) -> AsNow | None:
        """Compare an open slice with its table as it is now; StreamRefused or StreamStopped if it cannot be read."""
        content = TableContent.parse(slice_.content)
        assert slice_.upto is not None
        self._must_fit(slice_.stream, state, content.uuid, read_number(slice_.upto), is_open=True)
        self._must_be_whole(slice_, state, _start_of(slice_, content))
        return compare_with_table(content, state.columns, slice_.stream)

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        from penstock.lake.planning import NAME_MAPPING, cut_parts, find_files, open_data_files
        from penstock.lake.reading import LakeReader

        content = TableContent.parse(slice_.content)
        table, state = self._in_order(slice_.stream)
        now = self._check_slice(slice_, state)
        assert slice_.upto is not None
        after, upto = _start_of(slice_, content), read_number(slice_.upto)
        found = find_files(table, table.metadata.current_snapshot_id, after, upto)
        plan = json.loads(slice_.plan)
        with open_data_files(table) as files:
            spans = cut_parts(files, found, after, upto, most=plan.get("workers", 1), row_bytes=plan.get("row_bytes"))
        reader = LakeReader(
            table.io,
            table.schema(),
            now.names if now else content.names,
            where=content.where,
            changes=content.changes,
            key=content.key,
            name_mapping=table.properties.get(NAME_MAPPING),
        )
        reading = Reading(reader, [span.part(index) for index, span in enumerate(spans)])
        yield now.fitted(reading) if now else reading

    def _in_order(self, stream: str) -> tuple[Table, TableState]:
        """The table in a state in which every row has its own number.

        Rows that others have put in must not be met under a number that is not theirs.
        """
        from penstock.lake.foreign import stamp
        from penstock.lake.tables import extract_state

        while True:
            stamp(self.lake, self.table(stream), self.context.mover, self.context.probe)
            table = self._loaded(stream)
            state = extract_state(table)
            if state.orderly:
                return table, state

    def _must_be_whole(self, slice_: Slice, state: TableState, after: int) -> None:
        """No row of a slice may have been removed since it was intended."""
        # One that starts without a mark takes what is there; but not less than what was there when it was intended.
        intended = slice_.after is not None or state.lost(self.pipeline, slice_.stream)
        assert slice_.upto is not None
        began = read_began(slice_.upto)
        if (intended and lost_rows.has_lost(state, after, began)) or lost_rows.has_lost(
            state, read_number(slice_.upto), began
        ):
            drop = f"`penstock state recover FILE --stream {slice_.stream}`"
            on = f", then `penstock rewind FILE --to {state.floor} --stream {slice_.stream}`" if slice_.after else ""
            step = f"to go on without them, drop the open slice with {drop}{on}"
            raise self._gone(slice_.stream, state, after, step)

    # ------------------------------------------------------------ going back

    def mark_at(self, stream: str, content: Content, last: Position | None, to: str) -> Mark | None:
        from penstock.sources.lake.marks import find_number

        state = self._state(stream)
        at = read_number(last.mark) if last and last.mark else 0
        seq = find_number(to, state, at=at, table=self._name(stream), pipeline=self.pipeline, stream=stream)
        return make_mark(state.uuid, seq, began=read_began(last.mark if last else None))

    def describe(self, mark: Mark | None) -> str:
        return f"number {read_number(mark)}" if mark else "the beginning"

    def close(self) -> None:
        return None

    # ------------------------------------------------------------ tables

    def _name(self, stream: str) -> str:
        return f"{self.lake.namespace}.{self.table(stream)}"

    def _state(self, stream: str) -> TableState:
        state = read_state(self.lake, self.table(stream))
        if state is None:
            raise self._missing(stream)
        state.refuse_other_version(self._name(stream))
        return state

    def _loaded(self, stream: str) -> Table:
        from penstock.lake.tables import load_table

        table = load_table(self.lake, self.table(stream))
        if table is None:
            raise self._missing(stream)
        return table

    def _missing(self, stream: str) -> StreamRefused:
        known = list_tables(self.lake)
        hint = did_you_mean(self.table(stream), known)
        step = (
            f"name a table with `table` on the stream; the namespace {self.lake.namespace} has: {', '.join(known)}"
            if known
            else f"correct `namespace` or `warehouse`: the namespace {self.lake.namespace} has no tables"
        )
        return self._refused(stream, f"there is no table {self._name(stream)}{hint}", step)

    def _refused(self, stream: str, what: str, step: str) -> StreamRefused:
        return StreamRefused(what, next_step=step, pipeline=self.pipeline, stream=stream)


def _start_of(slice_: Slice, content: TableContent) -> int:
    return read_number(slice_.after) if slice_.after else _start_number(content)


def _start_number(content: TableContent, *, default: int = 0) -> int:
    """The number that `from` names; otherwise the default."""
    return int(content.start) if content.start.isdigit() else default


def _plan(budget: Budget) -> Document:
    """The plan with which a replay cuts a slice into the same parts."""
    known = {"row_bytes": max(1, round(budget.row_bytes))} if budget.row_bytes is not None else {}
    return {"workers": budget.workers, **known}

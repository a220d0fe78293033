"""The rest source: what the engine asks, answered by the other modules of this room."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from penstock.core.content import Content
from penstock.core.documents import Document, canonical
from penstock.core.marks import Mark, Position
from penstock.core.slices import Kind, Part, Slice
from penstock.core.subdivision import Position as TimePosition
from penstock.core.subdivision import Span, merge_ranges, reconcile, start
from penstock.errors import (
    ConnectionFailed,
    InputError,
    StreamFailed,
    StreamRefused,
    problems_of,
    refuse_all,
)
from penstock.links.http.account import Account
from penstock.links.http.failures import ResourceRefused
from penstock.links.http.loop import LoopThread
from penstock.ports import Budget, Context, DiscoveredStream, Planned, Reading, Remark, Spool, StreamInfo
from penstock.sources.rest import marks
from penstock.sources.rest.ahead import AHEAD_BYTES, AHEAD_COMPRESSED_BYTES, Ahead, Basis
from penstock.sources.rest.content import (
    BY_CURSOR,
    BY_TIME,
    VERSION,
    WHOLE,
    ChangeFields,
    ListContent,
    check_parent,
    content_of,
)
from penstock.sources.rest.gathering import Limits, RangeGather
from penstock.sources.rest.known import Repeats
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.rest.looks import Look, Looks
from penstock.sources.rest.onward import fetch_onward, gather_onward
from penstock.sources.rest.options import Options, StreamOptions, TimeRange, read_time
from penstock.sources.rest.parents import ChildGather, ChildList
from penstock.sources.rest.reader import SpoolReader, columns_of
from penstock.sources.rest.reporting import FetchReporter
from penstock.sources.rest.sequence import gather_whole
from penstock.sources.rest.spooling import SpoolWriter, list_files
from penstock.sources.rest.times import Unit

#: a server's clock and this machine's may differ by this much without a remark
CLOCK_TOLERANCE = timedelta(minutes=5)


class RestSource:
    """Lists of one API. See `Source` in ports for what each method owes."""

    def __init__(self, options: Options, streams: Mapping[str, StreamOptions], context: Context) -> None:
        self._options = options
        self._streams = dict(streams)
        #: the order of the streams' turns; a stream whose turn has come has 0
        self._turns = {name: turn for turn, name in enumerate(self._streams, start=1)}
        self._context = context
        self._loop = LoopThread(context.is_cancelled)
        at_once = min(len(self._streams), options.max_concurrent_streams)
        self._workers = options.requests_at_once(at_once)
        self._account = Account(options, at_once)
        self._apis = {name: ListApi(self._account, name, each, options) for name, each in self._streams.items()}
        self._reporters = {name: FetchReporter(context, api) for name, api in self._apis.items()}
        self._looks = Looks(self._loop, self._apis, options, context.last_mark)
        #: by stream, what is fetched ahead
        self._ahead: dict[str, Ahead] = {}
        #: by stream, what this run's look has planned, and nobody has gathered yet
        self._planned: dict[str, tuple[Content, Mark | None, Document]] = {}
        #: streams whose clock was remarked on
        self._remarked: set[str] = set()

    def connect(self) -> None:
        """Nothing is asked yet: the first page of each stream tells whether the API can be reached."""
        twice = self._options.auth.contradictions() if self._options.auth else []
        if twice:
            raise InputError(
                f"`auth` has {' and '.join(twice)}, which both set the credentials",
                next_step="keep one of them",
                pipeline=self._context.pipeline,
            )

    def close(self) -> None:
        self._loop.close(self._account.close)
        self._looks.clear()
        self._ahead.clear()
        self._planned.clear()

    # ------------------------------------------------------------ the streams

    def catalog(self) -> Sequence[StreamInfo]:
        readable = [stream for stream in self._streams if self._problem(stream) is None]
        try:
            self._looks.begin(readable)
        except ConnectionFailed as failed:
            raise failed.at(pipeline=self._context.pipeline) from None
        return [self._info(stream, options) for stream, options in self._streams.items()]

    def is_awaited(self, stream: str) -> bool:
        return self._looks.is_awaited(stream)

    def _problem(self, stream: str) -> StreamRefused | None:
        """Why the options of a stream are refused; None: they are not."""
        try:
            content_of(stream, self._streams[stream], self._options)
            check_parent(stream, self._streams)
        except StreamRefused as refused:
            return refused
        return None

    def _info(self, stream: str, options: StreamOptions) -> StreamInfo:
        if self._problem(stream) is not None:
            return StreamInfo(name=stream, kind=Kind.ROWS)  # `content` says what is wrong with it
        content = content_of(stream, options, self._options)
        failure = None if self.is_awaited(stream) else self._look(stream).failure
        time_column = next((name for name, path in content.paths.items() if path == content.time), None)
        return StreamInfo(
            name=stream,
            kind=Kind.REFRESH if content.mode == WHOLE else Kind.ROWS,
            primary_key=content.key,
            order=(time_column,) if time_column else (),
            skipped=failure.what if isinstance(failure, ResourceRefused) else None,
            accept_drop=options.accept_drop,
            version=VERSION if content.changes else None,
        )

    def _look(self, stream: str, *, renew: bool = False) -> Look:
        """A first page of a stream."""
        try:
            return self._looks.renew(stream) if renew else self._looks.get(stream)
        except ConnectionFailed as failed:
            raise failed.at(pipeline=self._context.pipeline) from None

    def content(self, stream: str) -> Content:
        if stream not in self._streams:
            raise StreamRefused(
                "the pipeline file does not have this stream", next_step="list it under `streams`", stream=stream
            )
        options = self._streams[stream]
        refuse_all(
            problems_of(
                [partial(content_of, stream, options, self._options), partial(check_parent, stream, self._streams)]
            )
        )
        content = content_of(stream, options, self._options)
        look = self._look(stream)
        if look.failure is not None:
            raise look.failure
        if content.mode == BY_TIME and look.page is not None:
            self._check_unit(stream, content, look.page)
        return content.content()

    def _check_unit(self, stream: str, content: ListContent, page: FetchedPage) -> None:
        """Refuse a stream whose times are in another unit than its options say."""
        now, unit = page.date or datetime.now(UTC), Unit(content.unit)
        for at, id_ in page.records[:1]:
            doubt = unit.doubt(at, unit.of(max(now, datetime.now(UTC))))
            if doubt:
                raise StreamRefused(
                    f"record {id_}: field {content.time}, read as {unit.kind}, {doubt}",
                    next_step="set `unit` under `time` to seconds, milliseconds or iso, as the API writes its times",
                    stream=stream,
                )

    def discover(self) -> Sequence[DiscoveredStream]:
        from penstock.sources.rest.sampling import ListProposal

        self.connect()
        found = []
        for stream, options in self._streams.items():
            children = ChildList.of(stream, self._apis, self._options) if options.parent in self._apis else None
            proposal = ListProposal(self._account, stream, options, self._options, children)
            found.append(self._loop.run(proposal.discover()))
        return found

    def accept(self, stream: str, last: Position, content: Content) -> None:
        marks.accept(stream, last, content)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        from penstock.sources.rest.explain import remarks

        return remarks(self._streams[stream], ListContent.read(content))

    # ------------------------------------------------------------ planning

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        read = ListContent.read(content)
        if read.mode == WHOLE:
            return {"run": run}
        if stream in self._ahead and stream in self._planned and self._planned[stream][2]["run"] == run:
            # Pages are fetched under this ceiling already.
            return self._planned[stream][2]
        look = self._look(stream, renew=True)
        if look.failure is not None:
            raise look.failure
        if read.mode == BY_CURSOR:
            return {"run": run}
        return {"lt": self._highest(stream, read), "run": run}

    def _highest(self, stream: str, content: ListContent) -> int:
        """The time before which this run reads: the server's clock, less the lag.

        A clock that is ahead would hide objects that are still to come, so the earlier of the two clocks counts.
        """
        options, unit = self._streams[stream].time, Unit(content.unit)
        assert options is not None
        look = self._look(stream)
        here, there = datetime.now(UTC), look.page.date if look.page else None
        if there is None:
            self._remark(stream, "the API does not say what time it is: this machine's clock is used instead")
        elif there > here + CLOCK_TOLERANCE:
            self._remark(
                stream, f"the API's clock is ahead of this machine's by {there - here}: the earlier one counts"
            )
        elif look.page and look.page.records and unit.moment(look.page.records[0][0]) > there + CLOCK_TOLERANCE:
            behind = unit.moment(look.page.records[0][0]) - there
            self._remark(
                stream, f"the API's clock is behind its newest object by {behind}: objects after that clock wait"
            )
        now = min(here, there) if there else here
        return unit.of(now - timedelta(seconds=options.lag))

    def _remark(self, stream: str, text: str, say: Callable[[str, str], None] | None = None) -> None:
        """Say something about a stream once."""
        if stream not in self._remarked:
            self._remarked.add(stream)
            (say or self._context.say)(stream, text)

    def _window(self, stream: str, unit: Unit, ceiling: Document) -> Span | None:
        """The configured range of time, below the run's ceiling; None: it is empty."""
        configured = self._streams[stream].time_range or self._options.time_range or TimeRange()
        low = unit.of(read_time(configured.from_)) if configured.from_ else 0
        bound: Any = ceiling["lt"]
        high = int(bound)
        if configured.to:
            high = min(high, unit.of(read_time(configured.to)))
        return Span(low, high) if low < high else None

    def _wanted(self, stream: str, content: ListContent, after: Mark | None, ceiling: Document) -> TimePosition:
        """What is still to be read, and what is read."""
        position = marks.read_position(after)
        window = self._window(stream, Unit(content.unit), ceiling)
        if window is None:
            return TimePosition((), position.covered)
        return reconcile(position, window, marks.order_of(content))

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        read = ListContent.read(content)
        if read.mode == BY_CURSOR:
            return self._plan_onward(stream, after)
        if read.mode == WHOLE:
            upto = marks.whole_mark(str(ceiling["run"]))
            return None if after == upto else Planned(upto, Kind.REFRESH)
        wanted = self._wanted(stream, read, after, ceiling)
        if not self._may_have_records(stream, read, wanted):
            return None
        if budget.look and stream not in self._ahead:
            self._planned[stream] = content, after, ceiling
        # Where the ranges lead is known; how many slices that takes is known only once they are gathered.
        spans = [*wanted.covered, *(each.span for each in wanted.remaining)]
        return Planned(marks.position_mark(TimePosition((), merge_ranges(spans)), read.unit))

    def _plan_onward(self, stream: str, after: Mark | None) -> Planned | None:
        at = marks.CursorPosition.read(after)
        look = self._look(stream)
        found = look.onward if look.at == at else None
        if found is None:
            found = self._loop.run(fetch_onward(self._apis[stream], at))
        ids = [found.page.records[number][1] for number in found.fresh]
        # How far it leads is known only once the pages are gathered: this page at least.
        return Planned(replace(found.position, seen=(*found.position.seen, *ids)).mark()) if ids else None

    def _may_have_records(self, stream: str, content: ListContent, wanted: TimePosition) -> bool:
        """Whether one of the ranges may have records, by the newest one where the API lists it first."""
        page = self._look(stream).page
        if not wanted.remaining or page is None or not page.records:
            return False
        if content.order != "newest":
            return any(self._has_records(stream, each.gte, each.lt, each.cursor) for each in wanted.remaining)
        newest = page.records[0][0]
        below = [each for each in wanted.remaining if each.gte is None or each.gte <= newest]
        if len(below) == 1 and below[0].cursor is None and below[0].lt is not None and newest >= below[0].lt:
            # The newest record is above the ceiling, or above the configured range: another may lie below it.
            return self._has_records(stream, below[0].gte, below[0].lt, None)
        return bool(below)

    def _has_records(self, stream: str, gte: int | None, lt: int | None, cursor: str | None) -> bool:
        if cursor is not None:
            return True
        return bool(self._loop.run(self._apis[stream].fetch(Asked(gte, lt, None, 1))).records)

    def describe(self, mark: Mark | None) -> str:
        return marks.describe(mark)

    # ------------------------------------------------------------ gathering

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        read, api = ListContent.read(content), self._apis[stream]
        writer = SpoolWriter(spool.path, budget.row_bytes)
        context = self._context

        reporter = self._reporters[stream]
        reporter.begin()
        at_page = partial(self._at_page, stream)
        limits = self._limits(budget)
        if read.mode == BY_CURSOR:
            at = marks.CursorPosition.read(after)
            repeats = Repeats()
            reading = gather_onward(api, at, writer, limits, reporter.report, at_page, repeats)
            reached = self._loop.run(reading).mark()
            reporter.report(writer.rows, last=True)
            self._say_repeated(stream, repeats)
            return None if reached == after or not writer.rows else Planned(reached, rows=writer.rows, exact=True)
        if read.mode == WHOLE:
            if children := ChildList.of(stream, self._apis, self._options):
                gather = ChildGather(children, writer, context.is_cancelled, reporter.report, at_page)
                self._loop.run(gather.run(self._workers), limits.end)
                repeats = gather.repeats
                if gather.gone:
                    context.say(stream, gather.describe_gone())
            else:
                whole = gather_whole(api, writer, context.is_cancelled, reporter.report, at_page)
                repeats = self._loop.run(whole, limits.end)
            reporter.report(writer.rows, last=True)
            self._say_repeated(stream, repeats)
            return Planned(marks.whole_mark(str(ceiling["run"])), Kind.REFRESH, rows=writer.rows, exact=True)
        self._planned.pop(stream, None)
        gathering = self._take_ahead(stream, Basis.of(after, content, ceiling))
        if gathering is None:
            gathering = self._begin(stream, read, after, ceiling, writer, limits)
        else:
            gathering.writer.move_into(spool.path)
        if budget.rows is None:
            self._fetch_others_ahead(stream, ceiling, budget)
        # Not through `run`: what was fetched before a signal counts.
        running = gathering.proceed(limits, self._workers, lambda rows: reporter.report(rows, running.state))
        try:
            state = self._loop.start(running.run()).result()
        finally:
            reporter.report(running.writer.rows, running.state, last=True)
        self._say_repeated(stream, running.known.repeats)
        for line in marks.describe_abandoned(state.position(), read.unit):
            context.warn(stream, line)
        upto = marks.position_mark(state.position(), read.unit)
        if upto == after:
            return None
        has_room = len(self._ahead) < self._options.max_concurrent_streams
        if budget.rows is None and not state.done and has_room and time.monotonic() < limits.end:
            self._fetch_ahead(stream, content, upto, ceiling, budget)
        return Planned(upto, rows=running.writer.rows, exact=True)

    def _limits(self, budget: Budget) -> Limits:
        now = time.monotonic()
        end = math.inf if budget.seconds is None else now + budget.seconds
        return Limits(budget, now + self._options.slice_seconds, self._context.is_cancelled, end)

    def _begin(
        self,
        stream: str,
        content: ListContent,
        after: Mark | None,
        ceiling: Document,
        writer: SpoolWriter,
        limits: Limits,
    ) -> RangeGather:
        wanted = self._wanted(stream, content, after, ceiling)
        return RangeGather(
            self._apis[stream],
            start(wanted, marks.order_of(content), self._apis[stream].options.paging.size),
            writer,
            limits,
            workers=self._workers,
            report=lambda _: None,
            at_page=partial(self._at_page, stream),
        )

    def _at_page(self, stream: str, records: int, earliest: int) -> None:
        self._reporters[stream].count(records, earliest)
        self._context.probe.at("rest.page_spooled")

    # ------------------------------------------------------------ fetching ahead

    def _fetch_others_ahead(self, stream: str, ceiling: Document, budget: Budget) -> None:
        """Begin with the streams whose turn comes next, under what this run has planned for them."""
        free = max(0, self._options.max_concurrent_streams - 1 - len(self._ahead))
        waiting = {
            other: planned
            for other, planned in self._planned.items()
            if other != stream and other not in self._ahead and planned[2]["run"] == ceiling["run"]
        }
        for other, (content, after, planned_ceiling) in list(waiting.items())[:free]:
            self._fetch_ahead(other, content, after, planned_ceiling, budget)

    def _fetch_ahead(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> None:
        ahead_budget = replace(budget, bytes=min(budget.bytes, AHEAD_BYTES))
        limits = Limits(ahead_budget, math.inf, self._context.is_cancelled, memory=AHEAD_COMPRESSED_BYTES)
        writer = SpoolWriter(None, budget.row_bytes)
        gathering = self._begin(stream, ListContent.read(content), after, ceiling, writer, limits)
        gathering.urgency = self._turns[stream]
        self._reporters[stream].begin()
        future = self._loop.start(gathering.run())
        self._ahead[stream] = Ahead(Basis.of(after, content, ceiling), gathering, future)

    def _take_ahead(self, stream: str, basis: Basis) -> RangeGather | None:
        """What was fetched ahead under this basis; anything else is thrown away."""
        ahead = self._ahead.pop(stream, None)
        if ahead is None:
            return None
        if ahead.basis != basis:
            ahead.throw_away()
            return None
        return self._loop.run(ahead.finish())

    def _say_repeated(self, stream: str, repeats: Repeats) -> None:
        for remark in dict.fromkeys(self._apis[stream].remarks):
            self._context.say(stream, remark)
        self._apis[stream].remarks.clear()
        if line := repeats.describe_same():
            self._context.say(stream, line)
        if line := repeats.describe_differing(self._streams[stream].id):
            self._context.warn(stream, line)

    # ------------------------------------------------------------ reading

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        content = ListContent.read(Content.parse(slice_.content))
        folder = self._context.spools.find_gathered(slice_.stream, slice_.spool)
        if folder is None:
            raise StreamFailed(
                f"the spool of slice {slice_.number} is gone or damaged",
                next_step="`penstock state recover FILE` asks the sink, and drops the slice if it does not hold it",
                stream=slice_.stream,
            )
        parts = [Part(index, canonical({"file": file})) for index, file in enumerate(list_files(folder))]
        columns = columns_of(content.columns, content.paths, content.parent_column)
        # A repair may delete objects of a list that has no versions.
        changes = content.changes or (ChangeFields() if Content.parse(slice_.content).changes else None)
        yield Reading(SpoolReader(slice_.stream, columns, content.unit, content.id, changes), parts)

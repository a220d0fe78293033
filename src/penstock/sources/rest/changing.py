"""A rest source that also reads objects again, to find their changes.

A run first reads the objects that are new, then again those that were created in the last `rescan`. Pages of one stream
are delivered in the order in which they were asked for: objects are read again only once nothing new is left, and only
new objects are fetched ahead.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.subdivision import Position as TimePosition
from penstock.core.subdivision import Span, start
from penstock.core.subdivision.spans import intersect
from penstock.ports import Budget, Planned, Spool
from penstock.sources.rest import marks, rescans
from penstock.sources.rest.comparing import ComparableSource
from penstock.sources.rest.content import ListContent
from penstock.sources.rest.gathering import RangeGather
from penstock.sources.rest.list_rows import IsAwaited
from penstock.sources.rest.rescans import Rescan
from penstock.sources.rest.spooling import SpoolWriter
from penstock.sources.rest.times import Unit

#: seconds by which a change may carry an earlier time than the page that did not show it yet
CHANGE_MARGIN_SECONDS = 2


class ChangingSource(ComparableSource):
    """Lists of one API whose objects may change."""

    def accept(self, stream: str, last: Position, content: Content) -> None:
        super().accept(stream, last, content)
        try:
            rescans.split_mark(last.mark)
        except (KeyError, TypeError, ValueError) as error:
            raise marks.refuse_mark(stream, error) from None

    def describe(self, mark: Mark | None) -> str:
        bare, rescan = rescans.split_mark(mark)
        described = super().describe(bare)
        if not rescan.is_under_way:
            return described
        ranges = "1 range" if len(rescan.remaining) == 1 else f"{len(rescan.remaining)} ranges"
        return f"{described}; {ranges} to read again for changes"

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        bare, rescan = rescans.split_mark(after)
        planned = super().plan(stream, content, bare, ceiling, budget)
        if planned is not None:
            return replace(planned, upto=rescans.join_mark(planned.upto, rescan))
        following = self._next_rescan(stream, content, bare, rescan, ceiling)
        if bare is None or not following.is_under_way:
            return None
        # How many objects have changed is known only once they are read. Spark waits until there is one.
        return Planned(rescans.join_mark(bare, following.proceed(())), rows=0)

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        listed = self._gather_new(stream, content, after, ceiling, budget, spool)
        if listed is not None:
            return listed
        bare, rescan = rescans.split_mark(after)
        following = self._next_rescan(stream, content, bare, rescan, ceiling)
        if bare is None or not following.is_under_way:
            return None
        planned = self._gather_again(stream, content, bare, following, budget, spool)
        changes, reached = self._streams[stream].changes, rescans.split_mark(planned.upto)[1]
        was_whole = not rescan.is_under_way and not reached.is_under_way
        if not planned.rows and was_whole and not (changes and changes.every):
            # Nothing has changed: there is nothing to record either.
            return None
        return planned

    def _gather_new(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        """Objects that are new; None: there are none."""
        bare, rescan = rescans.split_mark(after)
        if ListContent.read(content).changes is None:
            return super().gather(stream, content, bare, ceiling, budget, spool)
        if super().plan(stream, content, bare, ceiling, replace(budget, look=False)) is None:
            return None
        planned = super().gather(stream, content, bare, ceiling, budget, spool)
        if planned is None:
            return None
        if bare is None:
            # From here on: what the first pages show is newer.
            rescan = Rescan(checked=_time_of(ceiling))
        return replace(planned, upto=rescans.join_mark(planned.upto, rescan))

    def _find_awaited(self, stream: str, content: ListContent, mark: Mark) -> IsAwaited | None:
        changes, since = self._streams[stream].changes, self._changed_since(stream, rescans.split_mark(mark)[1])
        if changes is None or changes.rescan is None or since is None:
            return None
        unit, seconds = Unit(content.unit), changes.rescan.total_seconds()
        return lambda time, updated, second: updated >= since and time >= unit.steps_of(second - seconds)

    def _changed_since(self, stream: str, rescan: Rescan) -> int | None:
        """Objects that say that they were not changed since this time need not be read again; None: all must be."""
        time_options, unit = self._streams[stream].time, self._apis[stream].unit
        if rescan.checked is None or time_options is None:
            return None
        return rescan.checked - unit.steps_of(time_options.lag + CHANGE_MARGIN_SECONDS)

    def _next_rescan(
        self, stream: str, content: Content, bare: Mark | None, rescan: Rescan, ceiling: Document
    ) -> Rescan:
        """The rescan that is under way, or one that begins now; otherwise the same as before."""
        changes, read = self._streams[stream].changes, ListContent.read(content)
        if rescan.is_under_way or changes is None or changes.rescan is None or read.changes is None:
            return rescan
        unit, now = Unit(read.unit), _time_of(ceiling)
        if not rescan.is_due(now, unit.steps_of(changes.every.total_seconds())):
            return rescan
        window = Span(now - unit.steps_of(changes.rescan.total_seconds()), now)
        return self._begin_rescan(stream, read, bare, rescan, ceiling, window)

    def _begin_rescan(
        self, stream: str, content: ListContent, bare: Mark | None, rescan: Rescan, ceiling: Document, window: Span
    ) -> Rescan:
        """A rescan of what was read in a window and is still configured."""
        configured = self._window(stream, Unit(content.unit), ceiling)
        covered = marks.read_position(bare).covered
        return rescan.begin(_time_of(ceiling), window, _within(covered, configured) if configured else ())

    def _gather_again(
        self, stream: str, content: Content, bare: Mark, rescan: Rescan, budget: Budget, spool: Spool
    ) -> Planned:
        """Read objects again; those that say that they have not changed since are left out."""
        read, api, reporter = ListContent.read(content), self._apis[stream], self._reporters[stream]
        reporter.begin()
        gathering = RangeGather(
            api,
            start(TimePosition(rescan.remaining), marks.order_of(read), api.options.paging.size),
            SpoolWriter(spool.path, budget.row_bytes),
            self._limits(budget),
            workers=self._workers,
            report=reporter.report,
            at_page=partial(self._at_page, stream),
            changed_since=self._changed_since(stream, rescan),
        )
        try:
            state = self._loop.start(gathering.run()).result()
        finally:
            reporter.report(gathering.writer.rows, last=True)
        reached = rescan.proceed(state.position().remaining)
        return Planned(rescans.join_mark(bare, reached), rows=gathering.writer.rows, exact=True)


def _time_of(ceiling: Document) -> int:
    bound: Any = ceiling["lt"]
    return int(bound)


def _within(covered: tuple[Span, ...], configured: Span) -> tuple[Span, ...]:
    return tuple(found for span in covered if (found := intersect(span, configured)) is not None)

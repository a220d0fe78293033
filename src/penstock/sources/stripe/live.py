"""Applies Stripe's events to the lists: what is created, changed or deleted after a list was read.

A stream's slices are, in this order: objects that are new in its list; objects that are read again, because events were
missed; events. Pages are therefore delivered in the order in which they were asked for, and events after all pages that
were asked for before them: a page cannot bring back an object whose delete was delivered.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark, Position
from penstock.core.sizes import shown_duration
from penstock.core.subdivision import Span
from penstock.errors import PenstockError, StreamRefused
from penstock.links.http.failures import ResourceRefused
from penstock.ports import Budget, Context, Planned, Remark, Spool
from penstock.sources import rest
from penstock.sources.rest import rescans
from penstock.sources.rest.changing import ChangingSource
from penstock.sources.rest.content import ListContent
from penstock.sources.rest.lists import ListApi
from penstock.sources.rest.marks import refuse_mark
from penstock.sources.rest.options import TimeRange, read_time
from penstock.sources.rest.spooling import SpoolWriter
from penstock.sources.rest.times import Unit
from penstock.sources.stripe import feed
from penstock.sources.stripe.feed import Event, FeedPosition, Snapshot, Taken, take
from penstock.sources.stripe.feed_reader import FeedReader
from penstock.sources.stripe.lists import TIME_FIELDS, ListEvents

#: a run that has read lists for longer than this reads the feed again before it applies events
FRESH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Which streams get events, and how."""

    #: by stream, its list's name and events
    streams: Mapping[str, tuple[str, ListEvents]]
    #: the list of events itself
    events: rest.StreamOptions
    #: seconds for which an event may be listed late
    overlap: int
    #: objects created in this time are read again if events were missed
    rescan: timedelta
    #: the version of the API that lists are read in
    api_version: str


class LiveSource(ChangingSource):
    """Lists of one account, with events applied to those that have any. The feed is read once for all in a run."""

    def __init__(
        self,
        options: rest.Options,
        streams: Mapping[str, rest.StreamOptions],
        context: Context,
        live: LiveSettings,
    ) -> None:
        super().__init__(options, streams, context)
        self._live = live
        fields = {events.kind: TIME_FIELDS.get(name, "created") for name, events in live.streams.values()}
        self._feed = FeedReader(ListApi(self._account, "events", live.events, options), fields)
        self._forget_feed()

    def _forget_feed(self) -> None:
        self._feed_run: str | None = None
        #: when the run's time is over, by time.monotonic()
        self._end = math.inf
        #: the feed up to now, and when it was read; a part of it, where it is too long to be held
        self._newest: tuple[Snapshot, float] | None = None
        self._part: Snapshot | None = None
        self._feed_failure: PenstockError | None = None
        #: by stream without a mark, its position before its first page was asked for
        self._begins: dict[str, FeedPosition] = {}
        #: streams whose lists were read in this run
        self._has_read: set[str] = set()
        self._has_said_version = False

    def close(self) -> None:
        super().close()
        self._forget_feed()

    # ------------------------------------------------------------ what the engine asks

    def accept(self, stream: str, last: Position, content: Content) -> None:
        super().accept(stream, last, content)
        try:
            feed.split_mark(last.mark)
        except ValueError as error:
            raise refuse_mark(stream, error) from None

    def describe(self, mark: Mark | None) -> str:
        bare, position = feed.split_mark(mark)
        described = super().describe(bare)
        return described if position is None else f"{described}; events from {Unit('seconds').show(position.since)} on"

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        from penstock.sources.stripe.explain import live_remarks

        found = list(super().explain(stream, content))
        events = self._events_of(stream, content)
        return found if events is None else live_remarks(found, events, self._live.overlap, self._live.rescan)

    def ceiling(self, stream: str, content: Content, run: str, after: Mark | None = None) -> Document | None:
        if run != self._feed_run:
            self._forget_feed()
            self._feed_run = run
        return super().ceiling(stream, content, run, feed.split_mark(after)[0])

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        bare, position = feed.split_mark(after)
        self._end = self._limits(budget).end
        events = self._events_of(stream, content)
        if events is None:
            return super().plan(stream, content, bare, ceiling, budget)
        snapshot = self._read_feed(stream, position)
        if bare is None:
            # Pages may be fetched ahead from here on.
            position = self._begins.setdefault(stream, FeedPosition(snapshot.read_at))
        planned = super().plan(stream, content, bare, ceiling, budget)
        if planned is not None:
            return replace(planned, upto=feed.join_mark(planned.upto, position)) if position else planned
        if bare is None:
            return None
        if position is None or position.is_lost(snapshot):
            return Planned(feed.join_mark(bare, FeedPosition.earliest(snapshot)), rows=0)
        taken = self._take(stream, events, position, snapshot, budget)
        if not taken.events and not taken.is_stale:
            return None
        return Planned(feed.join_mark(bare, taken.position), rows=len(taken.events), exact=True)

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        bare, position = feed.split_mark(after)
        self._end = self._limits(budget).end
        events = self._events_of(stream, content)
        if events is None:
            return super().gather(stream, content, bare, ceiling, budget, spool)
        if bare is None and stream not in self._begins:
            self._begins[stream] = FeedPosition(self._read_feed(stream, None).read_at)
        listed = self._gather_new(stream, content, bare, ceiling, budget, spool)
        if listed is not None:
            self._has_read.add(stream)
            if bare is None:
                position = self._begins.pop(stream)
            return replace(listed, upto=feed.join_mark(listed.upto, position)) if position else listed
        if bare is None:
            return None
        snapshot = self._read_feed(stream, position)
        list_mark, rescan = rescans.split_mark(bare)
        if position is None or position.is_lost(snapshot):
            again, following = rescan.began or rescan.checked, FeedPosition.earliest(snapshot)
            if position is None or again is None or FeedPosition(again).is_lost(snapshot):
                planned = self._catch_up(stream, content, bare, position, ceiling, budget, spool)
                return replace(planned, upto=feed.join_mark(planned.upto, following))
            # Objects were read again since then: that has only taken long.
            position, snapshot = following, self._read_feed(stream, following)
        if rescan.is_under_way and list_mark is not None:
            self._has_read.add(stream)
            planned = self._gather_again(stream, content, list_mark, rescan, budget, spool)
            return replace(planned, upto=feed.join_mark(planned.upto, position))
        return self._gather_events(stream, events, bare, position, snapshot, budget, spool)

    # ------------------------------------------------------------ the feed

    def _events_of(self, stream: str, content: Content) -> ListEvents | None:
        """The events of a stream; None: it has none, or its next slice is still one without them."""
        found = self._live.streams.get(stream)
        return found[1] if found and ListContent.read(content).changes is not None else None

    def _read_feed(self, stream: str, position: FeedPosition | None) -> Snapshot:
        """The feed from a position on, as this run has read it, or as it is now."""
        since = position.since if position else None
        newest, now = self._newest, time.monotonic()
        if newest is not None and not (stream in self._has_read and now - newest[1] > FRESH_SECONDS):
            if since is None or newest[0].low <= since:
                return newest[0]
            if position and position.is_lost(newest[0]):
                return newest[0]
        if self._part is not None and since is not None and self._part.covers(since):
            return self._part
        if self._feed_failure is not None:
            raise self._of_stream(self._feed_failure, stream)
        try:
            snapshot = self._loop.run(self._feed.read(since), self._end)
        except PenstockError as failure:
            self._feed_failure = failure
            raise self._of_stream(failure, stream) from None
        if snapshot.high is None:
            self._newest = snapshot, now
            self._has_read.discard(stream)
        else:
            self._part = snapshot
        return snapshot

    def _of_stream(self, failure: PenstockError, stream: str) -> PenstockError:
        """The failure of the feed as that of a stream that needs it."""
        if isinstance(failure, ResourceRefused):
            return StreamRefused(
                f"the key may not read Stripe's events, which `live` applies: {failure.what}",
                next_step="give the key the right to read events, or set `live: false`",
                stream=stream,
            )
        own = copy.copy(failure)
        own.stream = stream
        return own

    def _find_pending(self, stream: str, content: Content, mark: Mark) -> Collection[str]:
        events, position = self._events_of(stream, content), feed.split_mark(mark)[1]
        if events is None or position is None:
            return ()
        found: set[str] = set()
        since: int | None = position.since
        while since is not None:
            # Read again: an object may have changed since the last look.
            snapshot = self._loop.run(self._feed.read(since))
            found.update(
                event.object_id
                for event in snapshot.events
                if event.kind == events.kind and event.created >= position.since and event.id not in position.seen
            )
            since = snapshot.high
        return found

    def _may_move(self) -> bool:
        return False

    def _take(
        self, stream: str, events: ListEvents, position: FeedPosition, snapshot: Snapshot, budget: Budget
    ) -> Taken:
        low, high = self._configured(stream)

        def is_wanted(event: Event) -> bool:
            at = event.object_time
            return at is None or (low <= at and (high is None or at < high))

        return take(
            position,
            snapshot,
            events.kind,
            overlap=self._live.overlap,
            deleted=events.deleted,
            is_wanted=is_wanted,
            most_rows=budget.rows,
            most_bytes=budget.bytes,
        )

    def _configured(self, stream: str) -> tuple[int, int | None]:
        """The configured range of time: an object outside of it is not delivered, even if it changes."""
        given, unit = self._streams[stream].time_range or self._options.time_range or TimeRange(), Unit("seconds")
        low = unit.of(read_time(given.from_)) if given.from_ else 0
        return low, unit.of(read_time(given.to)) if given.to else None

    # ------------------------------------------------------------ slices

    def _gather_events(
        self,
        stream: str,
        events: ListEvents,
        bare: Mark,
        position: FeedPosition,
        snapshot: Snapshot,
        budget: Budget,
        spool: Spool,
    ) -> Planned | None:
        taken = self._take(stream, events, position, snapshot, budget)
        if not taken.events and not taken.is_stale:
            return None
        if taken.is_shortened:
            self._remark(
                stream,
                "too many events lie within the overlap to remember all: an event that is listed late may be missed",
                self._context.warn,
            )
        self._say_version(stream, taken.events)
        writer = SpoolWriter(spool.path, budget.row_bytes)
        try:
            writer.write([event.line(is_delete=event.type == events.deleted) for event in taken.events])
        finally:
            writer.close()
        self._context.probe.at("rest.page_spooled")
        return Planned(feed.join_mark(bare, taken.position), rows=len(taken.events), exact=True)

    def _catch_up(
        self,
        stream: str,
        content: Content,
        bare: Mark,
        position: FeedPosition | None,
        ceiling: Document,
        budget: Budget,
        spool: Spool,
    ) -> Planned:
        """Read objects again, because events are gone. The feed is followed from the earliest event on."""
        span = shown_duration(self._live.rescan)
        why = "the stream was read without events until now"
        if position is not None:
            why = f"events since {Unit('seconds').show(position.since)} are gone, because Stripe keeps them for 30 days"
        # Switching `live` on is no loss.
        say = self._context.say if position is None else self._context.warn
        say(
            stream,
            f"{why}: objects created in the last {span} are read again. Changes of older objects, and deletes, are "
            "only found where Stripe still has the event",
        )
        list_mark, rescan = rescans.split_mark(bare)
        assert list_mark is not None
        read = ListContent.read(content)
        now = ceiling["lt"]
        assert isinstance(now, int)
        window = Span(now - int(self._live.rescan.total_seconds()), now)
        rescan = self._begin_rescan(stream, read, list_mark, replace(rescan, remaining=()), ceiling, window)
        if not rescan.is_under_way:
            return Planned(bare, rows=0, exact=True)
        self._has_read.add(stream)
        return self._gather_again(stream, content, list_mark, rescan, budget, spool)

    def _say_version(self, stream: str, events: Sequence[Event]) -> None:
        other = next((each for each in events if each.api_version not in (None, self._live.api_version)), None)
        if other is None or self._has_said_version:
            return
        self._has_said_version = True
        self._context.say(
            stream,
            f"objects in events are written in version {other.api_version} of the API, and lists are read in version "
            f"{self._live.api_version}: a field may be missing or look different in a row that comes from an event",
        )

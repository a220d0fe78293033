"""Reads Stripe's events, newest first: everything since a second, or as much of it as fits into memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import StreamFailed
from penstock.links.http.failures import GONE, RequestRefused, ResourceRefused
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.rest.standstill import RESTARTS
from penstock.sources.stripe.feed import KEPT_SECONDS, MARGIN_SECONDS, Event, Snapshot, place_events

#: events that are held at a time
MOST_EVENTS = 20_000
EVENTS_PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class _Found:
    """An event of the feed; without an object if no stream wants it."""

    id: str
    created: int
    event: Event | None


class FeedReader:
    """The feed of one account."""

    def __init__(self, api: ListApi, time_fields: Mapping[str, str], most: int = MOST_EVENTS) -> None:
        """`time_fields`: by each type of object that streams want, the field with its time."""
        self._api, self._time_fields, self._most = api, time_fields, most

    async def read(self, since: int | None) -> Snapshot:
        """Every event since a second; only the first of them if there are too many. None: from now on."""
        found = await self._pages(None, None, since)
        if not found.is_full or since is None:
            return found.snapshot(None)
        low, high = since, max(since + 1, found.lowest)
        while True:
            # As much time as the last reading held; half of it, because events may lie closer there.
            high = low + max(1, min(high - low, (found.highest - found.lowest + 1) // 2))
            found = await self._pages(low, high, low)
            if not found.is_full or high - low == 1:
                return found.snapshot(high)

    async def _pages(self, gte: int | None, lt: int | None, since: int | None) -> _Reading:
        reading = _Reading(gte or 0)
        # A single second is always read whole.
        most = None if gte is not None and lt == gte + 1 else self._most
        cursor, restarts = None, 0
        while True:
            try:
                page = await self._api.fetch(Asked(gte, lt, cursor, EVENTS_PER_PAGE))
            except (RequestRefused, ResourceRefused) as refused:
                is_gone = not isinstance(refused, ResourceRefused) or refused.status in GONE
                if cursor is None or not is_gone or restarts >= RESTARTS:
                    raise
                # The event that the cursor names may be too old to be listed by now: go on from its time.
                restarts += 1
                cursor, lt = None, reading.lowest + 1
                reading.restart()
                continue
            if not reading.is_begun:
                reading.begin(self._second_of(page))
                since = reading.read_at if since is None else since
                if since < reading.read_at - KEPT_SECONDS + MARGIN_SECONDS:
                    since = reading.read_at  # it is lost anyway
            has_new = reading.add(
                [self._parse(text, created, id_) for (created, id_), text in zip(page.records, page.texts, strict=True)]
            )
            restarts = 0 if has_new else restarts
            reading.has_ended = not page.has_more
            if reading.has_ended or (reading.found and reading.lowest < (since or 0)):
                return reading
            if most is not None and len(reading.found) >= most:
                reading.is_full = True
                return reading
            if not reading.may_go_on(page.cursor, has_new=has_new):
                raise StreamFailed(
                    "Stripe's list of events says that more follow, and gives nothing new",
                    next_step="run again; if it stays, set `live: false` and report it",
                )
            cursor = page.cursor

    def _second_of(self, page: FetchedPage) -> int:
        if page.date is None:
            raise StreamFailed(
                "Stripe's answer has no header `Date`, so events cannot be compared with pages",
                next_step="let proxies pass the header `Date`, or set `live: false`",
            )
        return page.second

    def _parse(self, text: bytes, created: int, id_: str) -> _Found:
        import msgspec

        try:
            event = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            parts = msgspec.json.decode(event["data"], type=dict[str, msgspec.Raw])
            raw = bytes(parts["object"])
            fields: Any = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            kind = msgspec.json.decode(fields["object"], type=str) if "object" in fields else ""
            object_id = msgspec.json.decode(fields.get("id", b"null"), type=str | None)
            if kind not in self._time_fields or object_id is None:
                return _Found(id_, created, None)  # an invoice that does not exist yet has no id
            type_ = msgspec.json.decode(event["type"], type=str)
            version = msgspec.json.decode(event.get("api_version", b"null"))
            at = fields.get(self._time_fields[kind], b"null")
            time = msgspec.json.decode(at)
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise StreamFailed(
                f"event {id_} is not one of Stripe's: {error}",
                next_step="run again; if it stays, set `live: false` and report the event",
            ) from None
        time = time if type(time) is int else None
        return _Found(id_, created, Event(id_, created, 0, type_, kind, object_id, time, version, raw))


class _Reading:
    """Pages of the feed, newest first."""

    def __init__(self, low: int) -> None:
        self.found: dict[str, _Found] = {}
        self.read_at = -1
        self.has_ended = self.is_full = False
        #: cursors that pages without a new event have led to
        self._met: set[str | None] = set()
        self._low = low

    @property
    def is_begun(self) -> bool:
        return self.read_at >= 0

    @property
    def highest(self) -> int:
        return next(iter(self.found.values())).created

    @property
    def lowest(self) -> int:
        return next(reversed(self.found.values())).created

    def begin(self, second: int) -> None:
        self.read_at = second

    def add(self, events: list[_Found]) -> bool:
        """Whether one of them is new."""
        before = len(self.found)
        for each in events:
            self.found.setdefault(each.id, each)
        return len(self.found) > before

    def restart(self) -> None:
        """Pages that brought nothing new are asked for again."""
        self._met.clear()

    def may_go_on(self, cursor: str | None, *, has_new: bool) -> bool:
        """Whether a page leads to a place that pages without anything new have not led to."""
        if has_new:
            self._met.clear()
        is_met = cursor is None or (not has_new and cursor in self._met)
        self._met.add(cursor)
        return not is_met

    def snapshot(self, high: int | None) -> Snapshot:
        """What was read. The last second may be incomplete if there is more."""
        low = self._low if self.has_ended else self.lowest + 1
        in_order = [(each.created, each) for each in reversed(self.found.values()) if each.created >= low]
        events = tuple(replace(each.event, place=place) for place, each in place_events(in_order) if each.event)
        times = tuple(created for created, _ in in_order)
        return Snapshot(low, high, self.read_at, events, times, self.has_ended and high is None)

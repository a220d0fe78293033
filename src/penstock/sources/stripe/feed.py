"""Stripe's events as changes of a stream's objects: which are new to a stream, in which order they apply. Pure.

Each stream has its own position in the feed: the second from which events are still to be read, and the ids of those at
or after it that were delivered. An event may be listed late, so the position stays behind the feed by an overlap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.core.documents import Json
from penstock.core.marks import Mark
from penstock.sources.rest.stamps import stamp_event

#: how long Stripe lists an event
KEPT_SECONDS = 30 * 86400
#: a position is given up this long before its events are gone
MARGIN_SECONDS = 86400
#: ids that a mark keeps at most, but for those of one second
MOST_SEEN = 5000
#: a position without news moves on once this many events, or this many seconds, lie behind it
STALE_EVENTS, STALE_SECONDS = 500, 86400
#: the mark's field
FIELD = "feed"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to an object."""

    id: str
    #: seconds since 1970
    created: int
    #: its place among the events of that second, from 1: the later one has the higher place
    place: int
    type: str
    #: the object's type, such as `charge`
    kind: str
    object_id: str
    #: the object's own time; None: it has none
    object_time: int | None
    #: version of the API that the object is written in
    api_version: str | None
    #: the object, as Stripe wrote it
    text: bytes

    def line(self, *, is_delete: bool) -> bytes:
        """The object as a line of a spool."""
        return stamp_event(self.text, self.created, self.place, is_delete=is_delete)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A part of the feed that was read without a gap."""

    #: the first second of which every event was read
    low: int
    #: the second before which events were read; None: up to now
    high: int | None
    #: the second in which reading began, by Stripe's clock
    read_at: int
    #: events of the objects that streams want, oldest first
    events: tuple[Event, ...]
    #: times of all events, oldest first
    times: tuple[int, ...]
    #: whether there is no older event
    has_ended: bool

    def covers(self, second: int) -> bool:
        return self.low <= second and (self.high is None or second < self.high)


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """How far a stream is in the feed."""

    #: the second from which events are read
    since: int
    #: by id, the seconds of the events at or after `since` that were delivered
    seen: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def earliest(cls, snapshot: Snapshot) -> FeedPosition:
        """The earliest position whose events stay listed for another day: as many deletes as possible are found."""
        return cls(snapshot.read_at - KEPT_SECONDS + 2 * MARGIN_SECONDS)

    def is_lost(self, snapshot: Snapshot) -> bool:
        """Whether events after this position may be gone from the feed."""
        if self.since < snapshot.read_at - KEPT_SECONDS + MARGIN_SECONDS:
            return True
        # Stripe may keep less than it says: an event that was delivered is older than the oldest one now.
        oldest = snapshot.times[0] if snapshot.times else snapshot.read_at + 1
        return snapshot.has_ended and any(created < oldest for created in self.seen.values())


@dataclass(frozen=True, slots=True)
class Taken:
    """Events for one slice of a stream."""

    #: in the order in which they apply
    events: tuple[Event, ...]
    #: the position once they are delivered
    position: FeedPosition
    #: whether the position should move on although there are no events: reading from it costs more and more
    is_stale: bool = False
    #: whether events that are listed late may be missed, because too many ids would have to be kept
    is_shortened: bool = False


def take(
    position: FeedPosition,
    snapshot: Snapshot,
    kind: str,
    *,
    overlap: int,
    deleted: str | None = None,
    is_wanted: Callable[[Event], bool] = lambda _: True,
    most_rows: int | None = None,
    most_bytes: int | None = None,
) -> Taken:
    """The events of a kind of object that are new after a position, oldest first, as many as one slice may have.

    `deleted` is the type of the events that are deletes. An event that is listed so late that its object's delete, or
    a later event of the same second, was delivered before it is left out: a table could not tell that it is older.
    """
    ours = [event for event in snapshot.events if event.kind == kind and event.created >= position.since]
    is_late = _find_later(ours, position, deleted)
    fresh = [event for event in ours if event.id not in position.seen and is_wanted(event) and not is_late(event)]
    chosen = fresh[: _fitting(fresh, most_rows, most_bytes)]
    settled = snapshot.read_at - overlap
    is_dense = snapshot.high is not None and snapshot.high > settled
    if snapshot.high is not None:
        # Where more events lie within the overlap than can be held, it is shorter: reading must go on.
        settled = snapshot.high
    if len(chosen) < len(fresh):
        settled = min(settled, fresh[len(chosen)].created)
    since = max(position.since, settled)
    left = {event.id for event in fresh[len(chosen) :]}
    known = {**position.seen, **{event.id: event.created for event in ours if event.id not in left}}
    shortest = _bound(since, sorted(known.values()), fresh[len(chosen)].created if left else None)
    seen = {id_: created for id_, created in sorted(known.items()) if created >= shortest}
    passed = bisect_left(snapshot.times, since) - bisect_left(snapshot.times, position.since)
    is_stale = passed >= STALE_EVENTS or since - position.since >= STALE_SECONDS or _ends_inside(snapshot, position)
    is_shortened = shortest > since or (is_dense and len(chosen) == len(fresh))
    return Taken(tuple(chosen), FeedPosition(shortest, seen), is_stale, is_shortened)


def _find_later(events: Sequence[Event], position: FeedPosition, deleted: str | None) -> Callable[[Event], bool]:
    """Whether something was delivered before an event that makes it too late.

    Places in a second are counted again with every reading, so they do not tell which of two readings had the later
    event. A removed row leaves no time to compare with.
    """
    delivered = [event for event in events if event.id in position.seen]
    gone = {event.object_id: (event.created, event.place) for event in delivered if event.type == deleted}
    last = {(event.object_id, event.created): event.place for event in delivered}

    def is_late(event: Event) -> bool:
        if (event.created, event.place) < gone.get(event.object_id, (0, 0)):
            return True
        return event.place < last.get((event.object_id, event.created), 0)

    return is_late


def _ends_inside(snapshot: Snapshot, position: FeedPosition) -> bool:
    """Whether more of the feed follows, which is read from the end of this part on."""
    return snapshot.high is not None and position.since < snapshot.high


def _fitting(events: Sequence[Event], most_rows: int | None, most_bytes: int | None) -> int:
    """How many of the events fit into a slice: one at least."""
    size = 0
    for number, event in enumerate(events):
        size += len(event.text)
        if number and (number == most_rows or (most_bytes is not None and size > most_bytes)):
            return number
    return len(events)


def _bound(since: int, times: Sequence[int], limit: int | None) -> int:
    """The position with which no more ids are kept than allowed; it never passes `limit`."""
    times = times[bisect_left(times, since) :]
    if len(times) <= MOST_SEEN:
        return since
    at = max(since, times[-MOST_SEEN])
    return at if limit is None else min(at, limit)


def place_events(events: Iterable[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Number (second, anything) within each second, from 1; they come oldest first. Returns (place, anything)."""
    placed: list[tuple[int, Any]] = []
    second, place = -1, 0
    for created, event in events:
        place = place + 1 if created == second else 1
        second = created
        placed.append((place, event))
    return placed


# ---------------------------------------------------------------- the mark


def split_mark(mark: Mark | None) -> tuple[Mark | None, FeedPosition | None]:
    """A mark without the position in the feed, and that position. ValueError if it is not one of ours."""
    if mark is None or FIELD not in mark.document:
        return mark, None
    document = dict(mark.document)
    found: Any = document.pop(FIELD)
    try:
        since, seen = found["since"], dict(found["seen"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"it has no position in the feed: {error!r}") from None
    if type(since) is not int or not all(type(each) is int for each in seen.values()):
        raise ValueError("its position in the feed has no times")
    return Mark.of(document), FeedPosition(since, seen)


def join_mark(mark: Mark, position: FeedPosition) -> Mark:
    """A mark with the position in the feed."""
    kept: dict[str, Json] = {"since": position.since, "seen": dict(position.seen)}
    return Mark.of({**mark.document, FIELD: kept})

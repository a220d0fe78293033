"""Positions in Stripe's feed and the order of versions: every event once, and the newest version stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.marks import Mark
from penstock.sources.rest.stamps import MICROS, read_stamp, stamp_event, stamp_page, version_of
from penstock.sources.stripe import feed
from penstock.sources.stripe.feed import Event, FeedPosition, Snapshot, place_events, take

DELETED = "customer.deleted"
#: seconds for which an event may be listed late
OVERLAP = 20


def event(
    number: int, created: int, *, kind: str = "customer", type_: str = "customer.updated", of: str = "a"
) -> Event:
    return Event(f"evt_{number}", created, 1, type_, kind, of, None, None, b"{}")


def snapshot(events: list[Event], read_at: int, low: int = 0) -> Snapshot:
    """The feed as Stripe lists it: by time, and within a second in the order of the list."""
    in_order = sorted(events, key=lambda each: each.created)
    placed = tuple(
        replace(each, place=place) for place, each in place_events((each.created, each) for each in in_order)
    )
    return Snapshot(low, None, read_at, placed, tuple(each.created for each in placed), has_ended=True)


# ---------------------------------------------------------------- positions


@st.composite
def feeds(draw: st.DrawFn) -> list[tuple[Event, int]]:
    """Events, each with the second at which it is listed: at most OVERLAP late."""
    times = sorted(draw(st.lists(st.integers(0, 150), max_size=40)))
    return [
        (
            event(n, at, kind=draw(st.sampled_from(["customer", "charge"])), of=f"object {n}"),
            at + draw(st.integers(0, OVERLAP - 1)),
        )
        for n, at in enumerate(times)
    ]


@given(feeds(), st.lists(st.integers(0, 200), max_size=12), st.none() | st.integers(1, 4))
def test_every_event_is_taken_once_however_late_and_however_it_is_cut(
    listed: list[tuple[Event, int]], readings: list[int], most: int | None
) -> None:
    position, taken = FeedPosition(0), []
    for now in [*sorted(readings), 200 + OVERLAP]:
        seen_now = snapshot([each for each, at in listed if at <= now], now)
        while True:
            found = take(position, seen_now, "customer", overlap=OVERLAP, most_rows=most)
            taken += [each.id for each in found.events]
            position = FeedPosition(found.position.since, found.position.seen)
            if not found.events:
                break
    assert sorted(taken) == sorted(each.id for each, _ in listed if each.kind == "customer")
    assert all(created >= position.since for created in position.seen.values())


def test_the_mark_keeps_no_more_ids_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_SEEN", 10)
    found = take(FeedPosition(0), snapshot([event(n, n) for n in range(100)], 100), "customer", overlap=1000)
    assert len(found.events) == 100
    assert len(found.position.seen) == 10
    assert found.position.since == 90
    assert found.is_shortened


def test_a_position_without_news_moves_on_once_it_costs_too_much() -> None:
    others = [event(n, n, kind="charge") for n in range(feed.STALE_EVENTS)]
    assert take(FeedPosition(0), snapshot(others, 10_000), "customer", overlap=OVERLAP).is_stale
    assert not take(FeedPosition(0), snapshot(others[1:], 10_000), "customer", overlap=OVERLAP).is_stale
    quiet = take(FeedPosition(0), snapshot([], feed.STALE_SECONDS + OVERLAP), "customer", overlap=OVERLAP)
    assert quiet.is_stale
    assert quiet.position == FeedPosition(feed.STALE_SECONDS)


def test_a_position_is_lost_with_its_events() -> None:
    month = feed.KEPT_SECONDS
    assert not FeedPosition(10_000).is_lost(snapshot([], 10_000))
    assert not FeedPosition(10_000).is_lost(snapshot([], 10_000 + month - feed.MARGIN_SECONDS))
    assert FeedPosition(10_000).is_lost(snapshot([], 10_001 + month - feed.MARGIN_SECONDS))
    # The feed is shorter than Stripe says: what was delivered is not in it any more.
    assert FeedPosition(10, {"evt_1": 20}).is_lost(snapshot([event(2, 50)], 100))
    assert FeedPosition(10, {"evt_1": 20}).is_lost(snapshot([], 100))
    assert not FeedPosition(10, {"evt_1": 20}).is_lost(snapshot([event(1, 20)], 100))


def test_the_mark_carries_the_position() -> None:
    bare = Mark.of({"remaining": [], "covered": []})
    for position in (FeedPosition(5), FeedPosition(7, {"evt_1": 8})):
        assert feed.split_mark(feed.join_mark(bare, position)) == (bare, position)
    assert feed.split_mark(bare) == (bare, None)
    documents: tuple[Any, ...] = ({}, {"since": 1}, {"since": "1", "seen": {}}, {"since": 1, "seen": {"evt": "2"}}, [])
    for broken in documents:
        with pytest.raises(ValueError, match="position in the feed"):
            feed.split_mark(Mark.of({"feed": broken}))


# ---------------------------------------------------------------- versions


def test_an_event_wins_over_a_page_of_its_second_and_the_later_event_over_the_earlier() -> None:
    (page,), (next_page,) = stamp_page([b"{}"], 7), stamp_page([b"{}"], 8)
    first, second = (stamp_event(b"{}", 7, place, is_delete=False) for place in (1, 2))
    times = [read_stamp(line)[0] for line in (page, first, second, next_page)]
    assert times == sorted(set(times))
    # Beyond the last microsecond, places share one; they never reach the next second.
    assert read_stamp(stamp_event(b"{}", 7, 5_000_000, is_delete=True)) == (8 * MICROS - 1, True, b"{}")


def test_a_version_that_was_read_in_the_second_of_its_change_may_be_replaced() -> None:
    at = 7 * MICROS
    assert version_of(at, 7 * MICROS) == at
    assert version_of(at, 8 * MICROS) == version_of(at, 9 * MICROS) == at + 1
    assert version_of(at + 500_000, 7 * MICROS) == at + 500_000


class Table:
    """A keyed table that takes newer versions only, as the Postgres sink does."""

    def __init__(self, *, keeps_deletes: bool) -> None:
        self.rows: dict[str, tuple[int, str | None]] = {}
        self.keeps_deletes = keeps_deletes

    def commit(self, rows: list[tuple[str, int, str | None]]) -> None:
        newest: dict[str, tuple[int, str | None]] = {}
        for key, version, value in rows:
            if key not in newest or version >= newest[key][0]:
                newest[key] = version, value
        for key, (version, value) in newest.items():
            held = self.rows.get(key)
            if value is None and held is not None and version >= held[0]:
                self.rows[key] = version, None
                if not self.keeps_deletes:
                    del self.rows[key]
            elif value is not None and (held is None or version > held[0]):
                self.rows[key] = version, value

    def shown(self) -> dict[str, str]:
        return {key: value for key, (_, value) in self.rows.items() if value is not None}


KEYS = "abcd"


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, str, int]]:
    """What happens, in order, in quarters of a second: (what, key, how late its event is in seconds)."""
    what = st.sampled_from(["change"] * 4 + ["delete", "page", "page", "events", "wait"])
    return draw(
        st.lists(st.tuples(what, st.sampled_from(KEYS), st.sampled_from([0, 0, 1, 5, OVERLAP - 2])), max_size=60)
    )


@example([("change", "a", 0), ("events", "a", 0), ("change", "a", 0), ("events", "a", 0)], False, 0)
@example([("change", "b", 5), ("change", "a", 5), ("change", "a", 0), ("events", "a", 0), ("wait", "a", 0)], False, 0)
@given(histories(), st.booleans(), st.integers(0, 3))
def test_the_newest_version_stays_whatever_happens_while_lists_and_events_are_read(
    history: list[tuple[str, str, int]], keeps_deletes: bool, slow: int
) -> None:
    """Objects change and are deleted between pages that are read one by one, and events of which some are late."""
    truth = dict.fromkeys(KEYS, "0")
    deleted: set[str] = set()
    table, position = Table(keeps_deletes=keeps_deletes), FeedPosition(100)
    events: list[tuple[Event, int]] = []
    values: dict[str, str] = {}
    quarter = 400

    def apply_events(now: int) -> None:
        nonlocal position
        found = take(
            position,
            snapshot([each for each, at in events if at <= now], now),
            "customer",
            overlap=OVERLAP,
            deleted=DELETED,
        )
        rows: list[tuple[str, int, str | None]] = []
        for each in found.events:
            at, is_delete, _ = read_stamp(each.line(is_delete=each.type == DELETED))
            rows.append((each.object_id, at, None if is_delete else values[each.id]))
        table.commit(rows)
        position = found.position

    table.commit([(key, 100 * MICROS, "0") for key in KEYS])
    for number, (what, key, late) in enumerate(history):
        quarter += 1
        now = quarter // 4
        if what == "page":
            # Asked for up to `slow` quarters before it was answered: its stamp is not later than what it shows.
            (line,) = stamp_page([b"{}"], (quarter - slow) // 4)
            if key in truth:
                table.commit([(key, read_stamp(line)[0], truth[key])])
        elif what == "events":
            apply_events(now)
        elif what == "wait":
            quarter += 40
        elif key not in deleted:
            id_ = f"evt_{number}"
            values[id_] = truth[key] = str(number)
            if what == "delete":
                deleted.add(key)
                del truth[key]
            type_ = DELETED if what == "delete" else "customer.updated"
            events.append((Event(id_, now, 1, type_, "customer", key, None, None, b"{}"), now + late))
    apply_events(quarter // 4 + OVERLAP)
    assert table.shown() == truth

"""Reading Stripe's feed: without a gap, in parts where it is long, and only as far back as a position needs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.harness.rest_server import RestServer

from penstock.errors import StreamFailed, StreamRefused
from penstock.links.http.account import Account
from penstock.sources import stripe
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.stripe.feed import KEPT_SECONDS, FeedPosition, Snapshot, take
from penstock.sources.stripe.feed_reader import FeedReader
from penstock.sources.stripe.lists import EVENTS
from penstock.sources.stripe.options import Options, StreamOptions

Read = Callable[[int | None, int], Snapshot]


@pytest.fixture
def server() -> Iterator[RestServer]:
    with RestServer({"customers": {}, "charges": {}, "events": {}}) as server:
        yield server


@pytest.fixture
def read(server: RestServer) -> Read:
    """Read the feed since a second, with at most so many events at a time."""
    given = Options(api_key="sk_test_1", base_url=f"{server.url}/v1", rate_limit=1000)  # type: ignore[arg-type]  # as in a file

    def read_once(since: int | None, most: int) -> Snapshot:
        async def ask() -> Snapshot:
            options = stripe.account_options(given)
            account = Account(options)
            try:
                api = ListApi(account, "events", stripe.stream_options("events", StreamOptions()), options)
                return await FeedReader(api, {"customer": "created"}, most).read(since)
            finally:
                await account.close()

        return asyncio.run(ask())

    return read_once


def happen(server: RestServer, count: int, *, in_a_second: int = 3) -> None:
    """Customers are created, and charges between them, which nobody asks for."""
    for number in range(count):
        server.create("charges" if number % 4 == 0 else "customers")
        if number % in_a_second == in_a_second - 1:
            server.set_clock(server.now + 1)


def test_a_long_feed_is_read_in_parts_and_every_event_once(server: RestServer, read: Read) -> None:
    begin = server.now
    happen(server, 700)
    happen(server, 350, in_a_second=350)  # more in a second than fit
    happen(server, 150)
    position, taken, parts = FeedPosition(begin), list[str](), 0
    for _ in range(30):
        snapshot = read(position.since, 300)
        assert snapshot.covers(position.since)
        found = take(position, snapshot, "customer", overlap=60)
        taken += [event.object_id for event in found.events]
        parts += 1
        if snapshot.high is None:
            break
        assert found.is_stale, "a part without events is passed"
        assert found.position.since == snapshot.high
        position = found.position
    assert parts > 3
    assert sorted(taken) == sorted(id_ for id_, _ in server.objects("customers"))


def test_only_what_a_position_needs_is_asked_for(server: RestServer, read: Read) -> None:
    happen(server, 500)
    since = server.now - 10
    server.forget_requests()
    snapshot = read(since, 10_000)
    assert len(server.requests("events")) == 1
    assert snapshot.covers(since)
    assert not snapshot.covers(since - 100)
    # From now on: nothing before is of interest. A position that is lost is not read from.
    server.set_clock(server.now + KEPT_SECONDS)
    happen(server, 500)
    server.forget_requests()
    assert FeedPosition(since).is_lost(read(since, 10_000))
    assert read(None, 10_000).read_at >= server.now - 1
    assert len(server.requests("events")) == 2


def test_places_in_a_second_follow_the_feed(server: RestServer, read: Read) -> None:
    begin = server.now
    for number in range(5):
        server.create("charges")
        server.create("customers", amount=number)
    server.set_clock(server.now + 1)
    server.create("customers")
    found = read(begin, 1000)
    assert [(event.created - begin, event.place) for event in found.events] == [
        *((0, n) for n in (2, 4, 6, 8, 10)),
        (1, 1),
    ]


def test_an_object_without_an_id_is_no_object(server: RestServer, read: Read) -> None:
    """As in `invoice.upcoming`."""
    begin = server.now
    id_ = server.create("customers")
    server.alter("customers", id_, id=None)
    assert [event.type for event in read(begin, 1000).events] == ["customer.created"]


# ---------------------------------------------------------------- cursors that lead nowhere


@pytest.fixture
def after_page(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int, FetchedPage], FetchedPage]], None]:
    """Look at each page before the reader gets it, and perhaps give another."""
    fetch = ListApi.fetch

    def install(change: Callable[[int, FetchedPage], FetchedPage]) -> None:
        pages = itertools.count(1)

        async def fetch_and_change(api: ListApi, asked: Asked, urgency: int = 0) -> FetchedPage:
            return change(next(pages), await fetch(api, asked, urgency))

        monkeypatch.setattr(ListApi, "fetch", fetch_and_change)

    return install


Install = Callable[[Callable[[int, FetchedPage], FetchedPage]], None]


def test_an_event_that_expires_while_it_is_the_cursor(server: RestServer, read: Read, after_page: Install) -> None:
    """What is older than it is gone too; what shares its second may not be."""
    begin = server.now
    happen(server, 450)
    ids: list[str] = []

    def expire(number: int, page: FetchedPage) -> FetchedPage:
        if number in (1, 3):
            server.remove("events", str(page.cursor))
        ids.extend(id_ for _, id_ in page.records)
        return page

    after_page(expire)
    snapshot = read(begin, 10_000)
    assert snapshot.covers(begin)
    assert len(snapshot.times) == len(set(ids)) == 450


def test_events_that_expire_while_they_are_read_end_the_feed(
    server: RestServer, read: Read, after_page: Install
) -> None:
    begin = server.now
    happen(server, 450)

    def expire(number: int, page: FetchedPage) -> FetchedPage:
        if number == 2:
            cursor = next(at for at, id_ in page.records if id_ == page.cursor)
            for id_, at in server.objects("events"):
                if at <= cursor:
                    server.remove("events", id_)
        return page

    after_page(expire)
    snapshot = read(begin, 10_000)
    assert snapshot.has_ended
    assert len(snapshot.times) == 200
    # A stream whose last event was among them has missed events, which is found.
    assert FeedPosition(begin, {"evt_00000000": begin}).is_lost(snapshot)


@pytest.mark.parametrize("status", [400, 404])
def test_a_feed_that_refuses_every_cursor_fails(status: int, server: RestServer, read: Read) -> None:
    begin = server.now
    happen(server, 450, in_a_second=450)
    server.change("events", refuses_cursors=status)
    server.forget_requests()
    with pytest.raises((StreamFailed, StreamRefused), match="No such page"):
        read(begin, 10_000)
    assert len(server.requests("events")) < 20


def test_a_feed_that_ignores_the_cursor_fails(server: RestServer, read: Read) -> None:
    begin = server.now
    happen(server, 450, in_a_second=450)
    server.change("events", ignores_cursors=True)
    with pytest.raises(StreamFailed, match="says that more follow, and gives nothing new"):
        read(begin, 10_000)
    assert len(server.requests("events")) < 20


def test_an_empty_page_with_more_to_come_fails(server: RestServer, read: Read, after_page: Install) -> None:
    begin = server.now
    happen(server, 450)
    after_page(
        lambda number, page: replace(page, records=[], texts=[], cursor=None, has_more=True) if number == 2 else page
    )
    with pytest.raises(StreamFailed, match="says that more follow, and gives nothing new"):
        read(begin, 10_000)


# ---------------------------------------------------------------- which streams


def test_streams_without_events_keep_their_lists() -> None:
    for name in ("balance_transactions", "events", "accounts"):
        assert stripe.find_events(name, StreamOptions(), True) is None
        with pytest.raises(StreamRefused, match="Stripe has none for its objects"):
            stripe.find_events(name, StreamOptions(live=True), False)
    with pytest.raises(StreamRefused, match="read whole in every run"):
        stripe.find_events("quotes", StreamOptions(live=True), False)
    assert stripe.find_events("charges", StreamOptions(live=False), True) is None
    assert stripe.find_events("mine", StreamOptions(list="charges"), True) == ("charges", EVENTS["charges"])


def test_parameters_that_events_do_not_have_are_refused() -> None:
    with pytest.raises(StreamRefused, match="events are not filtered by them"):
        stripe.find_events("charges", StreamOptions(params={"customer": "cus_1"}), True)


def test_an_answer_that_is_no_event_names_it(server: RestServer, read: Read) -> None:
    server.change("events", made=0)
    server.add("events", [server.now])
    with pytest.raises(StreamFailed, match="event ev_00000000 is not one of Stripe's"):
        read(server.now - 10, 1000)

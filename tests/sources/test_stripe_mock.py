"""Every request of the stripe preset, as Stripe's own mock server checks it against Stripe's OpenAPI description."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from tests.harness.stripe_mock import StripeMock

from penstock.errors import StreamFailed
from penstock.links.http.account import Account
from penstock.sources import rest, stripe
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.rest.stamps import read_stamp
from penstock.sources.stripe.feed import Snapshot
from penstock.sources.stripe.feed_reader import FeedReader
from penstock.sources.stripe.lists import BY_CREATED, CHILDREN, EVENTS, LISTS
from penstock.sources.stripe.options import Options, StreamOptions
from penstock.sources.stripe.source import StripeAccount, read_account

#: the requests that a gather makes: the first look, a page of a range, and the page after it
REQUESTS = (Asked(None, None, None, 1), Asked(1, 2, None, 100), Asked(1, 2, "obj_1", 100))


@pytest.fixture(scope="module")
def server() -> Iterator[StripeMock]:
    with StripeMock() as server:
        yield server


def source_options(server: StripeMock) -> rest.Options:
    options = Options(api_key="sk_test_key", base_url=f"{server.url}/v1", rate_limit=1000)  # type: ignore[arg-type]  # as in a file
    return stripe.account_options(options)


def fetch(
    server: StripeMock, name: str, options: StreamOptions | None = None, *, is_live: bool = False
) -> list[FetchedPage]:
    """The answers to all requests for one list."""
    source = source_options(server)

    async def ask() -> list[FetchedPage]:
        account = Account(source)
        try:
            api = ListApi(account, name, stripe.stream_options(name, options or StreamOptions(), live=is_live), source)
            return [await api.fetch(each) for each in REQUESTS]
        finally:
            await account.close()

    return asyncio.run(ask())


def test_the_account_has_an_id_and_a_time(server: StripeMock) -> None:
    async def ask() -> StripeAccount:
        account = Account(source_options(server))
        try:
            return await account.fetch("account", {}, read_account, stream="charges")
        finally:
            await account.close()

    found = asyncio.run(ask())
    assert found.id.startswith("acct_")
    assert found.created


@pytest.mark.parametrize("name", LISTS)
def test_every_list_takes_the_parameters_of_the_preset(server: StripeMock, name: str) -> None:
    for page in fetch(server, name):
        # A page has each object's id and time where the preset looks for them.
        assert all(id_ for _, id_ in page.records)
        if name in BY_CREATED:
            assert all(created > 0 for created, _ in page.records)


@pytest.mark.parametrize("name", CHILDREN)
def test_every_list_below_another_takes_the_parameters_of_the_preset(server: StripeMock, name: str) -> None:
    source = source_options(server)

    async def ask() -> list[FetchedPage]:
        account = Account(source)
        try:
            api = ListApi(account, name, stripe.stream_options(name, StreamOptions()), source).under("obj_1")
            return [await api.fetch(Asked(None, None, cursor, size)) for cursor, size in ((None, 1), ("obj_2", 100))]
        finally:
            await account.close()

    assert all(id_ for page in asyncio.run(ask()) for _, id_ in page.records)


@pytest.mark.parametrize("name", EVENTS)
def test_objects_have_the_type_by_which_their_events_are_found(server: StripeMock, name: str) -> None:
    texts = [text for page in fetch(server, name, is_live=True) for text in page.texts]
    kinds = {json.loads(read_stamp(text)[2])["object"] for text in texts}
    assert kinds == {EVENTS[name].kind}


def test_stripe_has_the_events_that_are_deletes(server: StripeMock) -> None:
    """The mock server takes only known types of events for a webhook."""

    def ask(type_: str) -> int:
        body = urlencode({"url": "https://example.com", "enabled_events[]": type_}).encode()
        request = urllib.request.Request(f"{server.url}/v1/webhook_endpoints", body)
        request.add_header("Authorization", "Bearer sk_test_key")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert {
        each.deleted: ask(each.deleted) for each in EVENTS.values() if each.deleted and ask(each.deleted) != 200
    } == {}
    assert ask("customer.vanished") == 400


def test_the_feed_is_asked_for_as_stripe_takes_it(server: StripeMock) -> None:
    """From now on, and since a time. Parts of the feed are ranges, as of any list."""
    source = source_options(server)

    async def ask() -> list[Snapshot]:
        account = Account(source)
        try:
            api = ListApi(account, "events", stripe.stream_options("events", StreamOptions()), source)
            kinds = {each.kind: "created" for each in EVENTS.values()}
            return [await FeedReader(api, kinds).read(since) for since in (None, 1)]
        finally:
            await account.close()

    for found in asyncio.run(ask()):
        assert found.read_at > 1_700_000_000


def test_the_mock_server_refuses_a_parameter_that_stripe_does_not_have(server: StripeMock) -> None:
    with pytest.raises(StreamFailed, match="status 400"):
        fetch(server, "charges", StreamOptions(params={"bogus": "1"}))


def test_a_list_without_the_filter_would_be_refused_with_one(server: StripeMock) -> None:
    with pytest.raises(StreamFailed, match="additional properties are not allowed"):
        fetch(server, "payment_links", StreamOptions(params={"created[gte]": "1"}))

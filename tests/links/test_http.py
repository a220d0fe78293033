"""An account of an HTTP API against a real server: retries, waits, limits, and messages without secrets."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest

from penstock.errors import ConnectionFailed, StreamFailed
from penstock.links.http.account import Account, Effort
from penstock.links.http.failures import Answer, Malformed, ResourceRefused, describe, retry_after
from penstock.links.http.loop import LoopThread
from penstock.links.http.options import AccountOptions
from penstock.testing.rest_server import RestServer

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def server() -> Iterator[RestServer]:
    with RestServer({"charges": {}}) as server:
        server.arrive("charges", 10)
        yield server


def fetch(server: RestServer, count: int = 1, **options: Any) -> Effort:
    """Ask for a page so often, at the same time; what it cost."""
    effort = Effort()

    async def ask() -> None:
        account = Account(AccountOptions(base_url=f"{server.url}/v1", retry_seconds=0.01, **options))
        try:
            await asyncio.gather(
                *(
                    account.fetch("charges", {"limit": "5"}, parse, stream="charges", effort=effort)
                    for _ in range(count)
                )
            )
        finally:
            await account.close()

    asyncio.run(ask())
    return effort


def parse(answer: Answer) -> bytes:
    if not answer.body.endswith(b"}"):
        raise Malformed("cut off")
    return answer.body


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0),
        ("7", 7),
        ("0.5", 0.5),
        ("-3", 0),
        (format_datetime(NOW.replace(minute=2), usegmt=True), 120),
        ("soon", 0),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str | None, seconds: float) -> None:
    assert retry_after(value, NOW) == seconds


@pytest.mark.parametrize("value", ["1", "date"])
def test_a_server_that_says_when_to_come_back_is_obeyed(value: str, server: RestServer) -> None:
    server.set_faults(rate=3, retry_after=value)
    begun = time.monotonic()
    effort = fetch(server, 5)
    assert effort.retries >= 2
    assert time.monotonic() - begun >= 0.9 if value == "1" else effort.waited > 0


def test_the_rate_limit_is_shared(server: RestServer) -> None:
    begun = time.monotonic()
    effort = fetch(server, 40, rate_limit=20)
    assert time.monotonic() - begun >= 0.9
    assert effort.requests == 40
    assert effort.waited > 0


def test_no_more_requests_than_allowed_at_the_same_time(server: RestServer) -> None:
    server.set_faults(latency=0.1)
    begun = time.monotonic()
    fetch(server, 10, concurrency=2)
    assert time.monotonic() - begun >= 0.5


@pytest.mark.parametrize("fault", ["errors", "resets", "truncated"])
def test_what_may_pass_is_tried_again(fault: str, server: RestServer) -> None:
    server.set_faults(**{fault: 0.5})
    assert fetch(server, 10, retries=30, retry_most=0.02).retries > 0


def test_a_slow_server_times_out(server: RestServer) -> None:
    server.set_faults(latency=2)
    with pytest.raises(StreamFailed, match=r"no answer within 0\.1 s, and 1 retries did not help"):
        fetch(server, timeout=0.1, retries=1)


def test_failures_by_kind(server: RestServer) -> None:
    server.change("charges", status=403)
    with pytest.raises(ResourceRefused, match="status 403"):
        fetch(server)
    server.change("charges", status=422)
    with pytest.raises(StreamFailed, match=r"GET charges\?limit=5: status 422 .*, request id req_"):
        fetch(server)
    server.change("charges", status=401)
    with pytest.raises(ConnectionFailed, match="does not accept the credentials"):
        fetch(server)
    server.change("charges", status=302)
    with pytest.raises(StreamFailed, match="leads to"):
        fetch(server)
    assert len(server.requests()) == 4


def test_a_secret_that_the_provider_repeats_is_not_shown(server: RestServer) -> None:
    server.change("charges", status=422)
    with pytest.raises(StreamFailed) as failed:
        fetch(server, auth={"query": {"key": "charges always"}})
    assert "charges always" not in failed.value.what
    assert "***" in failed.value.what


def test_what_a_provider_says_is_found() -> None:
    for body in (
        b'{"error": {"message": "no"}}',
        b'{"message": "no"}',
        b'{"errors": [{"detail": "no"}]}',
        b'{"error": "no"}',
    ):
        assert describe(Answer(400, {"x-request-id": "abc"}, body)) == "status 400 (no), request id abc"
    assert describe(Answer(502, {}, b"<html>")) == "status 502"


# ---------------------------------------------------------------- OAuth


def oauth(server: RestServer) -> dict[str, Any]:
    credentials = {"token_url": f"{server.url}/oauth/token", "client_id": "someone", "client_secret": "a-secret"}
    return {"oauth": credentials, "header": {"X-Api-Key": "another-secret"}}


def token_requests(server: RestServer) -> list[dict[str, Any]]:
    return [each for each in server.requests() if each["path"] == "/oauth/token"]


def test_one_token_serves_all_requests_and_its_server_gets_no_other_secret(server: RestServer) -> None:
    server.set_faults(token="first-token")
    fetch(server, 10, auth=oauth(server))
    (asked,) = token_requests(server)
    assert asked["method"] == "POST"
    assert asked["query"] == {}
    assert "x-api-key" not in asked["headers"]
    assert "x-api-key" in server.requests("charges")[0]["headers"]


async def _fetch_twice(server: RestServer, between: Callable[[], None]) -> None:
    options: dict[str, Any] = {"retry_seconds": 0.01, "retries": 1, "auth": oauth(server)}
    account = Account(AccountOptions(base_url=f"{server.url}/v1", **options))
    try:
        await account.fetch("charges", {}, parse, stream="charges")
        between()
        await asyncio.gather(*(account.fetch("charges", {}, parse, stream="charges") for _ in range(5)))
    finally:
        await account.close()


def test_a_token_that_is_withdrawn_is_fetched_again_once(server: RestServer) -> None:
    server.set_faults(token="first-token")
    asyncio.run(_fetch_twice(server, lambda: server.set_faults(token="second-token")))
    assert len(token_requests(server)) == 2


def test_a_token_is_fetched_again_before_it_expires(server: RestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.set_faults(token="first-token", token_seconds=100)
    later = time.monotonic() + 41
    asyncio.run(
        _fetch_twice(server, lambda: monkeypatch.setattr("penstock.links.http.tokens.time.monotonic", lambda: later))
    )
    assert len(token_requests(server)) == 2


def test_a_new_token_that_is_refused_too_fails_the_connection_and_is_not_shown(server: RestServer) -> None:
    server.set_faults(token="right-token", given_token="wrong-token")
    with pytest.raises(ConnectionFailed, match="does not accept the credentials") as failed:
        fetch(server, auth=oauth(server))
    assert "Invalid API Key provided: Bearer ***" in failed.value.what
    assert len(token_requests(server)) == 2


@pytest.mark.parametrize(("status", "kind"), [(400, ConnectionFailed), (401, ConnectionFailed), (503, StreamFailed)])
def test_a_token_that_is_not_given(status: int, kind: type[Exception], server: RestServer) -> None:
    server.set_faults(token="a-token", token_status=status)
    with pytest.raises(kind, match=f"no OAuth token was given: status {status}") as failed:
        fetch(server, auth=oauth(server), retries=2)
    assert "secret" not in str(failed.value)
    assert len(token_requests(server)) == (3 if status == 503 else 1)


def test_a_token_server_that_does_not_say_how_long_it_lasts(server: RestServer) -> None:
    server.set_faults(token="a-token", token_seconds=0)
    asyncio.run(_fetch_twice(server, lambda: None))
    assert len(token_requests(server)) == 1


# ---------------------------------------------------------------- the network


def test_a_proxy_from_the_environment_is_used(server: RestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setenv("NO_PROXY", "")

    async def ask() -> bytes:
        account = Account(AccountOptions(base_url="http://api.invalid/v1"))
        try:
            return await account.fetch("charges", {"limit": "5"}, parse, stream="charges")
        finally:
            await account.close()

    assert asyncio.run(ask()).count(b'"charge"') == 5
    assert server.requests("charges")


def test_http_2_is_offered() -> None:
    """The client is made with it, and what it needs is installed."""

    async def make() -> list[str]:
        account = Account(AccountOptions(base_url="https://api.invalid/v1"))
        try:
            client = await account._client_of(0)
            pool = client._transport._pool  # type: ignore[attr-defined]  # httpx has no public way to ask
            return ["h2"] if pool._http2 else []
        finally:
            await account.close()

    assert asyncio.run(make()) == ["h2"]


def test_a_retry_that_sleeps_is_abandoned_at_once(server: RestServer) -> None:
    server.set_faults(rate=1, retry_after="60")
    is_over = threading.Event()
    loop = LoopThread(is_over.is_set)
    account = Account(AccountOptions(base_url=f"{server.url}/v1", retry_most=100))

    async def ask() -> None:
        for _ in range(3):
            await account.fetch("charges", {}, parse, stream="charges")

    threading.Timer(0.3, is_over.set).start()
    begun = time.monotonic()
    with pytest.raises(StreamFailed, match="abandoned because the run is to end"):
        loop.run(ask())
    assert time.monotonic() - begun < 5
    loop.close(account.close)


def test_requests_that_are_given_up_leave_nothing_behind(server: RestServer) -> None:
    """At any time: while they connect, wait for a slot or for an answer. What is left behind would be a warning."""
    for number in range(20):
        loop = LoopThread(lambda: False)
        account = Account(AccountOptions(base_url=f"{server.url}/v1"))
        for _ in range(8):
            loop.start(account.fetch("charges", {}, parse, stream="charges"))
        time.sleep(number * 0.002)
        loop.close(account.close)
        gc.collect()


def test_a_cancelled_request_does_not_keep_its_slot_from_answering(server: RestServer) -> None:
    """Cancelled at any time of a request, on a new connection and on a used one."""
    server.set_faults(latency=0.02)

    async def cancel_and_ask(after: float) -> float:
        account = Account(AccountOptions(base_url=f"{server.url}/v1", concurrency=1, timeout=3, retries=0))
        begun = time.monotonic()
        try:
            for wait in (after, after / 2, after / 3):
                cancelled = asyncio.create_task(account.fetch("charges", {}, parse, stream="charges"))
                await asyncio.sleep(wait)
                cancelled.cancel()
                await asyncio.gather(cancelled, return_exceptions=True)
                await account.fetch("charges", {}, parse, stream="charges")
        finally:
            await account.close()
        return time.monotonic() - begun

    assert max(asyncio.run(cancel_and_ask(number * 0.0015)) for number in range(40)) < 2

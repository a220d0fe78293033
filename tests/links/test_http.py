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
from tests.harness.rest_server import RestServer

from penstock.errors import ConnectionFailed, StreamFailed
from penstock.links.http.account import Account, Effort
from penstock.links.http.failures import Answer, Malformed, ResourceRefused, describe, retry_after, wait_of
from penstock.links.http.loop import LoopThread
from penstock.links.http.options import AccountOptions

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


def most_within(seconds: float, server: RestServer) -> int:
    """The largest number of requests that reached the server within any window of that length."""
    times: list[float] = sorted(each["at"] for each in server.requests())
    return max(sum(begin <= at < begin + seconds for at in times) for begin in times)


@pytest.mark.parametrize("latency", [0.0, 0.3])
@pytest.mark.parametrize("concurrency", [3, 40])
def test_the_rate_limit_is_shared_and_holds_within_any_second(
    concurrency: int, latency: float, server: RestServer
) -> None:
    """By the server's clock. All connections are opened in the first second."""
    server.set_faults(latency=latency)
    begun = time.monotonic()
    effort = fetch(server, 45, rate_limit=20, concurrency=concurrency)
    assert effort.requests == 45
    assert effort.waited > 0
    assert most_within(1.0, server) <= 20
    assert time.monotonic() - begun < (8 if concurrency == 3 else 4), "the rate is used"


@pytest.mark.parametrize(("rate", "seconds", "most"), [(2.5, 0.8, 2), (0.8, 1.25, 1)])
def test_a_rate_that_is_not_whole(rate: float, seconds: float, most: int, server: RestServer) -> None:
    fetch(server, 4, rate_limit=rate)
    assert most_within(seconds, server) == most


def test_requests_that_are_lost_count_too(server: RestServer) -> None:
    server.set_faults(resets=0.5)
    assert fetch(server, 30, rate_limit=20, retries=30, retry_most=0.02).retries > 0
    assert most_within(1.0, server) <= 20


def test_no_more_requests_than_allowed_at_the_same_time(server: RestServer) -> None:
    server.set_faults(latency=0.1)
    begun = time.monotonic()
    fetch(server, 10, concurrency=2)
    assert time.monotonic() - begun >= 0.5


@pytest.mark.parametrize(
    ("status", "retry_after", "headers"),
    [
        (503, "1", {}),
        (403, "1", {}),
        (403, "", {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}),
        (403, "", {"X-RateLimit-Remaining": "0"}),
        (429, "", {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}),
    ],
)
def test_a_server_that_is_busy_is_waited_for_whatever_its_status(
    status: int, retry_after: str, headers: dict[str, str], server: RestServer
) -> None:
    """Some providers answer 403 where requests are too many: that resource is not forbidden."""
    server.set_faults(rate=3, limited=status, retry_after=retry_after, limited_headers=headers)
    begun = time.monotonic()
    effort = fetch(server, 5, retries=40, retry_most=0.1)
    assert effort.retries >= 2
    if retry_after or "X-RateLimit-Reset" in headers:
        assert time.monotonic() - begun >= 0.9


def test_a_rate_limit_that_outlasts_the_retries_fails_the_stream(server: RestServer) -> None:
    server.set_faults(rate=1, limited=403, retry_after="0")
    with pytest.raises(StreamFailed, match=r"status 403 \(Too many requests\).*2 retries did not help"):
        fetch(server, 9, retries=2, retry_most=0.02)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, 7),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, 9),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW.timestamp()) + 40)}, 40),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW.timestamp()) - 40)}, 0),
        ({"x-ratelimit-remaining": "5", "x-ratelimit-reset": "9"}, 0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, 0),
        ({"x-ratelimit-remaining": "0"}, 0),
    ],
)
def test_when_a_rate_limit_ends(headers: dict[str, str], seconds: float) -> None:
    assert wait_of(Answer(403, headers, b""), NOW) == seconds


@pytest.mark.parametrize("fault", ["errors", "resets", "truncated", "garbled"])
def test_what_may_pass_is_tried_again(fault: str, server: RestServer) -> None:
    server.set_faults(**{fault: 0.5})
    assert fetch(server, 10, retries=30, retry_most=0.02).retries > 0


def test_a_slow_server_times_out(server: RestServer) -> None:
    server.set_faults(latency=2)
    with pytest.raises(StreamFailed, match=r"no answer within 0\.1 s, and 1 retries did not help"):
        fetch(server, timeout=0.1, retries=1)


def test_a_body_that_cannot_be_decompressed_fails_the_stream(server: RestServer) -> None:
    server.set_faults(garbled=1)
    with pytest.raises(StreamFailed, match=r"the body cannot be decompressed: .*, and 2 retries did not help"):
        fetch(server, retries=2)


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

"""One account of an HTTP API: its limits are shared by all streams, and every request is retried by the same rules.

Errors by kind: bad credentials fail the connection; a resource that is forbidden or unknown is refused; anything else
that outlasts its retries fails the stream. Messages contain neither headers nor secrets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from random import SystemRandom
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode, urlsplit

from penstock.core.retry import Backoff
from penstock.errors import ConnectionFailed, PenstockError, StreamFailed
from penstock.links.http.failures import (
    REFUSED,
    TRANSIENT,
    Answer,
    AnswerLost,
    Malformed,
    RequestRefused,
    ResourceRefused,
    describe,
    read_lost,
    retry_after,
)
from penstock.links.http.options import AccountOptions
from penstock.links.http.slots import Slots
from penstock.links.http.tokens import Tokens

if TYPE_CHECKING:
    import ssl

    import aiolimiter
    import httpx

Page = TypeVar("Page")

#: a shorter string is found in any text by chance
SECRET_CHARACTERS = 4
_CHANCE = SystemRandom()


@dataclass
class Effort:
    """What requests have cost so far."""

    requests: int = 0
    retries: int = 0
    #: seconds that requests waited for the rate limit or before a retry
    waited: float = 0.0


class Account:
    """Sends requests. Belongs to one event loop; made without connecting."""

    def __init__(self, options: AccountOptions, streams: int = 1) -> None:
        self._options = options
        self._requests_at_once = options.requests_at_once(streams)
        first = min(options.retry_seconds, options.retry_most)
        self._backoff = Backoff(first, options.retry_most, jitter=0.5)
        #: one for each slot, with one connection: a common pool looks at all its connections for every request
        self._clients: dict[int, httpx.AsyncClient] = {}
        self._tls: ssl.SSLContext | None = None
        self._limiter: aiolimiter.AsyncLimiter | None = None
        self._slots: Slots | None = None
        oauth = options.auth.oauth if options.auth else None
        self._tokens = Tokens(oauth, options.timeout) if oauth else None
        self._open = AsyncExitStack()

    async def fetch(
        self,
        path: str,
        query: Mapping[str, str],
        parse: Callable[[Answer], Page],
        *,
        stream: str,
        effort: Effort | None = None,
        urgency: int = 0,
    ) -> Page:
        """The parsed answer to a GET; `parse` raises Malformed for a body that may come whole the next time.

        `path` is appended to the base URL; an address with a host must be on the same server. While all slots are
        used, the request with the lowest `urgency` goes first.
        """
        effort = effort or Effort()
        failures, is_renewed = 0, False
        while True:
            asked_wait, unreachable = 0.0, False
            try:
                token = await self._take_token()
                answer = await self._send(self._address(path, stream), query, effort, urgency, token)
            except AnswerLost as lost:
                trouble, unreachable = lost.trouble, lost.connect
            else:
                if answer.status < 300:
                    try:
                        return parse(answer)
                    except Malformed as malformed:
                        trouble = f"the body is no JSON ({malformed})"
                elif answer.status == 401 and self._tokens and token and not is_renewed:
                    # It may have been withdrawn before it expires. A new one that is refused too is wrong.
                    is_renewed = True
                    self._tokens.forget(token)
                    continue
                elif answer.status in TRANSIENT:
                    trouble = describe(answer)
                    asked_wait = retry_after(answer.headers.get("retry-after"), datetime.now(UTC))
                else:
                    raise self._failure(answer, self.show(path, query), stream)
            if failures >= self._options.retries:
                if unreachable:
                    raise self._unreachable(trouble)
                raise self._exhausted(trouble, self.show(path, query), stream, failures)
            failures += 1
            wait = self._backoff.seconds(failures, _CHANCE.random(), at_least=asked_wait)
            effort.retries += 1
            effort.waited += wait
            await asyncio.sleep(wait)

    def show(self, path: str, query: Mapping[str, str]) -> str:
        """A request for people: its path and query, which carry no secrets."""
        shown = urlsplit(path).path if "://" in path else path
        return f"GET {shown}" + (f"?{urlencode(query, safe='[]:')}" if query else "")

    async def close(self) -> None:
        await self._open.aclose()
        self._clients.clear()

    # ------------------------------------------------------------ one request

    async def _send(
        self, address: str, query: Mapping[str, str], effort: Effort, urgency: int, token: str | None
    ) -> Answer:
        import httpx

        async with self._shared_slots().take(urgency) as slot:
            if self._limiter is not None:
                begun = time.monotonic()
                await self._limiter.acquire()
                effort.waited += time.monotonic() - begun
            effort.requests += 1
            auth = self._options.auth
            secrets = {name: value.get_secret_value() for name, value in (auth.query or {}).items()} if auth else {}
            client = await self._client_of(slot)
            begun = time.monotonic()
            try:
                sent = f"{address}?{urlencode({**query, **secrets})}" if query or secrets else address
                answer = await client.get(sent, headers={"Authorization": f"Bearer {token}"} if token else {})
            except httpx.TransportError as error:
                raise read_lost(error, self._options.timeout) from None
            except asyncio.CancelledError:
                # A cancelled request may keep the client's only connection: the slot gets another client.
                self._clients.pop(slot, None)
                raise
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(answer.status_code, headers, answer.content, time.monotonic() - begun)

    async def _take_token(self) -> str | None:
        """The OAuth token; None: the account uses none."""
        if self._tokens is None:
            return None
        try:
            return await self._tokens.take(self._shared_tls())
        except ConnectionFailed as failed:
            failed.what = self._scrub(failed.what)
            raise

    def _shared_slots(self) -> Slots:
        if self._slots is None:
            import aiolimiter

            options = self._options
            self._slots = Slots(self._requests_at_once)
            if options.rate_limit is not None:
                # No more than the rate within any second: small rates are spread over a longer period.
                period = 1.0 if options.rate_limit >= 1 else 1.0 / options.rate_limit
                self._limiter = aiolimiter.AsyncLimiter(max(1.0, options.rate_limit), period)
        return self._slots

    async def _client_of(self, slot: int) -> httpx.AsyncClient:
        if slot not in self._clients:
            import httpx

            self._clients[slot] = await self._open.enter_async_context(
                httpx.AsyncClient(
                    http2=True,
                    verify=self._shared_tls(),
                    timeout=self._options.timeout,
                    headers=self._headers(),
                    auth=self._basic(),
                    limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
                )
            )
        return self._clients[slot]

    def _shared_tls(self) -> ssl.SSLContext:
        if self._tls is None:
            import httpx

            self._tls = httpx.create_ssl_context()
        return self._tls

    def _headers(self) -> dict[str, str]:
        auth = self._options.auth
        headers = {"Accept": "application/json", "User-Agent": "penstock", **self._options.headers}
        if auth and auth.bearer:
            headers["Authorization"] = f"Bearer {auth.bearer.get_secret_value()}"
        for name, value in (auth.header or {}).items() if auth else ():
            headers[name] = value.get_secret_value()
        return headers

    def _basic(self) -> tuple[str, str] | None:
        auth = self._options.auth
        if auth is None or auth.basic is None:
            return None
        user, _, password = auth.basic.get_secret_value().partition(":")
        return user, password

    def _address(self, path: str, stream: str) -> str:
        base = self._options.base_url
        if "://" not in path:
            return f"{base}/{path.lstrip('/')}"
        ours, theirs = urlsplit(base), urlsplit(path)
        if (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc):
            raise StreamFailed(
                f"the next page lies on another server, {theirs.hostname}: credentials are not sent there",
                next_step="set `base_url` to the server that the API names in its pages",
                stream=stream,
            )
        return path

    # ------------------------------------------------------------ failures

    def _failure(self, answer: Answer, shown: str, stream: str) -> PenstockError:
        said = self._scrub(f"{shown}: {describe(answer)}")
        if answer.status == 401:
            return self._bad_credentials(said)
        if answer.status in REFUSED:
            missing = ResourceRefused(
                said,
                next_step="give the account the right to read this resource, correct the stream's `path`, or remove "
                "the stream",
                stream=stream,
            )
            missing.status = answer.status
            return missing
        if answer.status < 400:
            said += f", which leads to {urlsplit(answer.headers.get('location', '')).path or 'another address'}"
        refused = RequestRefused(said, next_step="correct the stream's options by what the server says", stream=stream)
        refused.status = answer.status
        return refused

    def _bad_credentials(self, said: str) -> ConnectionFailed:
        return ConnectionFailed(
            f"the API does not accept the credentials: {self._scrub(said)}", next_step="correct `auth` of the source"
        )

    def _unreachable(self, trouble: str) -> ConnectionFailed:
        host = urlsplit(self._options.base_url).netloc
        return ConnectionFailed(f"{host}: {trouble}", next_step="check `base_url` of the source and the network")

    def _exhausted(self, trouble: str, shown: str, stream: str, failures: int) -> StreamFailed:
        again = f", and {failures} retries did not help" if failures else ""
        return StreamFailed(
            self._scrub(f"{shown}: {trouble}{again}"),
            next_step="run again once the server answers; raise `retries` or `timeout` if it happens often",
            stream=stream,
        )

    def _scrub(self, text: str) -> str:
        """The text without any secret that a provider may have repeated in its answer."""
        auth = self._options.auth
        if auth is None:
            return text
        secrets = [auth.bearer, auth.basic, *(auth.header or {}).values(), *(auth.query or {}).values()]
        if auth.oauth:
            secrets += [auth.oauth.client_id, auth.oauth.client_secret]
        values = [secret.get_secret_value() for secret in secrets if secret is not None]
        values += [part for value in values for part in value.split(":")]
        if self._tokens and self._tokens.secret:
            values.append(self._tokens.secret)
        for value in sorted(values, key=len, reverse=True):
            text = text.replace(value, "***") if len(value) >= SECRET_CHARACTERS else text
        return text

"""One account of an HTTP API: its limits are shared by all streams, and every request is retried by the same rules.

Errors by kind: bad credentials fail the connection; a resource that is forbidden or unknown is refused; anything else
that outlasts its retries fails the stream. Messages contain neither headers nor secrets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import SystemRandom
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode, urlsplit

from penstock.core.retry import Backoff
from penstock.errors import ConnectionFailed, PenstockError, StreamFailed
from penstock.links.http import credentials
from penstock.links.http.connection import Connection
from penstock.links.http.failures import (
    REFUSED,
    Answer,
    AnswerLost,
    Malformed,
    RequestRefused,
    ResourceRefused,
    describe,
    may_succeed_later,
    wait_of,
)
from penstock.links.http.options import AccountOptions
from penstock.links.http.rate import RateLimit
from penstock.links.http.slots import Slots
from penstock.links.http.tokens import Tokens

if TYPE_CHECKING:
    import ssl


Page = TypeVar("Page")
#: parameters of a request; a list of pairs may have a name several times
Query = Mapping[str, str] | Sequence[tuple[str, str]]

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
        #: one for each slot: a common pool looks at all its connections for every request
        self._connections: dict[int, Connection] = {}
        #: those whose request was cancelled
        self._abandoned: list[Connection] = []
        self._tls: ssl.SSLContext | None = None
        self._limit: RateLimit | None = None
        self._slots: Slots | None = None
        oauth = options.auth.oauth if options.auth else None
        self._tokens = Tokens(oauth, options.timeout) if oauth else None

    async def fetch(
        self,
        path: str,
        query: Query,
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
                elif may_succeed_later(answer):
                    trouble, asked_wait = describe(answer), wait_of(answer, datetime.now(UTC))
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

    def show(self, path: str, query: Query) -> str:
        """A request for people: its path and query, which carry no secrets."""
        shown = urlsplit(path).path if "://" in path else path
        return f"GET {shown}" + (f"?{urlencode(query, safe='[]:')}" if query else "")

    async def close(self) -> None:
        connections = [*self._connections.values(), *self._abandoned]
        self._connections, self._abandoned = {}, []
        await asyncio.gather(*(each.close() for each in connections))

    # ------------------------------------------------------------ one request

    async def _send(self, address: str, query: Query, effort: Effort, urgency: int, token: str | None) -> Answer:
        async with self._shared_slots().take(urgency) as slot:
            permit, is_answered = None, False
            if self._limit is not None:
                begun = time.monotonic()
                permit = await self._limit.acquire(slot)
                effort.waited += time.monotonic() - begun
            effort.requests += 1
            auth = self._options.auth
            secrets = {name: value.get_secret_value() for name, value in (auth.query or {}).items()} if auth else {}
            sent = f"{address}?{urlencode(_add(query, secrets))}" if query or secrets else address
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            try:
                answer = await self._connection_of(slot).get(sent, headers)
                is_answered = True
            except asyncio.CancelledError:
                # A cancelled request may keep the connection of its slot, which gets another one.
                self._abandoned.append(self._connections.pop(slot))
                raise
            finally:
                if self._limit is not None and permit is not None:
                    self._limit.release(permit, is_answered=is_answered)
        return answer

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
            self._slots = Slots(self._requests_at_once)
            if self._options.rate_limit is not None:
                self._limit = RateLimit(self._options.rate_limit)
        return self._slots

    def _connection_of(self, slot: int) -> Connection:
        if slot not in self._connections:
            options = self._options
            # Without TLS, no certificates are loaded: that takes longer than a request.
            tls = self._shared_tls() if urlsplit(options.base_url).scheme == "https" else None
            self._connections[slot] = Connection(options.base_url, tls, options.timeout, self._headers())
        return self._connections[slot]

    def _shared_tls(self) -> ssl.SSLContext:
        if self._tls is None:
            import httpx

            self._tls = httpx.create_ssl_context()
        return self._tls

    def _headers(self) -> dict[str, str]:
        return {"Accept": "application/json", "User-Agent": "penstock"} | credentials.headers_of(
            self._options.auth, self._options.headers
        )

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
        return credentials.scrub(text, self._options.auth, self._tokens.secret if self._tokens else None)


def _add(query: Query, secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """The parameters of a request, with those that carry secrets."""
    pairs = query.items() if isinstance(query, Mapping) else query
    return [*(each for each in pairs if each[0] not in secrets), *secrets.items()]

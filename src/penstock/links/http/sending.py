"""Sends requests to a receiver, one at a time, and decides what is tried again.

Two kinds of trouble: a receiver that is down or busy is waited for, and no retry is counted; anything else that may
pass is tried again a few times. Messages contain no secrets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from penstock.core.retry import Backoff
from penstock.errors import ConnectionFailed, StreamFailed
from penstock.links.http import credentials
from penstock.links.http.connection import Connection, find_proxy
from penstock.links.http.failures import Answer, AnswerLost, may_succeed_later, wait_of
from penstock.links.http.http1 import Http1Connection, Server, SpeaksHttp2
from penstock.links.http.loop import LoopThread
from penstock.links.http.options import Auth
from penstock.links.http.tokens import Tokens
from penstock.links.pause import pause, refuse_cancelled

if TYPE_CHECKING:
    import ssl

    import httpx

#: answers of a receiver that is down or busy: waited for as long as the options allow
BUSY = frozenset({429, 502, 503, 504, 507})
#: characters of an answer that a message shows
SHOWN_CHARACTERS = 300
#: pauses while a receiver is down
_DOWN_SECONDS, _DOWN_LONGEST = 0.25, 10.0


@dataclass(frozen=True)
class SendingOptions:
    """A receiver, and how hard to try."""

    url: str
    auth: Auth | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 60.0
    retries: int = 6
    retry_seconds: float = 0.5
    retry_most: float = 60.0
    #: seconds to wait for a receiver that is down or busy
    wait: float = 900.0
    #: paths of files; None: the system's
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc


@dataclass(frozen=True)
class Request:
    """A request, for a stream."""

    stream: str
    method: str
    #: appended to the receiver's address
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    #: further answers after which it is tried again
    again: frozenset[int] = frozenset()

    @property
    def shown(self) -> str:
        return f"{self.method} {self.path or '/'}"


class Sender:
    """Sends requests from one thread. Connects at the first one."""

    def __init__(
        self,
        options: SendingOptions,
        *,
        is_cancelled: Callable[[], bool],
        say: Callable[[str, str], None],
        transport: Callable[[], httpx.AsyncBaseTransport] | None = None,
    ) -> None:
        """`say` prints a line about a stream. `transport` makes what sends the requests, if not a connection."""
        self.options = options
        self._is_cancelled, self._say, self._transport = is_cancelled, say, transport
        self._loop = LoopThread(is_cancelled)
        self._connection: Connection | None = None
        self._tls: ssl.SSLContext | None = None
        oauth = options.auth.oauth if options.auth else None
        self._tokens = Tokens(oauth, options.timeout) if oauth else None
        self._backoff = Backoff(min(options.retry_seconds, options.retry_most), options.retry_most, jitter=0.5)

    def deliver(self, request: Request, accept: Callable[[Answer], object], *, patient: bool = True) -> Answer:
        """The first answer that is final: below 300 and accepted, or one that a retry would not change.

        `accept` raises ValueError for a body that is not the receiver's: cut off, or of a proxy in between. Without
        `patient` a receiver that is down is not waited for.
        """
        failures, trouble, outage = 0, "", _Outage(self, request, self.options.wait if patient else 0.0)
        while True:
            refuse_cancelled(self._is_cancelled)
            try:
                answer = self._loop.run(self._send(request))
            except AnswerLost as lost:
                if lost.connect:
                    outage.wait(self.scrub(lost.trouble), 0.0)
                    continue
                trouble, asked = lost.trouble, 0.0
            else:
                if answer.status in BUSY:
                    outage.wait(self.show(answer), wait_of(answer, datetime.now(UTC)))
                    continue
                if not may_succeed_later(answer) and answer.status not in request.again:
                    try:
                        if answer.status < 300:
                            accept(answer)
                    except ValueError as wrong:
                        trouble, asked = f"the answer is not the receiver's ({wrong})", 0.0
                    else:
                        outage.end()
                        return answer
                else:
                    trouble, asked = self.show(answer), wait_of(answer, datetime.now(UTC))
            if failures >= self.options.retries:
                raise self._exhausted(request, trouble, failures)
            failures += 1
            pause(self._backoff, failures, at_least=asked, is_cancelled=self._is_cancelled)

    def reach(self) -> None:
        """Connect and send nothing. ConnectionFailed if nobody listens. Behind a proxy, nothing is known before."""
        if self._transport is None and find_proxy(self.options.url) is None:
            try:
                self._loop.run(self._open_once())
            except AnswerLost as lost:
                raise self.unreachable(lost.trouble) from None
            except SpeaksHttp2:
                return

    async def _open_once(self) -> None:
        url = urlsplit(self.options.url)
        tls = self._shared_tls() if url.scheme == "https" else None
        server = Server(url.hostname or "", url.port or (443 if tls else 80), tls)
        connection = await Http1Connection.open(server, self.options.timeout)
        await connection.close()

    def show(self, answer: Answer) -> str:
        """The status and the first lines of an answer, without secrets."""
        text = " ".join(answer.body[: 4 * SHOWN_CHARACTERS].decode(errors="replace").split())
        text = "".join(each if each.isprintable() else "?" for each in self.scrub(text))
        where = ""
        if 300 <= answer.status < 400:
            target = urlsplit(answer.headers.get("location", ""))
            where = f", which leads to {target.hostname or ''}{target.path}: it is not followed"
        return self.scrub(f"status {answer.status}{where}") + (f": {text[:SHOWN_CHARACTERS]}" if text else "")

    def scrub(self, text: str) -> str:
        return credentials.scrub(text, self.options.auth, self._tokens.secret if self._tokens else None)

    def unreachable(self, trouble: str) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self.options.host}: {self.scrub(trouble)}",
            next_step="check `url` of the sink, the network and that the receiver runs; then run again",
        )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._loop.close(connection.close if connection is not None else None)

    # ------------------------------------------------------------ one request

    async def _send(self, request: Request) -> Answer:
        options = self.options
        headers = dict(request.headers)
        if self._tokens is not None:
            token = await self._tokens.take(self._shared_tls())
            headers["Authorization"] = f"Bearer {token}"
        if self._connection is None:
            shared = {"User-Agent": "penstock", **credentials.headers_of(options.auth, options.headers)}
            transport = self._transport() if self._transport else None
            # Without TLS, no certificates are loaded: that takes longer than a request.
            is_secured = urlsplit(options.url).scheme == "https" and transport is None
            tls = self._shared_tls() if is_secured else None
            self._connection = Connection(options.url, tls, options.timeout, shared, transport)
        secret = credentials.query_of(options.auth)
        address = options.url + request.path + (f"?{urlencode(secret)}" if secret else "")
        answer = await self._connection.send(request.method, address, headers, request.body)
        if answer.status == 401 and self._tokens is not None:
            # It may have been withdrawn before it expired.
            self._tokens.forget(token)
            headers["Authorization"] = f"Bearer {await self._tokens.take(self._shared_tls())}"
            answer = await self._connection.send(request.method, address, headers, request.body)
        return answer

    def _shared_tls(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = _make_tls(self.options)
        return self._tls

    def _exhausted(self, request: Request, trouble: str, failures: int) -> StreamFailed:
        again = f", and {failures} retries did not help" if failures else ""
        return StreamFailed(
            self.scrub(f"{request.shown}: {trouble}{again}"),
            next_step="run again once the receiver answers; raise `retries` or `timeout` if it happens often",
            stream=request.stream,
        )


@dataclass
class _Outage:
    """The wait for a receiver that is down or busy."""

    sender: Sender
    request: Request
    #: seconds that it may last
    most: float
    since: float | None = None
    pauses: int = 0

    def wait(self, trouble: str, asked: float) -> None:
        """Pause; ConnectionFailed once it has lasted too long. Returns at a signal by StreamFailed."""
        sender, now = self.sender, time.monotonic()
        if self.since is None:
            self.since = now
            if self.most:
                sender._say(
                    self.request.stream,
                    f"the receiver {sender.options.host} does not take anything now ({trouble}); waiting for it, up to "
                    f"{self.most:g} s",
                )
        left = self.since + self.most - now
        if left <= 0 or asked > left:
            waited = f"; waited {now - self.since:.0f} s" if self.pauses else ""
            for_long = f", and asks to wait for {asked:.0f} s" if asked > left else ""
            raise sender.unreachable(f"{trouble}{for_long}{waited}")
        self.pauses += 1
        backoff = Backoff(_DOWN_SECONDS, _DOWN_LONGEST, jitter=0.5)
        pause(backoff, self.pauses, at_least=asked, at_most=left, is_cancelled=sender._is_cancelled)

    def end(self) -> None:
        if self.since is not None:
            seconds = time.monotonic() - self.since
            self.sender._say(self.request.stream, f"the receiver takes requests again, after {seconds:.0f} s")
            self.since = None


def _make_tls(options: SendingOptions) -> ssl.SSLContext:
    import httpx

    try:
        context = httpx.create_ssl_context()
        if options.ca:
            context.load_verify_locations(cafile=options.ca)
        if options.certificate:
            context.load_cert_chain(options.certificate, options.key)
    except OSError as error:
        raise ConnectionFailed(
            f"the files for TLS cannot be used: {error.strerror or error}", next_step="correct `tls` of the sink"
        ) from None
    return context

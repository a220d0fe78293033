"""OAuth tokens for one account: fetched with the client's credentials, kept until they expire or are refused."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from penstock.errors import ConnectionFailed
from penstock.links.http.failures import TRANSIENT, Answer, AnswerLost, describe, read_lost
from penstock.links.http.options import OAuth

if TYPE_CHECKING:
    import ssl

#: a token is fetched again this many seconds before it expires
TOKEN_MARGIN_SECONDS = 60.0
#: seconds that a token lasts where the server does not say
TOKEN_SECONDS = 3600.0
ACCEPT = {"Accept": "application/json", "User-Agent": "penstock"}


class Tokens:
    """Belongs to one event loop. All requests of the account share one token."""

    def __init__(self, oauth: OAuth, timeout: float) -> None:
        self._oauth, self._timeout = oauth, timeout
        self._token: str | None = None
        self._expires = 0.0
        self._lock: asyncio.Lock | None = None

    @property
    def secret(self) -> str | None:
        """The token at hand, which no message may show."""
        return self._token

    async def take(self, tls: ssl.SSLContext) -> str:
        """A valid token. AnswerLost if the server may give one later, ConnectionFailed if it gives none."""
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            if self._token is None or self._expires < time.monotonic():
                self._token = await self._fetch(tls)
            return self._token

    def forget(self, token: str) -> None:
        """The API refused this token: the next request fetches another, unless one has already."""
        if self._token == token:
            self._token = None

    async def _fetch(self, tls: ssl.SSLContext) -> str:
        import httpx

        oauth = self._oauth
        form = {
            "grant_type": "client_credentials",
            "client_id": oauth.client_id.get_secret_value(),
            "client_secret": oauth.client_secret.get_secret_value(),
        }
        # A client of its own: the account's headers are not for this server.
        async with httpx.AsyncClient(verify=tls, timeout=self._timeout) as client:
            try:
                sent = await client.post(
                    oauth.token_url, data=form | ({"scope": oauth.scope} if oauth.scope else {}), headers=ACCEPT
                )
            except httpx.RequestError as error:
                lost = read_lost(error, self._timeout)
                raise AnswerLost(f"no OAuth token was given: {lost.trouble}", connect=lost.connect) from None
        answer = Answer(sent.status_code, {name.lower(): value for name, value in sent.headers.items()}, sent.content)
        if answer.status in TRANSIENT:
            raise AnswerLost(f"no OAuth token was given: {describe(answer)}")
        try:
            document = sent.json()
            token, lasts = document["access_token"], float(document.get("expires_in") or TOKEN_SECONDS)
            if answer.status >= 300 or not isinstance(token, str) or not token:
                raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ConnectionFailed(
                f"no OAuth token was given: {describe(answer)}", next_step="correct `oauth` under `auth` of the source"
            ) from None
        self._expires = time.monotonic() + max(0.0, lasts - TOKEN_MARGIN_SECONDS)
        return token

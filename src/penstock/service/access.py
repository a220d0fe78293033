"""Who may do what: bearer tokens, as soon as the directory has any."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from starlette.requests import Request

from penstock.errors import PenstockError
from penstock.service.problems import Problem
from penstock.service.tokens import Token, TokenFile

_SCHEME = "bearer"


@dataclass(frozen=True)
class Access:
    """Checks the token of a request."""

    tokens: TokenFile
    #: without any token, everybody who reaches the port may do everything
    is_open_without_tokens: bool

    def require(self, request: Request, scope: str | None, stream: str | None = None) -> str:
        """The name of the request's token, or "" where none is needed; Problem 401, 403 or 503 otherwise.

        `scope` None: any token. `stream` None: what is asked for concerns all streams.
        """
        token = self._token(request)
        if token is None:
            return ""
        if scope is not None and not token.allows(scope, stream):
            where = "for all streams" if stream is None else "for this stream"
            raise _forbidden(token, scope, where)
        return token.name

    def require_some(self, request: Request, scope: str) -> None:
        """Problem unless the request's token has a scope, be it for some streams only."""
        token = self._token(request)
        if token is not None and not any(token.allows(scope, stream) for stream in (None, *(token.streams or ()))):
            raise _forbidden(token, scope, "for any stream")

    def allows(self, request: Request, scope: str, stream: str) -> bool:
        """Whether a request may do something with a stream."""
        token = self._token(request)
        return token is None or token.allows(scope, stream)

    def _token(self, request: Request) -> Token | None:
        """The request's token; None: none is needed. Problem 401 or 503."""
        try:
            if self.is_open_without_tokens and self.tokens.is_empty:
                _require_local(request)
                return None
            scheme, _, secret = request.headers.get("authorization", "").partition(" ")
            token = self.tokens.authenticate(secret.strip()) if scheme.lower() == _SCHEME and secret else None
        except PenstockError:
            # The reason names files of this machine: only the operator of the receiver sees it.
            raise Problem(
                503, "the receiver's tokens cannot be read", "look at the receiver: `penstock token list` says why"
            ) from None
        if token is None:
            raise Problem(
                401,
                "the request has no token that is known here",
                "send `Authorization: Bearer …` with a token from `penstock token create`",
            )
        return token


def _require_local(request: Request) -> None:
    """Without tokens only this machine may send, so a page in its browser with a name of its own may not."""
    host = request.url.hostname or ""
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        raise Problem(
            403,
            "without tokens, the receiver is asked as localhost or 127.0.0.1 only",
            "create a token with `penstock token create`, and send it",
        )


def _forbidden(token: Token, scope: str, where: str) -> Problem:
    return Problem(
        403,
        f"token {token.name} does not have the scope `{scope}` {where}",
        f"use a token with the scope `{scope}`, or create one with `penstock token create`",
    )

"""Credentials: as headers of a request, and taken out of whatever a message shows."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import quote

from penstock.links.http.options import Auth

#: a shorter string is found in any text by chance
SECRET_CHARACTERS = 4


def headers_of(auth: Auth | None, headers: Mapping[str, str]) -> dict[str, str]:
    """`headers` with those that carry secrets. An OAuth token is not among them: it changes."""
    found = dict(headers)
    if auth and auth.bearer:
        found["Authorization"] = f"Bearer {auth.bearer.get_secret_value()}"
    if auth and auth.basic:
        found["Authorization"] = f"Basic {b64encode(_basic(auth)).decode()}"
    for name, value in (auth.header or {}).items() if auth else ():
        found[name] = value.get_secret_value()
    return found


def query_of(auth: Auth | None) -> dict[str, str]:
    """Query parameters that carry secrets."""
    return {name: value.get_secret_value() for name, value in (auth.query or {}).items()} if auth else {}


def scrub(text: str, auth: Auth | None, token: str | None = None) -> str:
    """The text without any secret that the other side may have repeated. `token` is the OAuth token at hand."""
    if auth is None:
        return text
    secrets = [auth.bearer, auth.basic, *(auth.header or {}).values(), *(auth.query or {}).values()]
    if auth.oauth:
        secrets += [auth.oauth.client_id, auth.oauth.client_secret]
    values = [secret.get_secret_value() for secret in secrets if secret is not None]
    values += [part for value in values for part in value.split(":")]
    values += [quote(value, safe="") for value in values]
    if auth.basic:
        values.append(b64encode(_basic(auth)).decode())
    if token:
        values.append(token)
    for value in sorted(set(values), key=len, reverse=True):
        text = text.replace(value, "***") if len(value) >= SECRET_CHARACTERS else text
    return text


def _basic(auth: Auth) -> bytes:
    assert auth.basic is not None
    user, _, password = auth.basic.get_secret_value().partition(":")
    return f"{user}:{password}".encode()

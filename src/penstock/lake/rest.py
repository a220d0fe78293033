"""Reads a table's metadata from a REST catalog, without PyIceberg. A token is kept while it is valid."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPMessage
from typing import IO, Any

from penstock.errors import ConnectionFailed
from penstock.lake.lake import Lake

#: prefixes of properties that set PyIceberg's own ways to sign requests or to trust servers
_SPECIAL = ("auth", "ssl", "rest.")
#: error types of a catalog for a table that does not exist
_MISSING = ("NoSuchTableException", "NoSuchNamespaceException")
_TIMEOUT_SECONDS = 30
#: seconds before its end at which a token is no longer used
_TOKEN_MARGIN_SECONDS = 60
#: by catalog: the prefix of its paths, the headers, and the time until which the token in them is valid
_known: dict[Any, tuple[str, Mapping[str, str], float]] = {}


def is_supported(lake: Lake) -> bool:
    """Whether the catalog can be asked without PyIceberg."""
    return not any(key.startswith(_SPECIAL) for key in lake.properties)


def read_metadata(lake: Lake, table: str) -> dict[str, Any] | None:
    """A table's metadata document; None: there is no such table. ConnectionFailed if the catalog does not answer."""
    namespace, name = (urllib.parse.quote(part, safe="") for part in (lake.namespace, table))
    path = f"namespaces/{namespace}/tables/{name}"
    try:
        try:
            answer = _get(lake, path)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            error.close()
            # A token may be revoked before it expires.
            _known.pop(_key(lake), None)
            answer = _get(lake, path)
    except urllib.error.HTTPError as error:
        with error:
            # Any other 404 means a wrong address. Taken for an answer, it would say that nothing was delivered.
            if error.code == 404 and _kind(error) in _MISSING:
                return None
        raise _unreachable(lake, f"HTTP {error.code} {error.reason}") from error
    except (OSError, ValueError, KeyError) as error:
        raise _unreachable(lake, str(getattr(error, "reason", error))) from error
    found: dict[str, Any] = answer["metadata"]
    return found


def _get(lake: Lake, path: str) -> dict[str, Any]:
    prefix, headers = _session(lake)
    return _ask(lake, f"v1/{prefix}{path}", headers)


def _kind(error: urllib.error.HTTPError) -> str:
    """The type of an error, as the catalog names it."""
    try:
        return str(json.load(error)["error"]["type"])
    except (ValueError, KeyError, TypeError, OSError):
        return ""


def _key(lake: Lake) -> Any:
    return (lake.uri, lake.warehouse, tuple(sorted(lake.properties.items())))


def _session(lake: Lake) -> tuple[str, Mapping[str, str]]:
    """The prefix of the catalog's paths, and the headers with the token."""
    known = _known.get(_key(lake))
    if known and known[2] > time.monotonic():
        return known[0], known[1]
    token, until = _token(lake)
    headers = {
        key.removeprefix("header."): value for key, value in lake.properties.items() if key.startswith("header.")
    }
    if token:
        headers["Authorization"] = f"Bearer {token}"
    query = urllib.parse.urlencode({"warehouse": lake.catalog_warehouse})
    config = _ask(lake, f"v1/config?{query}", headers)
    given = {**config.get("defaults", {}), **lake.properties, **config.get("overrides", {})}
    prefix = f"{given['prefix']}/" if given.get("prefix") else ""
    _known[_key(lake)] = (prefix, headers, until)
    return prefix, headers


def _token(lake: Lake) -> tuple[str | None, float]:
    """A bearer token and until when it is valid: configured, or fetched with the client's credential."""
    given = lake.properties.get
    credential = given("credential")
    if given("token") or not credential:
        return given("token"), float("inf")
    client, _, secret = credential.rpartition(":")
    form = {"grant_type": "client_credentials", "client_secret": secret, "scope": given("scope", "catalog")}
    form |= {"client_id": client} if client else {}
    form |= {name: value for name in ("audience", "resource") if (value := given(name))}
    answer = _ask(lake, given("oauth2-server-uri", "v1/oauth/tokens"), {}, urllib.parse.urlencode(form).encode())
    lasts = float(answer.get("expires_in") or 3600)
    return answer["access_token"], time.monotonic() + max(0.0, lasts - _TOKEN_MARGIN_SECONDS)


def _ask(lake: Lake, path: str, headers: Mapping[str, str], form: bytes | None = None) -> dict[str, Any]:
    address = path if path.startswith(("http://", "https://")) else f"{lake.uri.rstrip('/')}/{path}"
    request = urllib.request.Request(address, form, {"Accept": "application/json", **headers})
    with urllib.request.build_opener(_SameServer).open(request, timeout=_TIMEOUT_SECONDS) as answer:
        document: dict[str, Any] = json.load(answer)
        return document


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows a redirect within one server only: urllib sends every header along, the token too."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if _server(newurl) != _server(req.full_url):
            scheme, host, port = _server(newurl)
            fp.close()
            raise OSError(
                f"it redirects to another server, {scheme}://{host}:{port}, to which no token is sent; if that is the "
                "catalog, make it the `uri`"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _server(address: str) -> tuple[str, str | None, int | None]:
    at = urllib.parse.urlsplit(address)
    return at.scheme, at.hostname, at.port or {"http": 80, "https": 443}.get(at.scheme)


def _unreachable(lake: Lake, why: str) -> ConnectionFailed:
    return ConnectionFailed(
        f"the catalog {lake.name!r} ({lake.shown}) cannot be read: {lake.discreet(why)}",
        next_step="check that the catalog runs and that its address, `warehouse` and credentials are right, "
        "then run again",
    )

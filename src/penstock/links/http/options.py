"""Options of an account of an HTTP API: its address, credentials, limits and retries."""

from __future__ import annotations

import math
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator


class OAuth(BaseModel):
    """OAuth 2.0 client credentials: a token is fetched with them, and again before it expires."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    token_url: str = Field(description="where a token is fetched", examples=["https://api.example.com/oauth/token"])
    client_id: SecretStr = Field(description="the client's id", examples=["${CLIENT_ID}"])
    client_secret: SecretStr = Field(description="the client's secret", examples=["${CLIENT_SECRET}"])
    scope: str | None = Field(default=None, description="the scope to ask for; default: none", examples=["read"])


class Auth(BaseModel):
    """Credentials; at most one of `bearer`, `basic` and `oauth`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    bearer: SecretStr | None = Field(
        default=None, description="token for `Authorization: Bearer`; default: none", examples=["${API_TOKEN}"]
    )
    basic: SecretStr | None = Field(
        default=None,
        description="`user:password` for basic authentication; default: none",
        examples=["${USER_PASSWORD}"],
    )
    header: dict[str, SecretStr] | None = Field(
        default=None,
        min_length=1,
        description="headers that carry a secret; default: none",
        examples=[{"X-Api-Key": "${API_KEY}"}],
    )
    query: dict[str, SecretStr] | None = Field(
        default=None,
        min_length=1,
        description="query parameters that carry a secret; default: none",
        examples=[{"api_key": "${API_KEY}"}],
    )
    oauth: OAuth | None = Field(default=None, description="OAuth 2.0 client credentials; default: none")

    def contradictions(self) -> list[str]:
        """Kinds that would set the same header, if there are several."""
        given = [name for name in ("bearer", "basic", "oauth") if getattr(self, name) is not None]
        return given if len(given) > 1 else []


#: requests at the same time for one stream, unless the file says otherwise
STREAM_CONCURRENCY = 5


class AccountOptions(BaseModel):
    """An account of an HTTP API."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    base_url: str = Field(
        description="address that the paths of all streams are appended to", examples=["https://api.example.com/v1"]
    )
    auth: Auth | None = Field(default=None, description="credentials; default: none")
    headers: dict[str, str] = Field(
        default_factory=dict,
        description="headers of every request; for secrets use `auth`; default: none",
        examples=[{"Api-Version": "2026-01-01"}],
    )
    rate_limit: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="requests per second for all streams together; default: no limit",
        examples=[20],
    )
    concurrency: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="requests that are under way at the same time, for all streams together; default: 5, or with a "
        "`rate_limit` the smaller of it and 5 for each stream that is fetched at the same time",
        examples=[5],
    )
    timeout: float = Field(
        default=60.0, gt=0, allow_inf_nan=False, description="seconds to wait for the server to answer or to go on"
    )
    retries: int = Field(
        default=6,
        ge=0,
        le=50,
        description="how often a request is tried again after 429, 5xx, a timeout, a lost connection or a truncated "
        "body",
    )
    retry_seconds: float = Field(
        default=0.5,
        gt=0,
        allow_inf_nan=False,
        description="seconds before the first retry; doubled for each further one, with jitter; `Retry-After` counts "
        "if it is longer",
    )
    retry_most: float = Field(
        default=60.0, gt=0, allow_inf_nan=False, description="maximum seconds between two retries"
    )

    def requests_at_once(self, streams: int = 1) -> int:
        """Requests that are under way at the same time, when this number of streams is fetched."""
        if self.concurrency is not None:
            return self.concurrency
        if self.rate_limit is None:
            return STREAM_CONCURRENCY
        return max(1, min(math.ceil(self.rate_limit), STREAM_CONCURRENCY * max(1, streams)))

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        url = urlsplit(value)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("needs an address that begins with http:// or https://")
        if url.username or url.password or url.query or url.fragment:
            raise ValueError("must contain neither credentials nor a query; use `auth` and `params`")
        return value.rstrip("/")

"""Options of an http sink and its streams."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from penstock.core.sizes import SIZE_PATTERN, size
from penstock.links.http.options import Auth
from penstock.links.http.protocol import KEY

MIB = 1 << 20

SizeText = Annotated[str, Field(pattern=SIZE_PATTERN, json_schema_extra={"format": "size"})]
Size = Annotated[int, BeforeValidator(size, json_schema_input_type=int | SizeText)]


Decimals = Literal["string", "number"]
NonFinite = Literal["string", "null", "fail"]


class Tls(BaseModel):
    """Files for TLS; their paths are relative to the pipeline file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ca: str | None = Field(
        default=None,
        description="certificates that the receiver's certificate is checked against; default: the system's",
        examples=["certs/ca.pem"],
    )
    certificate: str | None = Field(
        default=None, description="this client's certificate, for mutual TLS; default: none", examples=["certs/me.pem"]
    )
    key: str | None = Field(
        default=None, description="the private key of `certificate`; default: none", examples=["certs/me.key"]
    )

    @model_validator(mode="after")
    def _both(self) -> Tls:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("`certificate` and `key` belong together")
        return self


class Options(BaseModel):
    """A receiver that takes rows over HTTP."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(
        description="address of the receiver; the streams' paths are appended to it",
        examples=["https://penstock.example.com"],
    )
    protocol: Literal["penstock", "plain"] = Field(
        default="penstock",
        description="`penstock`: a receiver that `penstock serve` started; `plain`: any other one, known by the key of "
        "each request",
    )
    auth: Auth | None = Field(default=None, description="credentials; default: none")
    headers: dict[str, str] = Field(
        default_factory=dict,
        description="headers of every request; for secrets use `auth`; default: none",
        examples=[{"X-Tenant": "shop"}],
    )
    tls: Tls | None = Field(default=None, description="files for TLS; default: the system's certificates")
    timeout: float = Field(
        default=60.0, gt=0, allow_inf_nan=False, description="seconds to wait for the receiver to answer or to go on"
    )
    retries: int = Field(
        default=6,
        ge=0,
        le=50,
        description="how often a request is tried again after 500, a timeout, a lost connection or an unreadable "
        "answer",
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
    wait: float = Field(
        default=900.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds for which a delivery waits while the receiver is down or busy (refused connections, 429, "
        "502, 503, 504, 507); no retry is counted meanwhile",
    )
    method: Literal["POST", "PUT", "PATCH"] = Field(
        default="POST", description="method of the requests; with `protocol: penstock` always `POST`"
    )
    success: tuple[Annotated[int, Field(ge=200, le=599)], ...] = Field(
        default=(),
        description="with `protocol: plain`, answers that acknowledge a request; default: every one from 200 to 299",
        examples=[[200, 202, 409]],
    )
    key_header: str = Field(
        default=KEY,
        pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$",
        description="with `protocol: plain`, the header that carries the key of a request",
        examples=["X-Request-Id"],
    )
    format: Literal["ndjson", "json", "object"] = Field(
        default="ndjson",
        description="body of a request: `ndjson`, a row in each line; `json`, one array of rows; `object`, a single "
        "row (with `protocol: plain`)",
    )
    compression: Literal["gzip", "none"] = Field(
        default="gzip", description="compression of the body: `gzip` or `none`"
    )
    level: int = Field(default=1, ge=1, le=9, description="level of gzip, from 1 (fast) to 9 (small)")
    chunk_rows: int = Field(default=50_000, ge=1, le=10_000_000, description="maximum rows in one request")
    chunk_bytes: Size = Field(
        default=4 * MIB,
        ge=1024,
        le=1024 * MIB,
        description="maximum size of a body before compression; a row is never split (at least 1KiB)",
    )
    oversized: Literal["fail", "quarantine"] = Field(
        default="fail",
        description="a row that is larger than `chunk_bytes`: `fail` the slice, or put it into `quarantine`",
    )
    refused: Literal["stop", "quarantine"] = Field(
        default="stop",
        description="a request that the receiver refuses for its content (400, 413, 422): `stop` the stream, or put "
        "the request's rows into `quarantine` and go on",
    )
    decimals: Decimals = Field(
        default="string", description="decimals as a JSON `string`, which every reader takes exactly, or as a `number`"
    )
    non_finite: NonFinite = Field(
        default="string",
        description="values that JSON has no number for (NaN, infinity): the `string` NaN, Infinity or -Infinity, "
        "`null`, or `fail` the slice",
    )

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        url = urlsplit(value)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("needs an address that begins with http:// or https://")
        if url.username or url.password or url.query or url.fragment:
            raise ValueError("must contain neither credentials nor a query; use `auth`")
        return value.rstrip("/")


class StreamOptions(BaseModel):
    """Options of one stream."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    into: str | None = Field(
        default=None,
        min_length=1,
        description="the receiver's stream, or with `protocol: plain` the path that is appended to `url`, with "
        "`format: object` also with `{column}`; default: the stream's name, or no path",
        examples=["shop.orders"],
    )
    deletes: Literal["include", "refuse"] = Field(
        default="include",
        description="deletes of a stream of changes: `include` them as rows whose `_change` is `delete`, or `refuse` "
        "the stream",
    )
    row: dict[str, Any] | None = Field(
        default=None,
        description="template of a row: a document in which `{column}` stands for a value; default: an object of all "
        "columns",
        examples=[{"text": "Order {id} is {status}", "amount": "{amount}"}],
    )
    body: dict[str, Any] | None = Field(
        default=None,
        description="with `protocol: plain` and `format: json`, template of the body: a document in which `{rows}` "
        "stands for the array of rows; default: the array",
        examples=[{"source": "shop", "events": "{rows}"}],
    )
    headers: dict[str, str] = Field(
        default_factory=dict,
        description="with `protocol: plain`, further headers of the stream's requests; with `format: object` they may "
        "contain `{column}`; default: none",
        examples=[{"X-Order": "{id}"}],
    )

"""Options of a stripe source and its streams."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from penstock.sources.rest.change_options import Duration
from penstock.sources.rest.options import (
    ColumnType,
    ConcurrentStreams,
    FieldPaths,
    JsonColumn,
    StreamTimeRange,
    TimeRange,
)

#: requests per second that Stripe allows with keys of the two modes
LIVE_RATE, TEST_RATE = 20.0, 10.0


class Options(BaseModel):
    """A Stripe account."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    api_key: SecretStr = Field(description="secret or restricted key", examples=["${STRIPE_API_KEY}"])
    account: str | None = Field(
        default=None,
        min_length=1,
        description="connected account to read, for the header `Stripe-Account`; default: the key's own account",
        examples=["acct_1032D82eZvKYlo2C"],
    )
    api_version: str = Field(
        default="2024-06-20", min_length=1, description="version of the API, for the header `Stripe-Version`"
    )
    base_url: str = Field(default="https://api.stripe.com/v1", description="address of the API")
    rate_limit: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="requests per second for all streams together; default: 20 with a live key, 10 with a test key",
        examples=[20],
    )
    concurrency: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="requests that are under way at the same time, for all streams together; default: the "
        "smaller of the rate limit and 5 for each stream that is fetched at the same time",
        examples=[5],
    )
    max_concurrent_streams: ConcurrentStreams = 5
    time_range: TimeRange | None = Field(
        default=None, description="the objects to read, by `created`, for all lists with that filter; default: all"
    )
    live: bool = Field(
        default=False, description="apply Stripe's events: changes and deletes of objects that were delivered"
    )
    overlap: Duration = Field(
        default=timedelta(minutes=10),
        description="with `live`: for how long an event may be listed late; default: 10 minutes",
    )
    rescan: Duration = Field(
        default=timedelta(days=90),
        description="with `live`: if events are gone after 30 days without a run, the objects created in this time "
        "are read again",
    )

    @property
    def allowed_rate(self) -> float:
        """Requests per second: as configured, or by the mode of the key."""
        live = "_live_" in self.api_key.get_secret_value()
        return self.rate_limit or (LIVE_RATE if live else TEST_RATE)


class StreamOptions(BaseModel):
    """Options of one list of Stripe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    list: str | None = Field(
        default=None, min_length=1, description="the list to read; default: the stream's name", examples=["charges"]
    )
    params: dict[str, str] = Field(
        default_factory=dict,
        description="further query parameters of every request; default: none",
        examples=[{"currency": "eur"}],
    )
    columns: dict[str, ColumnType] = Field(
        default_factory=dict,
        description="columns and their types, as for a rest source; default: `id`, `created` and `json_column`",
        examples=[{"amount": "int64", "city": "string"}],
    )
    fields: FieldPaths = Field(default_factory=dict)
    json_column: JsonColumn = "json"
    live: bool | None = Field(
        default=None, description="like `live` of the source, for this stream only; default: the source's"
    )
    time_range: StreamTimeRange = None

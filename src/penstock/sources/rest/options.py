"""Options of a rest source and its streams."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from penstock.links.http.options import AccountOptions
from penstock.links.json_values import check_column_type
from penstock.sources.rest.change_options import Changes

#: stands for the id of a parent stream's object in `path` and `params`
PARENT_ID = "{id}"
#: names of penstock's own columns
RESERVED = ("_change", "_ingest_seq", "_tombstone")


ColumnType = Annotated[str, AfterValidator(check_column_type)]


def read_time(value: str) -> datetime:
    """A configured bound; ValueError if it is none. Without a zone it is UTC."""
    found = datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


class TimeRange(BaseModel):
    """The objects to read, by their time."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    from_: str | None = Field(
        default=None,
        alias="from",
        description="date or timestamp of the first objects to read; default: all that there are",
        examples=["2025-01-01"],
    )
    to: str | None = Field(
        default=None,
        description="date or timestamp before which objects are read; default: no end",
        examples=["2026-01-01"],
    )

    @field_validator("from_", "to")
    @classmethod
    def _is_a_time(cls, value: str | None) -> str | None:
        if value is not None:
            read_time(value)
        return value

    @model_validator(mode="after")
    def _is_not_empty(self) -> TimeRange:
        if self.from_ and self.to and read_time(self.from_) >= read_time(self.to):
            raise ValueError("`from` must lie before `to`")
        return self


class Time(BaseModel):
    """The field that says when an object was created, and the parameters that filter by it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: str = Field(
        default="created", min_length=1, description="path of the field, such as `created` or `meta.created_at`"
    )
    unit: Literal["seconds", "milliseconds", "iso"] = Field(
        default="seconds",
        description="how the API writes times: `seconds` or `milliseconds` since 1970, or `iso` (RFC 3339)",
    )
    since: str = Field(
        default="created[gte]", min_length=1, description="query parameter for objects at or after a time"
    )
    before: str = Field(default="created[lt]", min_length=1, description="query parameter for objects before a time")
    granularity: int | None = Field(
        default=None,
        ge=1,
        le=31 * 86400,
        description="seconds to which the API rounds down the times of its filter, such as 60 or 86400: ranges are cut "
        "only at multiples of it, in UTC; default: the filter is exact to the unit, or to a second",
        examples=[86400],
    )
    lag: float = Field(
        default=10.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds for which an object is not read yet, because others with the same time may still appear",
    )

    @property
    def unit_name(self) -> str:
        """The unit, with the granularity if there is one."""
        return self.unit if self.granularity is None else f"{self.unit}/{self.granularity}"


class Paging(BaseModel):
    """How the next page is asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: Literal["last_id", "token", "link", "next_url", "page", "offset", "none"] = Field(
        default="last_id",
        description="`last_id`: the id of the last object; `token`: a token in the page; `link`: the header `Link`; "
        "`next_url`: an address in the page; `page`: the number of the page; `offset`: the number of objects before "
        "it; `none`: the first page is the whole list",
    )
    parameter: str | None = Field(
        default=None,
        min_length=1,
        description="query parameter that names the next page; default: `starting_after`, `page_token`, `page` or "
        "`offset`",
        examples=["starting_after"],
    )
    field: str | None = Field(
        default=None,
        min_length=1,
        description="path of the field in the page that has the token or address of the next one; default: "
        "`next_page_token` or `next`",
        examples=["meta.next"],
    )
    more: str | None = Field(
        default="has_more",
        min_length=1,
        description="path of the field in the page that says whether more follow; null: pages are asked for "
        "until one is empty",
    )
    size_parameter: str = Field(default="limit", min_length=1, description="query parameter for the size of a page")
    size: int = Field(default=100, ge=1, le=100_000, description="objects on a page; the largest that the API allows")

    @property
    def names_parameter(self) -> str:
        defaults = {"last_id": "starting_after", "token": "page_token", "page": "page", "offset": "offset"}
        return self.parameter or defaults.get(self.by, "")

    @property
    def next_field(self) -> str:
        return self.field or {"token": "next_page_token", "next_url": "next"}.get(self.by, "")


class AccountField(BaseModel):
    """Where the API says which account asks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1, description="path of the resource, appended to `base_url`", examples=["account"])
    field: str = Field(default="id", min_length=1, description="path of the field that identifies the account")


#: keys that the sources of one provider's lists have too
ConcurrentStreams = Annotated[
    int, Field(ge=1, le=1000, description="streams that are fetched at the same time, each up to 64 MiB ahead")
]
FieldPaths = Annotated[
    dict[str, str],
    Field(
        description="columns whose field has another name or lies deeper, with its path; default: none",
        examples=[{"city": "address.city"}],
    ),
]
JsonColumn = Annotated[
    str | None, Field(min_length=1, description="column with the whole object as JSON; null: no such column")
]
StreamTimeRange = Annotated[
    TimeRange | None,
    Field(description="like `time_range` of the source, for this stream only; default: the source's"),
]


class Options(AccountOptions):
    """An API that lists objects."""

    account: AccountField | None = Field(
        default=None,
        description="where the API says which account asks: a stream stops if that is another one than before; "
        "default: it is not noticed",
    )
    time_range: TimeRange | None = Field(
        default=None, description="the objects to read, by their time, for all streams with `time`; default: all"
    )
    max_concurrent_streams: ConcurrentStreams = 5
    slice_seconds: float = Field(
        default=60.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds after which the pages fetched so far are delivered",
    )


class StreamOptions(BaseModel):
    """Options of one list of objects."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = Field(
        default=None,
        min_length=1,
        description="path of the list, appended to `base_url`; `{id}` stands for the id of an object of `parent`; "
        "default: the stream's name",
        examples=["charges"],
    )
    parent: str | None = Field(
        default=None,
        min_length=1,
        description="stream of this pipeline whose ids are put in for `{id}` in `path` or `params`: the list is read "
        "for each of its objects, in every run; default: none",
        examples=["customers"],
    )
    parent_column: str = Field(default="parent_id", min_length=1, description="column with the id of the parent")
    params: dict[str, str] = Field(
        default_factory=dict,
        description="further query parameters of every request; default: none",
        examples=[{"status": "paid"}],
    )
    records: str = Field(
        default="data", description="path of the objects in a page; empty string: the page itself is the list"
    )
    id: str = Field(default="id", min_length=1, description="path of the field that identifies an object")
    time: Time | None = Field(
        default=None,
        description="the field with an object's time, where the API filters by it; default: none, the stream is read "
        "whole in every run",
    )
    incremental: bool = Field(
        default=False,
        description="without `time`: the list grows at its end only and its cursors stay valid, so a run reads on from "
        "the last one",
    )
    order: Literal["newest", "oldest"] = Field(
        default="newest", description="which objects the API lists first: the `newest` or the `oldest`"
    )
    paging: Paging = Field(default=Paging(), description="how the next page is asked for; default: see below")
    changes: Changes | None = Field(
        default=None,
        description="with `time`: how changes and deletes of objects are found; default: each object is delivered once",
    )
    columns: dict[str, ColumnType] = Field(
        default_factory=dict,
        description="columns and their types: bool, int64, float64, decimal(p,s), string, json, date, timestamp, "
        "timestamptz; default: the id, the time, and `json_column`",
        examples=[{"amount": "int64", "city": "string"}],
    )
    fields: FieldPaths = Field(default_factory=dict)
    json_column: JsonColumn = "json"
    time_range: StreamTimeRange = None
    accept_drop: bool = Field(
        default=False,
        description="accept a full refresh with less than half the rows of the previous one",
    )

    @field_validator("path")
    @classmethod
    def _is_a_path(cls, value: str | None) -> str | None:
        if value is not None and ("?" in value or "#" in value):
            raise ValueError("must not contain a query; write its parameters under `params`")
        return value

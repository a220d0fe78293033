"""Options of a wal source and its streams."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from penstock.links.json_values import check_column_type

ColumnType = Annotated[str, AfterValidator(check_column_type)]


class Options(BaseModel):
    """Where the receiver keeps its logs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = Field(
        min_length=1, description="folder of the receiver's logs, as `penstock serve` was given it", examples=["wal"]
    )


class FanOutOptions(BaseModel):
    """A table each row of which sets fields of all entities that match it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: str = Field(
        min_length=1, description="the table, as `table` of its documents has it", examples=["public.posts"]
    )
    match: tuple[str, ...] = Field(
        min_length=1, description="fields of the entity that a filter compares", examples=[["post_id"]]
    )
    fields: tuple[str, ...] = Field(min_length=1, description="fields that it sets", examples=[["post_title"]])


class EntityOptions(BaseModel):
    """The fields of the entities that documents of ops change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: dict[str, ColumnType] = Field(
        min_length=1,
        description="the columns of the key and their types, in the order of a document's `key`",
        examples=[{"id": "int64"}],
    )
    fields: dict[str, ColumnType] = Field(
        default_factory=dict,
        description="fields with one value, and their types",
        examples=[{"url": "string", "post_id": "int64", "post_title": "string"}],
    )
    multi_value: dict[str, ColumnType] = Field(
        default_factory=dict,
        description="fields that hold several values, and the type of one value",
        examples=[{"tags": "int64"}],
    )
    fan_out: tuple[FanOutOptions, ...] = Field(
        default=(),
        description="tables each row of which sets fields of all entities that match it; default: none",
        examples=[[{"table": "public.posts", "match": ["post_id"], "fields": ["post_title"]}]],
    )


class StreamOptions(BaseModel):
    """What the rows of a stream look like."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    columns: dict[str, ColumnType] = Field(
        default_factory=dict,
        description="columns and their types, required without `entities`: bool, int64, float64, decimal(p,s), string, "
        "json, date, timestamp, timestamptz; fields of rows that are not listed are left out; default: none",
        examples=[{"id": "int64", "name": "string"}],
    )
    entities: EntityOptions | None = Field(
        default=None,
        examples=[{"key": {"id": "int64"}, "fields": {"url": "string"}, "multi_value": {"tags": "int64"}}],
        description="in place of `columns`, for a stream of documents of ops: the fields of the entities that they "
        "change; default: rows are plain rows",
    )
    producers: Literal["one", "any"] = Field(
        default="one",
        description="with `entities`: `one` stops if a second producer has sent documents, since nothing says which of "
        "the two comes first; `any` takes them in the order in which they were received",
    )
    primary_key: tuple[str, ...] = Field(
        default=(), description="columns that identify a row; default: none", examples=[["id"]]
    )
    changes: bool = Field(
        default=False,
        description="rows have a field `_change`, which is `upsert` or `delete`; else all are upserts",
    )
    damaged: Literal["stop", "skip"] = Field(
        default="stop",
        description="what becomes of a damaged record of the log: `stop` the stream, or `skip` the record and say so",
    )

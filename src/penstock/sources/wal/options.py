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


class StreamOptions(BaseModel):
    """What the rows of a stream look like."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    columns: dict[str, ColumnType] = Field(
        min_length=1,
        description="columns and their types: bool, int64, float64, decimal(p,s), string, json, date, timestamp, "
        "timestamptz; fields of rows that are not listed are left out",
        examples=[{"id": "int64", "name": "string"}],
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
